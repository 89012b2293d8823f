"""Analyses of other distributions: loaded, checked, and kept from taking others with them."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from tracekit.model.catalog import CATALOG
from tracekit.model.finding import Finding, Level
from tracekit.trace.analysis import Analysis
from tracekit.wording.names import printable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tracekit.trace.trace import Trace

__all__ = ["failed", "loaded"]


def loaded(point: EntryPoint) -> Analysis:
    """Return the analysis of an entry point.

    Where it cannot be used, a stand-in comes back: `Analysis.needs` says why, and its ``compute``
    raises what went wrong, as if the analysis itself had failed.
    """
    source = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    try:
        return replace(_checked(point.name, point.load()), source=source)
    except Exception as error:  # noqa: BLE001 - whatever another's module raises on import
        return _stand_in(point.name, source, error)


def failed(analysis: Analysis, error: Exception, *, with_message: bool) -> Finding:
    """Return the finding of an analysis of another distribution that raised `error`.

    Args:
        analysis: The analysis.
        error: What it raised.
        with_message: Whether the error's own words are said; they may name files and users.
    """
    title = f"not computed: {analysis.source} failed: {_line(error, with_message=with_message)}"
    return Finding(id=f"{analysis.name}/failed", level=Level.UNKNOWN, title=title)


def _checked(name: str, found: object) -> Analysis:
    """Return what an entry point stands for if it is an analysis of that name.

    Raises:
        TypeError: It is not, needs tables that do not exist, or parameters without a default.
    """
    if not isinstance(found, Analysis):
        fault = f"what is named {name} is no Analysis but of type {type(found).__name__}"
        raise TypeError(fault)
    if found.name != name or not name.isidentifier():
        fault = f"the entry point is named {name}, its analysis {found.name}"
        raise TypeError(fault)
    if unknown := sorted({*found.requires, *found.uses} - CATALOG.keys()):
        fault = f"it needs tables that do not exist: {', '.join(unknown)}"
        raise TypeError(fault)
    found.params()  # every parameter has a default
    return found


def _stand_in(name: str, source: str, error: Exception) -> Analysis:
    def compute(_trace: Trace, _params: object) -> NoReturn:
        raise error

    return Analysis(
        name=name,
        question=f"Not available: {source} cannot be loaded.",
        requires=(),
        needs=f"{source} to load: {_line(error, with_message=True)}",
        results=(),
        compute=compute,
        verdict=lambda _frames, _params: (),
        source=source,
    )


def _line(error: Exception, *, with_message: bool) -> str:
    """What was raised and in which line of which file, on one line."""
    what = f"{type(error).__name__}: {error}" if with_message else type(error).__name__
    at = traceback.extract_tb(error.__traceback__)
    where = f" ({at[-1].filename.rpartition('/')[2]}:{at[-1].lineno})" if at else ""
    return printable(f"{' '.join(what.split())}{where}")
