"""Text tables that have to fit: text gives way first, then whole columns, never digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tracekit.report.cells import cell_len
from tracekit.wording.names import short_name

__all__ = ["Fitted", "fit"]

GAP = 2
"""Blanks between two columns."""
_NARROWEST_TEXT = 12


class Fitted(NamedTuple):
    """A table cut to a width.

    Attributes:
        widths: Width of each column kept, in terminal cells.
        rows: Cells of the columns kept.
        dropped: Columns at the right end that did not fit.
    """

    widths: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]
    dropped: int


def fit(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int
) -> Fitted:
    """Return the columns that fit into `width`.

    Args:
        headings: Column headings; they may wrap between words.
        rows: Cells; all of the same length as `headings`.
        right: Which columns hold numbers: these are never shortened.
        width: Terminal cells to fill.
    """
    widths = [
        max([_longest_word(heading), *(cell_len(row[i]) for row in rows)])
        for i, heading in enumerate(headings)
    ]
    text = [i for i in range(len(widths)) if not right[i]]
    excess = _total(widths) - width
    for i in sorted(text, key=lambda i: -widths[i]):
        cut = min(
            max(0, excess), max(0, widths[i] - max(_NARROWEST_TEXT, _longest_word(headings[i])))
        )
        widths[i] -= cut
        excess -= cut
    kept = len(widths)
    while kept > 1 and _total(widths[:kept]) > width:
        kept -= 1
    cells = tuple(
        tuple(
            row[i] if right[i] or cell_len(row[i]) <= widths[i] else short_name(row[i], widths[i])
            for i in range(kept)
        )
        for row in rows
    )
    return Fitted(tuple(widths[:kept]), cells, len(widths) - kept)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _longest_word(heading: str) -> int:
    return max((cell_len(word) for word in heading.split()), default=1)
