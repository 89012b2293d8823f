"""One package a diagnosis; `names` reads this folder, there is no other list."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.trace.analysis import Analysis

__all__ = ["load", "names"]


@cache
def names() -> tuple[str, ...]:
    """Return the names of all analyses, sorted."""
    folders = (p.parent.name for p in Path(__file__).parent.glob("*/__init__.py"))
    return tuple(sorted(name for name in folders if name[0] != "_"))


def load(name: str) -> Analysis:
    """Return the analysis `name`.

    Raises:
        KeyError: There is none of that name.
    """
    if name not in names():
        raise KeyError(name)
    analysis: Analysis = import_module(f"{__name__}.{name}").ANALYSIS
    return analysis
