"""A diagnosis for a terminal: the answer on the first screen, plain when it is piped."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Finding, Level
from tracekit.report import summary
from tracekit.report.evidence import grids
from tracekit.report.lines import DEFAULT_WIDTH, Lines
from tracekit.wording.names import sentence
from tracekit.wording.numbers import duration

__all__ = ["DEFAULT_TOP", "render"]

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
            page.line(sentence(line), "bold")
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
        title, at_stake = sentence(finding.title), summary.stake(finding)
        # Most headlines give the time at stake themselves.
        said = not at_stake or duration(finding.at_stake_ns) in title
        page.title(finding.level, head, title if said else f"{title} (at stake {at_stake})")


def _finding(page: Lines, diagnosis: Diagnosis, finding: Finding, number: int, top: int) -> None:
    page.line()
    head = f"{number}. {summary.LEVEL_WORDS[finding.level]}"
    page.title(finding.level, head, sentence(finding.title))
    page.fields(
        (
            ("At stake", summary.stake(finding)),
            ("Do", sentence(finding.advice)),
            ("Where", summary.place(finding)),
            ("Confidence", summary.confidence(finding)),
        )
    )
    cells = [summary.metric_cells(m) for m in finding.metrics]
    if cells:
        page.line("Numbers, with 95 % intervals where there is one", "dim", 2)
        used = [i for i in range(4) if any(row[i] for row in cells)]
        headings = [("what", "value", "interval", "n")[i] for i in used]
        rows = [[row[i] for i in used] for row in cells]
        page.columns(headings, rows, [i > 0 for i in used], wrap=True)
    for grid in grids(diagnosis, finding, top):
        page.grid(grid)
    if finding.caveats:
        page.line("It could be wrong:", "dim", 2)
        for caveat in finding.caveats:
            page.bullet(sentence(caveat))


def _fine(page: Lines, diagnosis: Diagnosis) -> None:
    fine = [f for f in diagnosis.findings if f.level is Level.OK]
    if not fine:
        return
    page.line()
    page.line("Looked at, nothing to do (-v shows their numbers)", "bold")
    for finding in fine:
        sure = f" [confidence {finding.confidence.label}]" if finding.confidence else ""
        name = summary.analysis_name(finding)
        page.title(Level.OK, "  OK", f"{name}: {sentence(finding.title)}{sure}")


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
