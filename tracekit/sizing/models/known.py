"""Built-in models: the fields of their ``config.json`` that give the shape, with the source."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib import resources
from typing import Any

from tracekit.errors import UsageError
from tracekit.sizing.models.config import parse_config
from tracekit.sizing.models.shape import ModelShape

__all__ = ["known_models", "known_shape", "published_params", "source_of"]


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = resources.files("tracekit.sizing.models").joinpath("known.toml").read_text("utf-8")
    return tomllib.loads(text)


def known_models() -> tuple[str, ...]:
    """Return the names of the built-in models."""
    return tuple(_table())


def known_shape(name: str) -> ModelShape:
    """Return the shape of a built-in model.

    Raises:
        UsageError: There is none of this name.
    """
    plain = name.strip().lower()
    if plain not in _table():
        message = f"no built-in model named {name!r}"
        hint = f"give the path of a config.json, or one of: {', '.join(known_models())}"
        raise UsageError(message, hint=hint)
    return parse_config(json.dumps(_table()[plain]["config"]), name=plain)


def published_params(name: str) -> int:
    """Return the number of weights that the publisher's files of a built-in model hold."""
    return int(_table()[name]["n_params"])


def source_of(name: str) -> str:
    """Return where the fields of a built-in model come from."""
    return str(_table()[name]["source"])
