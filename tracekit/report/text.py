"""A diagnosis for a terminal: the answer on the first screen, plain when it is piped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich import cells

from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Finding, Level
from tracekit.report import summary
from tracekit.report.evidence import Grid, grids
from tracekit.wording.names import printable, short_name
from tracekit.wording.numbers import duration

__all__ = [
    "DEFAULT_TOP",
    "DEFAULT_WIDTH",
    "NARROWEST",
    "Fitted",
    "Lines",
    "cell_len",
    "fit",
    "render",
    "wrapped",
]

_WORD = re.compile(r"\s*\S+\s*")
"""A word with the blanks after it; the first one of a text also has those before it."""


def cell_len(text: str) -> int:
    """Return the width of `text` in terminal cells; some characters take two, some none."""
    return len(text) if text.isascii() else cells.cell_len(text)


def wrapped(text: str, width: int) -> list[str]:
    """Break text between words, and words that are too long for a line anywhere.

    Args:
        text: One line without control characters.
        width: Terminal cells of a line.

    Returns:
        The lines, at least one, without the blanks at their ends.
    """
    if cell_len(text) <= width:
        return [text.rstrip()]
    lines: list[str] = []
    used = width + 1
    for word in _WORD.findall(text):
        needed = cell_len(word.rstrip())
        if used + needed <= width:
            lines[-1] += word
            used += cell_len(word)
        else:
            lines += [word] if needed <= width else _chopped(word, width)
            used = cell_len(lines[-1])
    return [line.rstrip() for line in lines] or [""]


def _chopped(word: str, width: int) -> list[str]:
    if not word.isascii():
        return cells.chop_cells(word, width)
    return [word[i : i + width] for i in range(0, len(word), width)]


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


DEFAULT_TOP = 6
_REMARKS = 4
_LIST_FROM = 2
_SHOWN = (Level.CRITICAL, Level.WARN)


def render(
    diagnosis: Diagnosis,
    *,
    top: int | None = None,
    width: int = DEFAULT_WIDTH,
    color: bool = False,
    verbose: bool = False,
) -> str:
    """Return `diagnosis` as lines of text.

    Args:
        diagnosis: What to show.
        top: Rows of every table; None for `DEFAULT_TOP`.
        width: Columns of the terminal; commands to copy are never broken and may be wider.
        color: Whether to add ANSI colours.
        verbose: Whether findings that are fine, or measured without being judged, are shown with
            all their numbers too.
    """
    limit = DEFAULT_TOP if top is None else top
    page = Lines(width, color=color)
    _head(page, diagnosis, verbose=verbose)
    _headlines(page, [f for f in diagnosis.findings if f.level in _SHOWN])
    full = [f for f in diagnosis.findings if f.level in _SHOWN or (verbose and _measured(f))]
    for number, finding in enumerate(full, 1):
        _finding(page, diagnosis, finding, number, limit)
    if not verbose:
        _fine(page, diagnosis)
    _unjudged(page, diagnosis)
    return page.text()


def _measured(finding: Finding) -> bool:
    """Whether a finding without a problem has something to show: also what could not be judged."""
    return finding.level is not Level.UNKNOWN or bool(finding.metrics and finding.evidence)


def _head(page: Lines, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """The answer in a sentence, then what was recorded and what it lacks."""
    if diagnosis.overview.has_device_activity:
        for line in diagnosis.overview.perspective:
            page.line(printable(line), "bold")
    page.line(summary.verdict(diagnosis), "bold")
    page.line()
    page.fields(("Report", summary.report_line(r)) for r in diagnosis.reports)
    page.fields([("Window", summary.window_line(diagnosis))])
    page.fields(("Clocks", line) for line in summary.clock_lines(diagnosis))
    page.fields((t.label, summary.gpu_line(diagnosis, t)) for t in diagnosis.overview.gpus)
    page.fields(
        (
            ("GPU time", ", ".join(summary.class_shares(diagnosis))),
            ("Steps", summary.step_line(diagnosis)),
        )
    )
    page.fields(("Kernel", line) for line in summary.kernel_lines(diagnosis))
    _quality(page, diagnosis, verbose=verbose)


def _quality(page: Lines, diagnosis: Diagnosis, *, verbose: bool) -> None:
    lines = summary.quality_lines(diagnosis)
    if not lines:
        page.fields([("Data", summary.faultless_line(diagnosis))])
    remarks = [text for level, text in lines if level not in _SHOWN]
    hidden = 0 if verbose else max(0, len(remarks) - _REMARKS)
    for level, text in lines[: len(lines) - hidden]:
        word = {Level.CRITICAL: "Data ERROR", Level.WARN: "Data PARTIAL"}.get(level, "Data")
        page.fields([(word, text)])
    if hidden:
        page.fields([("", f"and {hidden} more remarks (-v shows them)")])


def _headlines(page: Lines, bad: Sequence[Finding]) -> None:
    """The list of headlines, where one headline alone would be said twice."""
    if len(bad) < _LIST_FROM:
        return
    page.line()
    for number, finding in enumerate(bad, 1):
        head = f"{number}. {summary.LEVEL_WORDS[finding.level]}"
        title, at_stake = printable(finding.title), summary.stake(finding)
        # Most headlines give the time at stake themselves.
        said = not at_stake or duration(finding.at_stake_ns) in title
        page.title(finding.level, head, title if said else f"{title} (at stake {at_stake})")


def _finding(page: Lines, diagnosis: Diagnosis, finding: Finding, number: int, top: int) -> None:
    page.line()
    head = f"{number}. {summary.LEVEL_WORDS[finding.level]}"
    page.title(finding.level, head, printable(finding.title))
    page.fields(
        (
            ("At stake", summary.stake(finding)),
            ("Do", printable(finding.advice)),
            ("Where", summary.place(finding)),
            ("Confidence", summary.confidence(finding)),
        )
    )
    cells = [summary.metric_cells(m) for m in finding.metrics]
    if cells:
        page.line("Numbers, with 95% intervals where there is one", "dim", 2)
        used = [i for i in range(4) if any(row[i] for row in cells)]
        headings = [("what", "value", "interval", "n")[i] for i in used]
        rows = [[row[i] for i in used] for row in cells]
        page.columns(headings, rows, [i > 0 for i in used], wrap=True)
    for grid in grids(diagnosis, finding, top):
        page.grid(grid)
    if finding.caveats:
        page.line("It could be wrong:", "dim", 2)
        for caveat in finding.caveats:
            page.bullet(printable(caveat))


def _fine(page: Lines, diagnosis: Diagnosis) -> None:
    fine = [f for f in diagnosis.findings if f.level is Level.OK]
    if not fine:
        return
    page.line()
    page.line("Looked at, nothing to do (-v shows their numbers)", "bold")
    for finding in fine:
        sure = f" [confidence {finding.confidence.label}]" if finding.confidence else ""
        name = summary.analysis_name(finding)
        page.title(Level.OK, "  OK", f"{name}: {printable(finding.title)}{sure}")


def _unjudged(page: Lines, diagnosis: Diagnosis) -> None:
    questions = summary.unjudged(diagnosis)
    if not questions:
        return
    page.line()
    page.line("Could not be judged from this recording", "bold")
    for question in questions:
        page.title(Level.UNKNOWN, "  ?", f"{', '.join(question.analyses)}: {question.title}")
        if question.reasons:
            page.line(f"needs: {'; '.join(question.reasons)}", indent=5)
    commands = summary.commands_of(questions)
    if commands:
        page.line("To record what is missing:", indent=2)
    for command in commands:
        page.command(command)
