"""Parameters given as text (``analysis.name=value``) to typed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracekit import analyses
from tracekit.errors import UsageError
from tracekit.model.kernels import Classifier
from tracekit.trace.params import Settings, parameters

__all__ = ["SETTINGS", "parse"]

SETTINGS = tuple(
    replace(p, name=p.name.replace("_", ".", 1)) for p in parameters(Settings) if p.help
)
"""Settings that every analysis shares; ``kernels.CLASS=REGEX``, any class, comes on top."""
_EDGES = ("leading", "trailing")
_BEYOND = 2.0**53
"""No number of any unit in use is as large; times and sizes stay within 64 bits."""
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def parse(
    names: Sequence[str],
    given: Mapping[str, str],
    settings: Settings = Settings(),  # noqa: B008
) -> tuple[dict[str, Any], Settings]:
    """Return the params object of each analysis, and the settings that all share.

    Args:
        names: Analyses that will run.
        given: ``analysis.name`` or a setting's name to its value as text.
        settings: What holds where `given` says nothing.

    Raises:
        UsageError: A name or kernel class does not exist, or a value has the wrong type.
    """
    known = {p.name for p in SETTINGS}
    changed: dict[str, Any] = {}
    overrides: list[tuple[str, str]] = []
    values: dict[str, dict[str, Any]] = {}
    for key, text in given.items():
        group, _, name = key.partition(".")
        if key in known:
            changed[key.replace(".", "_", 1)] = _setting(key, text)
        elif group == "kernels" and name:
            overrides.append((name, text))
        else:
            values.setdefault(group, {})[name] = _value(group, name, text)
    Classifier(overrides)  # refuses what it cannot use
    if overrides:
        changed["kernel_overrides"] = tuple(overrides)
    params = {n: analyses.load(n).params(**values.get(n, {})) for n in names}
    return params, replace(settings, **changed)


def _setting(key: str, text: str) -> Any:
    if key == "sampling.edge":
        if text not in _EDGES:
            message = f"{key} is one of {', '.join(_EDGES)}, not {text!r}"
            raise UsageError(message)
        return text
    value = _number(key, text, float)
    if value <= 0:
        message = f"{key} is greater than 0, not {text}"
        raise UsageError(message)
    return value


def _value(group: str, name: str, text: str) -> Any:
    if group not in analyses.names():
        known = ", ".join((*analyses.names(), "kernels", *(p.name for p in SETTINGS)))
        message = f"no analysis or setting {group!r} to set {name!r} of"
        raise UsageError(message, hint=f"there are: {known}")
    known_params = {p.name: p for p in parameters(analyses.load(group).params)}
    if name not in known_params:
        message = f"{group} has no parameter {name!r}"
        raise UsageError(message, hint=f"it has: {', '.join(known_params) or 'none'}")
    default = known_params[name].default
    if isinstance(default, bool):
        if text.lower() not in _TRUE | _FALSE:
            message = f"{group}.{name} is true or false, not {text!r}"
            raise UsageError(message)
        return text.lower() in _TRUE
    if isinstance(default, int):
        return _number(f"{group}.{name}", text, int)
    return text if isinstance(default, str) else _number(f"{group}.{name}", text, float)


def _number(key: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        value = kind(text)
    except ValueError:
        message = f"{key} is a number, not {text!r}"
        raise UsageError(message) from None
    if not abs(value) < _BEYOND:  # nor is nan
        message = f"{key} is a number that is not too large, not {text!r}"
        raise UsageError(message)
    return value
