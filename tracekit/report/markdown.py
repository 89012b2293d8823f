"""A diagnosis as Markdown for an issue: summary first, details folded, small enough to paste."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Evidence, Finding, Level
from tracekit.report import summary
from tracekit.report.evidence import Course, Grid, courses, grid
from tracekit.wording.names import printable, shorten
from tracekit.wording.numbers import quantity

__all__ = ["DEFAULT_TOP", "MOST_BYTES", "WIDTH", "code", "inline", "render", "sparkline"]

WIDTH = 40
_BARS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"


def sparkline(values: Sequence[float | int | None], width: int = WIDTH) -> str:
    """Return one character for every run of rows: the mean of the run between zero and the maximum.

    Args:
        values: One number a row, None or NaN where not measured.
        width: Characters at most; no more than there are values.

    Returns:
        A line of block characters from low to high, ``·`` where a run holds no number. Bars start
        at zero unless a value is negative, so that their heights compare.
    """
    runs = min(width, len(values))
    if not runs:
        return ""
    edges = [len(values) * i // runs for i in range(runs + 1)]
    means = [_mean(values[a:b]) for a, b in pairwise(edges)]
    known = [m for m in means if m is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    return "".join(_NOTHING if m is None else _bar(m, low, high) for m in means)


def _mean(values: Sequence[float | int | None]) -> float | None:
    known = [float(v) for v in values if v is not None and math.isfinite(v)]
    return math.fsum(known) / len(known) if known else None


def _bar(value: float, low: float, high: float) -> str:
    if high <= low:
        return _BARS[0]
    return _BARS[min(len(_BARS) - 1, int((value - low) / (high - low) * len(_BARS)))]


DEFAULT_TOP = 10
MOST_BYTES = 60_000
"""What fits into an issue with room to spare."""
_LONGEST = 600
_CELL = 60
_MOST_LINES = 60
_MOST_ROWS = 200
_NOTE_BYTES = 200
_COURSES = 2
_ICONS = {Level.CRITICAL: "🔴", Level.WARN: "🟠", Level.OK: "🟢", Level.UNKNOWN: "⚪"}
_SPECIAL = re.compile(r"[\\`*\[\]<|~$]|(?<![^\W_])_|_(?![^\W_])")
_LINKED = re.compile(r"@|#(?=\d)|(?<=www)\.|:(?=//)")
_WORDS = re.compile(r"[\w .%-]{0,20}", re.ASCII)


def render(diagnosis: Diagnosis, *, top: int | None = None) -> str:
    """Return `diagnosis` as GitHub-flavoured Markdown of less than `MOST_BYTES` bytes.

    Args:
        diagnosis: What to write.
        top: Rows of every table; None for `DEFAULT_TOP`. Fewer are shown where the page would
            grow too large.
    """
    wanted = DEFAULT_TOP if top is None else min(top, _MOST_ROWS)
    head, tail = "\n".join(_head(diagnosis)), "\n".join(_tail(diagnosis))
    room = MOST_BYTES - _size(head) - _size(tail) - _NOTE_BYTES
    smaller = [n for n in (10, 5, 2, 0) if n < wanted]
    for rows in (wanted, *smaller):
        sections = _fitting(_sections(diagnosis, rows), room)
        left = sum(f.level is not Level.UNKNOWN for f in diagnosis.findings) - len(sections)
        if not left:
            break
    note = f"*{left} more findings do not fit here; the JSON has them all.*\n" if left else ""
    return "\n".join(part for part in (head, *sections, note, tail) if part) + "\n"


def _fitting(sections: Iterator[str], room: int) -> list[str]:
    """Return the first sections, as many as fit into `room` bytes."""
    fitting: list[str] = []
    for section in sections:
        room -= _size(section) + 1
        if room < 0:
            break
        fitting.append(section)
    return fitting


def _size(text: str) -> int:
    return len(text.encode("utf-8"))


def inline(text: str) -> str:
    """Return one line of text that Markdown shows as it is: no markup, mention or link."""
    plain = shorten(text, _LONGEST).replace("&", "&amp;")
    escaped = _SPECIAL.sub(lambda m: f"\\{m[0]}", plain)
    return _LINKED.sub(lambda m: f"&#{ord(m[0])};", escaped)


def code(text: str, width: int = _CELL) -> str:
    """Return a name as a code span that is safe in a table."""
    safe = shorten(text, width).replace("`", "'").replace("|", "\\|").strip()
    return f"`{safe}`" if safe else ""


def _table(headings: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [headings, ["---:" if r else ":---" for r in right], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _head(diagnosis: Diagnosis) -> Iterator[str]:
    yield "## tracekit diagnosis\n"
    if diagnosis.overview.has_device_activity:
        for line in diagnosis.overview.perspective:
            yield f"**{inline(line)}**\n"
    yield f"**{inline(summary.verdict(diagnosis))}**\n"
    rows = [
        (
            f"{_ICONS[f.level]} {summary.LEVEL_WORDS[f.level]}",
            inline(printable(f.title)),
            inline(summary.stake(f)) or "-",
            inline(f.confidence.label) if f.confidence else "",
        )
        for f in diagnosis.findings[:_MOST_LINES]
        if f.level is not Level.UNKNOWN
    ]
    if rows:
        yield _table(("level", "finding", "at stake", "confidence"), (False,) * 4, rows) + "\n"
    yield "### What was recorded\n"
    yield from (f"- {inline(line)}" for line in _recorded(diagnosis))
    yield ""


def _recorded(diagnosis: Diagnosis) -> Iterator[str]:
    yield from (summary.report_line(r) for r in diagnosis.reports)
    if window := summary.window_line(diagnosis):
        yield f"window: {window}"
    yield from (f"clock of {line}" for line in summary.clock_lines(diagnosis))
    for time in diagnosis.overview.gpus:
        yield f"{time.label}, {summary.gpu_line(diagnosis, time)}"
    if shares := ", ".join(summary.class_shares(diagnosis)):
        yield f"GPU time: {shares}"
    if steps := summary.step_line(diagnosis):
        yield f"steps: {steps}"
    yield from (f"kernel: {line}" for line in summary.kernel_lines(diagnosis))
    words = {Level.CRITICAL: "DATA ERROR: ", Level.WARN: "DATA PARTIAL: "}
    lines = summary.quality_lines(diagnosis)
    yield from (f"{words.get(level, 'data: ')}{text}" for level, text in lines[:_MOST_LINES])
    if not lines:
        yield f"data: {summary.faultless_line(diagnosis)}"


def _sections(diagnosis: Diagnosis, top: int) -> Iterator[str]:
    """One section a finding that is bad, one folded section for all that is fine."""
    bad = [f for f in diagnosis.findings if f.level in (Level.CRITICAL, Level.WARN)]
    for number, finding in enumerate(bad, 1):
        yield "\n".join(_finding(diagnosis, finding, number, top))
    for finding in (f for f in diagnosis.findings if f.level is Level.OK):
        said = f"{summary.analysis_name(finding)}: {printable(finding.title)}"
        body = "\n".join(_body(diagnosis, finding, top)).strip()
        icon = _ICONS[Level.OK]
        yield _folded(f"{icon} {_html(said)}", body) if body else f"- {icon} {inline(said)}\n"


def _finding(diagnosis: Diagnosis, finding: Finding, number: int, top: int) -> Iterator[str]:
    word = summary.LEVEL_WORDS[finding.level]
    yield f"### {number}. {_ICONS[finding.level]} {word}: {inline(printable(finding.title))}\n"
    yield from _body(diagnosis, finding, top)


def _body(diagnosis: Diagnosis, finding: Finding, top: int) -> Iterator[str]:
    for label, text in (
        ("At stake", summary.stake(finding)),
        ("Do", printable(finding.advice)),
        ("Where", summary.place(finding)),
        ("Confidence", summary.confidence(finding)),
    ):
        if text:
            yield f"- **{label}:** {inline(text)}"
    yield from (f"- **It could be wrong:** {inline(printable(c))}" for c in finding.caveats)
    yield ""
    cells = [
        [inline(c) for c in (what, value, interval.strip("[]"), n.removeprefix("n="))]
        for what, value, interval, n in map(summary.metric_cells, finding.metrics)
    ]
    if cells:
        headings = ("number", "value", "95% interval", "n")
        yield _table(headings, (False, True, True, True), cells) + "\n"
    for evidence in finding.evidence:
        found = grid(diagnosis, finding, evidence, top, _CELL) if top else None
        if found is not None:
            yield _folded(_caption(found), _evidence(diagnosis, finding, evidence, found))


def _caption(found: Grid) -> str:
    shown = f"{len(found.rows)} of {found.total:,} rows" if found.rest else f"{found.total} rows"
    return f"{_html(found.title)} ({shown})"


def _evidence(diagnosis: Diagnosis, finding: Finding, evidence: Evidence, found: Grid) -> str:
    lines = [_course(c) for c in courses(diagnosis, finding, evidence)[:_COURSES]]
    rows = [
        [
            cell if right or _WORDS.fullmatch(cell) else code(cell)
            for cell, right in zip(row, found.right, strict=True)
        ]
        for row in found.rows
    ]
    headings = [inline(h) for h in found.headings]
    return "\n".join([*lines, _table(headings, found.right, rows)])


def _course(course: Course) -> str:
    known = [v for v in course.values if v is not None]
    low, high = (min(known), max(known)) if known else (None, None)
    bars = sparkline(course.values)
    ends = f"{quantity(low, course.unit)} to {quantity(high, course.unit)}"
    return f"{inline(course.heading)} over {course.over}: `{bars}` ({ends})\n"


def _folded(caption: str, body: str) -> str:
    return f"<details><summary>{caption}</summary>\n\n{body}\n\n</details>\n"


def _html(text: str) -> str:
    safe = shorten(text, _LONGEST).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKED.sub(lambda m: f"&#{ord(m[0])};", safe)


def _tail(diagnosis: Diagnosis) -> Iterator[str]:
    questions = summary.unjudged(diagnosis)
    if questions:
        yield "### Could not be judged\n"
    for question in questions:
        needs = f" (needs {inline('; '.join(question.reasons))})" if question.reasons else ""
        yield f"- {inline(', '.join(question.analyses))}: {inline(question.title)}{needs}"
    commands = summary.commands_of(questions)
    if commands:
        yield "\nTo record what is missing:\n"
        yield _block("\n".join(commands))
    yield "### Reproduce\n"
    yield _block(_command(diagnosis))
    version = diagnosis.provenance.get("tracekit", "unknown")
    hashes = ", ".join(code(r.sha256, 80) for r in diagnosis.reports)
    yield f"tracekit {inline(str(version))}; input {hashes}."
    if diagnosis.provenance.get("redact", "no") != "no":
        yield "File names, dates and text of the program that may be private were left out."


def _block(text: str) -> str:
    return f"```sh\n{text.replace('```', '')}\n```\n"


def _command(diagnosis: Diagnosis) -> str:
    """Return the command that gives this diagnosis."""
    reports = [f"REPORT{r.index}" for r in diagnosis.reports] if len(diagnosis.reports) > 1 else []
    words = ["tracekit", "analyze", *(reports or ["REPORT"])]
    window = diagnosis.provenance.get("window_ns")
    if window:
        words += ["--window", f"{window[0]}ns:{window[1]}ns"]
    for name, value in sorted(dict(diagnosis.provenance.get("params", {})).items()):
        words += ["--param", f"{name}={value}"]
    return shlex.join(words)
