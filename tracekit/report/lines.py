"""Text laid out for a terminal: wrapped lines, labelled fields, tables that fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tracekit.model.finding import Level
from tracekit.report.cells import cell_len, wrapped
from tracekit.report.columns import GAP, fit
from tracekit.report.evidence import Grid

__all__ = ["DEFAULT_WIDTH", "NARROWEST", "Lines"]

DEFAULT_WIDTH = 100
NARROWEST = 40
_LABEL = 12
_GLUE = "\ue000"
"""Stands for a blank that must not break; names never hold it, because it is not printable."""
_UNIT = re.compile(r"(?<=\d) (?=(?:[num]?s|[kMGT]?B(?:/s)?)(?![\w/]))")
_SGR = {"bold": "1", "dim": "2"}
"""Codes of the terminal (Select Graphic Rendition, ECMA-48)."""
_LEVELS = {
    Level.CRITICAL: "1;31",
    Level.WARN: "1;33",
    Level.OK: "32",
    Level.UNKNOWN: "36",
}
"""Bold red, bold yellow, green, cyan."""


class _Cell(NamedTuple):
    """Text in a column of `width` terminal cells; `sgr` is how it looks."""

    text: str
    width: int
    sgr: str = ""
    right: bool = False


class Lines:
    """Lines of text in memory, laid out to a width; nothing is taken from the surroundings.

    Args:
        width: Terminal cells; narrower than `NARROWEST` is treated as that.
        color: Whether to add ANSI colours.
    """

    def __init__(self, width: int = DEFAULT_WIDTH, *, color: bool = False) -> None:
        self._width, self._color = max(NARROWEST, width), color
        self._lines: list[str] = []

    def line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """Write wrapped text, plain or in `style` "bold" or "dim"."""
        self._row([_Cell(text, self._width - indent, _SGR.get(style, ""))], indent)

    def command(self, text: str, indent: int = 4) -> None:
        """Write a command on one line, however long, so that it can be copied."""
        self._lines.append(" " * indent + text)

    def title(self, level: Level, head: str, text: str) -> None:
        """Write a headline whose first word is coloured; its further lines are indented."""
        used = cell_len(head)
        rest = _Cell(text, self._width - used - GAP, _SGR["bold"])
        self._row([_Cell(head, used, _LEVELS[level]), rest])

    def bullet(self, text: str, indent: int = 4) -> None:
        """Write an item of a list; its further lines are indented."""
        self._row([_Cell("-", 1), _Cell(text, self._width - indent - 2)], indent, gap=1)

    def fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Write label and wrapped text side by side; pairs without text are left out."""
        width = self._width - 2 - _LABEL - 1
        for label, text in pairs:
            if text:
                cells = [_Cell(label, _LABEL, _SGR["dim"]), _Cell(text, width)]
                self._row(cells, indent=2, gap=1)

    def grid(self, grid: Grid, indent: int = 4) -> None:
        """Write a table with a note on the rows that are not shown."""
        rest = f"   ({len(grid.rows)} of {grid.total:,} rows)" if grid.rest else ""
        self.line(f"{grid.title}{rest}", "dim", indent - 2)
        self.columns(grid.headings, grid.rows, grid.right, indent)

    def columns(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        right: Sequence[bool],
        indent: int = 4,
        *,
        wrap: bool = False,
    ) -> None:
        """Write rows under headings, as many columns as fit.

        Args:
            headings: One a column.
            rows: Cells.
            right: Which columns hold numbers.
            indent: Blanks before the table.
            wrap: Break text that is too long over lines instead of shortening it.
        """
        fitted = fit(headings, rows, right, self._width - indent)
        # One column is kept even where it is too wide.
        widths = [min(width, self._width - indent) for width in fitted.widths]
        heads = zip(headings, widths, right, strict=False)
        self._row([_Cell(h, w, _SGR["dim"], r) for h, w, r in heads], indent, heads=True)
        for row in rows if wrap else fitted.rows:
            cells = zip(row, widths, right, strict=False)
            self._row([_Cell(text, w, right=r) for text, w, r in cells], indent)
        if fitted.dropped:
            names = ", ".join(headings[-fitted.dropped :])
            self.line(f"(too narrow for: {names})", "dim", indent)

    def text(self) -> str:
        """Return everything written, without trailing blanks."""
        lines = (line.replace(_GLUE, " ").rstrip() for line in self._lines)
        return "\n".join(lines).rstrip("\n") + "\n"

    def _row(
        self, cells: Sequence[_Cell], indent: int = 0, *, gap: int = GAP, heads: bool = False
    ) -> None:
        """Write cells side by side, each wrapped to its width.

        They begin on the same line; `heads` end on one, and their columns fit single words.
        """
        texts = [cell.text if heads else _joined(cell.text) for cell in cells]
        blocks = [wrapped(text, cell.width) for text, cell in zip(texts, cells, strict=True)]
        height = max(len(block) for block in blocks)
        blanks = [[""] * (height - len(block)) for block in blocks]
        filled = (a + b if heads else b + a for a, b in zip(blanks, blocks, strict=True))
        for parts in zip(*filled, strict=True):
            shown = (self._shown(c, part) for c, part in zip(cells, parts, strict=True))
            self._lines.append(" " * indent + (" " * gap).join(shown))

    def _shown(self, cell: _Cell, text: str) -> str:
        blank = " " * (cell.width - cell_len(text))
        if self._color and cell.sgr and text:
            text = f"\x1b[{cell.sgr}m{text}\x1b[0m"
        return blank + text if cell.right else text + blank


def _joined(text: str) -> str:
    """Return `text` with numbers and their units glued together, so that no line parts them."""
    return _UNIT.sub(_GLUE, text)
