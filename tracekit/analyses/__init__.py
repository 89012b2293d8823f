"""One package a diagnosis: `names` reads this folder and what installed distributions add.

A distribution adds an analysis by an entry point of the group `GROUP`, see
``docs/adding-an-analysis.md``. What it brings runs like tracekit's own, except that a fault of it
costs its own answer only.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tracekit.trace.analysis import Analysis

__all__ = ["GROUP", "load", "names", "own_names"]

GROUP = "tracekit.analyses"
"""Entry points ``name = "package.module:ANALYSIS"`` of this group are analyses."""


@cache
def own_names() -> tuple[str, ...]:
    """Return the names of the analyses in this folder, sorted."""
    folders = (p.parent.name for p in Path(__file__).parent.glob("*/__init__.py"))
    return tuple(sorted(name for name in folders if name[0] != "_"))


def names() -> tuple[str, ...]:
    """Return the names of all analyses, sorted.

    Raises:
        UsageError: Two analyses have one name.
    """
    return tuple(sorted((*own_names(), *_added())))


def load(name: str) -> Analysis:
    """Return the analysis `name`.

    Of one that another distribution adds and that cannot be loaded, a stand-in comes back, whose
    only finding says why.

    Raises:
        KeyError: There is none of that name.
        UsageError: Two analyses have one name.
    """
    added = _added()
    if name in added:
        from tracekit.trace.added import loaded

        return loaded(added[name])
    if name not in own_names():
        raise KeyError(name)
    analysis: Analysis = import_module(f"{__name__}.{name}").ANALYSIS
    return analysis


@cache
def _added() -> dict[str, EntryPoint]:
    """Entry points of installed distributions by the name of their analysis."""
    from importlib.metadata import entry_points  # `tracekit --help` does without

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in found or point.name in own_names():
            other = _source(found[point.name]) if point.name in found else "tracekit itself"
            message = f"{_source(point)} and {other} both bring an analysis named {point.name}"
            raise UsageError(message, hint=f"uninstall one of them, or rename it in {point.value}")
        found[point.name] = point
    return found


def _source(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
