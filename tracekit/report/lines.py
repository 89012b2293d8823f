"""Text laid out for a terminal: wrapped lines, labelled fields, tables that fit."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracekit.model.analysis import Level
from tracekit.report.columns import GAP, fit
from tracekit.report.evidence import Grid

__all__ = ["DEFAULT_WIDTH", "NARROWEST", "Lines"]

DEFAULT_WIDTH = 100
NARROWEST = 40
_LABEL = 12
_GLUE = "\ue000"
"""Stands for a blank that must not break; names never hold it, because it is not printable."""
_UNIT = re.compile(r"(?<=\d) (?=(?:[num]?s|[kMGT]?B(?:/s)?)(?![\w/]))")
_STYLES = {
    Level.CRITICAL: "bold red",
    Level.WARN: "bold yellow",
    Level.OK: "green",
    Level.UNKNOWN: "cyan",
}


class Lines:
    """Lines of text in memory, laid out to a width; nothing is taken from the surroundings.

    Args:
        width: Terminal cells; narrower than `NARROWEST` is treated as that.
        color: Whether to add ANSI colours.
    """

    def __init__(self, width: int = DEFAULT_WIDTH, *, color: bool = False) -> None:
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=max(NARROWEST, width),
            color_system="standard" if color else None,
            force_terminal=color,
            no_color=not color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )

    def line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """Write wrapped text."""
        self._console.print(Padding(Text(_joined(text), style=style), (0, 0, 0, indent)))

    def command(self, text: str, indent: int = 4) -> None:
        """Write a command on one line, however long, so that it can be copied."""
        self._console.print(" " * indent + text, soft_wrap=True)

    def title(self, level: Level, head: str, text: str) -> None:
        """Write a headline whose first word is coloured; its further lines are indented."""
        table = Table.grid(padding=(0, GAP, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold", ratio=1)
        table.add_row(Text(head, style=_STYLES[level]), Text(_joined(text), style="bold"))
        self._console.print(table)

    def bullet(self, text: str, indent: int = 4) -> None:
        """Write an item of a list; its further lines are indented."""
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold", ratio=1)
        table.add_row(Text("-"), Text(_joined(text)))
        self._console.print(Padding(table, (0, 0, 0, indent)))

    def fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Write label and wrapped text side by side; pairs without text are left out."""
        table = Table.grid(padding=(0, 1))
        table.add_column(width=_LABEL, style="dim")
        table.add_column(overflow="fold", ratio=1)
        for label, text in pairs:
            if text:
                table.add_row(Text(label), Text(_joined(text)))
        if table.row_count:
            self._console.print(Padding(table, (0, 0, 0, 2)))

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
        fitted = fit(headings, rows, right, self._console.width - indent)
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
        for i, width in enumerate(fitted.widths):
            justify: JustifyMethod = "right" if right[i] else "left"
            table.add_column(Text(headings[i]), justify=justify, width=width, overflow="fold")
        for row in rows if wrap else fitted.rows:
            table.add_row(*(Text(_joined(cell)) for cell in row[: len(fitted.widths)]))
        self._console.print(Padding(table, (0, 0, 0, indent)))
        if fitted.dropped:
            names = ", ".join(headings[-fitted.dropped :])
            self.line(f"(too narrow for: {names})", "dim", indent)

    def text(self) -> str:
        """Return everything written, without trailing blanks."""
        lines = self._out.getvalue().replace(_GLUE, " ").split("\n")
        return "\n".join(line.rstrip() for line in lines).rstrip("\n") + "\n"


def _joined(text: str) -> str:
    """Return `text` with numbers and their units glued together, so that no line parts them."""
    return _UNIT.sub(_GLUE, text)
