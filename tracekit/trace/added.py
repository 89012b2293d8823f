"""Analyses of other distributions: loaded, checked, and kept from taking others with them."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.model.catalog import CATALOG
from tracekit.model.finding import Finding, Level
from tracekit.trace.analysis import Analysis

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["failed", "loaded"]


def loaded(point: EntryPoint) -> Analysis:
    """Return the analysis of an entry point, a stand-in that says why where it cannot be used."""
    source = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    try:
        found: object = point.load()
    except Exception as error:  # noqa: BLE001 - whatever another's module raises on import
        return _stand_in(point.name, source, f"{source} cannot be loaded: {_one_line(error)}")
    if not isinstance(found, Analysis):
        fault = f"{point.value} is no Analysis but of type {type(found).__name__}"
    elif not (fault := _fault(point.name, found)):
        return replace(found, source=source)
    return _stand_in(point.name, source, f"{source} cannot be used: {fault}")


def failed(analysis: Analysis, error: Exception) -> Finding:
    """Return the finding of an analysis of another distribution that raised `error`."""
    return _unknown(analysis.name, f"not computed: {analysis.source} failed: {_one_line(error)}")


def _fault(name: str, found: Analysis) -> str:
    if found.name != name or not name.isidentifier():
        return f"its entry point is named {name}, its analysis {found.name}"
    unknown = sorted({*found.requires, *found.uses} - CATALOG.keys())
    return f"it needs tables that do not exist: {', '.join(unknown)}" if unknown else ""


def _stand_in(name: str, source: str, why: str) -> Analysis:
    return Analysis(
        name=name,
        question=f"Not available: {why}",
        requires=(),
        results=(),
        compute=lambda _trace, _params: {},
        verdict=lambda _frames, _params: (_unknown(name, f"not computed: {why}"),),
        source=source,
    )


def _unknown(name: str, title: str) -> Finding:
    return Finding(id=f"{name}/failed", level=Level.UNKNOWN, title=title)


def _one_line(error: Exception) -> str:
    """What was raised and where, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{' '.join(f'{type(error).__name__}: {error}'.split())}{where}"
