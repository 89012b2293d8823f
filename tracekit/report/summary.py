"""What every report says, in words, whatever the format: no layout here, only sentences.

Every string returned is safe to print: names from the trace have their control characters spelled
out. A format still escapes its own markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from tracekit.model.diagnosis import Diagnosis, GpuTime
from tracekit.model.finding import Finding, Level, Metric
from tracekit.model.inputs import Report
from tracekit.wording.names import printable, short_name, shorten
from tracekit.wording.numbers import (
    bounds,
    count,
    duration,
    moment,
    quantity,
    share,
    unit_of_column,
)

__all__ = [
    "LEVEL_WORDS",
    "Unjudged",
    "analysis_name",
    "class_shares",
    "clock_lines",
    "commands_of",
    "confidence",
    "faultless_line",
    "gpu_line",
    "kernel_lines",
    "metric_cells",
    "place",
    "quality_lines",
    "report_line",
    "stake",
    "step_line",
    "tally",
    "unjudged",
    "verdict",
    "window_line",
]

LEVEL_WORDS = {
    Level.CRITICAL: "CRITICAL",
    Level.WARN: "WARNING",
    Level.OK: "OK",
    Level.UNKNOWN: "UNKNOWN",
}
_NAME = 60
_SMALL_CLASS = 0.005
_FAR_NS = 1 << 61
"""No session lasts so long: a window without an end."""
_UNCLASSIFIED = "unclassified"


def report_line(report: Report) -> str:
    """Return ``file: what wrote it, schema, length`` of one input."""
    product = printable(report.product) or "written by an unknown version"
    schema = report.schema_version
    parts = [product]
    if report.has_timeline:
        parts.append(f"schema {printable(schema)}" if schema else "schema version unknown")
    if report.duration_ns is not None:
        parts.append(f"capture of {duration(report.duration_ns)}")
    return f"{shorten(report.name, _NAME)}: {', '.join(parts)}"


def verdict(diagnosis: Diagnosis) -> str:
    """Return the answer in one sentence."""
    if diagnosis.reports and not any(r.has_timeline for r in diagnosis.reports):
        return "No timeline given: what Nsight Compute counted stands alone."
    if not diagnosis.overview.has_device_activity:
        return "No accelerator activity recorded: nothing about a GPU can be said."
    if diagnosis.worst in (Level.CRITICAL, Level.WARN):
        return f"Findings: {tally(diagnosis)}."
    seen = diagnosis.overview
    if diagnosis.worst is Level.OK and (seen.incomplete or seen.nearly_empty or seen.stalled_ns):
        seen_part = "in what was recorded, which is not the whole run"
        return f"No problem found {seen_part}: {tally(diagnosis)}."
    if diagnosis.worst is Level.OK:
        said = [f"No problem found by the analyses that could judge: {tally(diagnosis)}."]
        return " ".join([*_limits(diagnosis), *said])
    return "Nothing could be judged from this recording."


def _limits(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield that a GPU spends most of its time at a limit of the hardware: nothing is wrong there.

    Times are those of the frames of `kernel_floor`.
    """
    frames = diagnosis.frames.get("kernel_floor", {})
    if not {"gpus", "classes"} <= frames.keys():
        return
    for gpu, span_ns in frames["gpus"].select("gpu", "span_ns").iter_rows():
        own = frames["classes"].filter(pl.col("gpu") == gpu)
        limited = own.filter(pl.col("verdict").str.starts_with("at the "))
        if 2 * int(limited["time_ns"].sum()) > span_ns > 0:
            first = limited.row(0, named=True)
            used = max(first["dram_frac"] or 0.0, first["tensor_frac"] or 0.0)
            yield f"GPU {gpu} is {first['verdict']}, {share(used)} of peak."


def tally(diagnosis: Diagnosis) -> str:
    """Return how many findings there are of each level: ``1 critical, 2 fine``."""
    words = {
        Level.CRITICAL: ("critical", "critical"),
        Level.WARN: ("warning", "warnings"),
        Level.OK: ("fine", "fine"),
        Level.UNKNOWN: ("not judged", "not judged"),
    }
    counts = {level: sum(f.level is level for f in diagnosis.findings) for level in words}
    return ", ".join(f"{n} {words[lv][n != 1]}" for lv, n in counts.items() if n) or "no finding"


def gpu_line(diagnosis: Diagnosis, time: GpuTime) -> str:
    """Return how one GPU spent the time from first to last device activity."""
    names: dict[int | None, str] = {g.index: printable(g.name) for g in diagnosis.gpus}
    if diagnosis.overview.nearly_empty:
        length = duration(diagnosis.overview.capture_ns)
        name = printable(names.get(time.gpu, ""))
        work = f"{duration(time.busy_ns)} of work in a capture of {length}"
        return f"{name + ': ' if name else ''}{work}"
    idle = f"idle {_part(time.idle_ns, time.span_ns)}"
    if diagnosis.overview.incomplete:
        idle = "idle not known, device records are missing"
    elif time.idle_in_profiler_ns:
        idle += f" of which the profiler itself {duration(time.idle_in_profiler_ns)}"
    busy = f"busy {_part(time.busy_ns, time.span_ns)}"
    if diagnosis.overview.incomplete:
        busy = f"busy at least {duration(time.busy_ns)}"
    parts = [f"{busy} of {duration(time.span_ns)}", idle]
    if time.opaque_ns:
        parts.append(
            f"opaque graphs {share(time.opaque_ns / time.busy_ns)} of busy "
            f"({duration(time.opaque_ns)}): what ran inside was not recorded"
        )
    else:
        parts.append("no opaque graphs")
    if communication := _communication(diagnosis, time):
        parts.append(communication)
    name = names.get(time.gpu, "")
    return f"{name + ': ' if name else ''}{', '.join(parts)}"


def _communication(diagnosis: Diagnosis, time: GpuTime) -> str:
    """Communication is a lower bound once part of the work is invisible."""
    if not time.busy_ns or not (time.comm_ns or time.opaque_ns):
        return ""
    low = share(time.comm_ns / time.busy_ns)
    if not time.opaque_ns:
        waiting = _waiting(diagnosis, time)
        return f"communication {low} of busy ({duration(time.comm_ns)}, {waiting})"
    high = share(min(1.0, (time.comm_ns + time.opaque_ns) / time.busy_ns))
    return f"communication at least {low} of {duration(time.busy_ns)} busy; up to {high}"


def _waiting(diagnosis: Diagnosis, time: GpuTime) -> str:
    """What communication of a GPU consists of, as far as an analysis knows it."""
    parts = [p for p in diagnosis.time_parts if p.gpu == time.gpu]
    if not parts:
        return "waiting for other ranks included"
    least = (
        ("at least " if p.is_least else "", min(time.comm_ns, p.time_ns), p.label) for p in parts
    )
    return "of which " + ", ".join(f"{word}{duration(ns)} {label}" for word, ns, label in least)


def _part(part_ns: int, whole_ns: int) -> str:
    if whole_ns <= 0 or not part_ns:
        return duration(part_ns)
    return f"{share(part_ns / whole_ns)} ({duration(part_ns)})"


def class_shares(diagnosis: Diagnosis, limit: int = 6) -> tuple[str, ...]:
    """Return device time by class, largest first, the unclassified share always among them.

    All shares are of one time, the summed durations of all device work.
    """
    named = [c for c in diagnosis.overview.classes if c.kind != _UNCLASSIFIED]
    large = [c for c in named[:limit] if c.frac >= _SMALL_CLASS]
    out = [f"{printable(c.kind)} {share(c.frac)}" for c in large]
    if rest := named[len(large) :]:
        kinds = "1 more kind" if len(rest) == 1 else f"{len(rest)} more kinds"
        out.append(f"{kinds} {share(sum(c.frac for c in rest))}")
    if diagnosis.overview.unclassified_frac is not None:
        unclassified = [c.frac for c in diagnosis.overview.classes if c.kind == _UNCLASSIFIED]
        out.append(f"{_UNCLASSIFIED} {share(sum(unclassified))}")
    return tuple(out)


def kernel_lines(diagnosis: Diagnosis, limit: int = 3) -> tuple[str, ...]:
    """Return the kernels that take longest, whatever their class; nothing where none were listed.

    Shares are of the same time as those of classes: the durations of all device work.
    """
    listed = diagnosis.frames.get("kernel_floor", {}).get("top_kernels")
    whole_ns = sum(c.time_ns for c in diagnosis.overview.classes)
    if listed is None or listed.is_empty() or not whole_ns:
        return ()
    by_name = listed.group_by("name", "kind", maintain_order=True)
    rows = by_name.agg(pl.col("n").sum(), pl.col("time_ns").sum(), pl.col("median_ns").median())
    rows = rows.sort(["time_ns", "name"], descending=[True, False]).head(limit)
    return tuple(
        f"{short_name(row['name'], _NAME)}: {share(row['time_ns'] / whole_ns)} of GPU time"
        f" ({duration(row['time_ns'])}), {count(row['n'])}x, median {duration(row['median_ns'])}"
        f" ({printable(row['kind'])})"
        for row in rows.iter_rows(named=True)
    )


def step_line(diagnosis: Diagnosis) -> str:
    """Return the step groups with their count and median GPU span, "" without steps."""
    groups = diagnosis.overview.step_groups
    parts = [
        f"{shorten(label, 40) or 'step'} x{n} (median {duration(median)})"
        for label, (n, median) in list(groups.items())[:4]
    ]
    if len(groups) > len(parts):
        parts.append(f"{len(groups) - len(parts)} more groups")
    return ", ".join(parts)


def quality_lines(diagnosis: Diagnosis) -> tuple[tuple[Level, str], ...]:
    """Return (level, sentence) for everything that the data lack, worst first."""
    lines = [
        (Level.CRITICAL, f"{printable(n)} left out: {printable(why)}")
        for n, why in diagnosis.unreadable.items()
    ]
    for item in diagnosis.quality:
        # A count that the sentence already states is not said twice.
        stated = (
            item.count is None or count(item.count) in item.text or str(item.count) in item.text
        )
        text = printable(item.text) + ("" if stated else f" ({count(item.count)})")
        lines.append((item.level, f"{text}; {printable(item.hint)}" if item.hint else text))
    return tuple(lines)


def faultless_line(diagnosis: Diagnosis) -> str:
    """Return what to say of data of which no fault is known."""
    silent = any(r.has_timeline and "diagnostics" not in r.present for r in diagnosis.reports)
    if silent:
        return "no invalid record found; whether the profiler lost any is not in this export"
    return "no lost, dropped or invalid record found"


def window_line(diagnosis: Diagnosis) -> str:
    """Return to which part of the session the user confined the answer; "" for all of it."""
    window = diagnosis.provenance.get("window_ns")
    if not window:
        return ""
    low, high = window
    until = "the end" if high > _FAR_NS else moment(high)
    return (
        f"only what touches {moment(low)} to {until} of the session; work that reaches over these"
        " ends counts whole, and steps may be cut short"
    )


def clock_lines(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return how the clocks of several reports were brought together; nothing for one report."""
    if len(diagnosis.alignment) < 2:
        return ()
    names = {r.index: shorten(r.name, _NAME) for r in diagnosis.reports}
    lines = []
    for a in diagnosis.alignment:
        spread = "" if a.mad_ns is None else f", spread {duration(a.mad_ns)} (MAD, n={a.n})"
        state = f"aligned by {a.method}" if a.aligned else f"NOT aligned ({a.method})"
        if a.offset_ns == 0 and a.n == 0 and a.aligned:
            state = "the reference"
        lines.append(f"{names.get(a.report, a.report)}: {state}{spread}")
    return tuple(lines)


def stake(finding: Finding) -> str:
    """Return the time at stake with its share and denominator, "" when not known."""
    if finding.at_stake_ns is None:
        return ""
    part = ""
    if finding.at_stake_frac is not None:
        of = f" of {finding.at_stake_of}" if finding.at_stake_of else ""
        part = f", {share(finding.at_stake_frac)}{printable(of)}"
    return f"{duration(finding.at_stake_ns)}{part}"


def confidence(finding: Finding) -> str:
    """Return ``medium (0.60); limited by: why``, "" without a confidence."""
    sure = finding.confidence
    if sure is None:
        return ""
    text = f"{sure.label} ({sure.value:.2f})"
    if sure.why:
        text += f"; limited by: {printable(sure.why)}"
    if finding.downgraded_from is not None:
        text += f"; would be {finding.downgraded_from} if we were surer"
    return text


def metric_cells(metric: Metric) -> tuple[str, str, str, str]:
    """Return (what, value, interval, n) of one number."""
    what, doc = printable(unit_of_column(metric.name)[0]), printable(metric.doc)
    if doc:
        what = doc if doc.lower().startswith(what.lower()) else f"{what}: {doc}"
    value = printable(quantity(metric.value, metric.unit))
    if metric.value is None:
        value = "not measured"
    n = "" if metric.n is None else f"n={count(metric.n)}"
    return what, value, bounds(metric.lo, metric.hi, metric.unit), n


def place(finding: Finding) -> str:
    """Return what a finding is about and its worst window, "" for the whole trace."""
    parts = [f"{printable(k)} {shorten(v, 40)}" for k, v in finding.scope]
    if finding.t_range_ns is not None:
        start, end = finding.t_range_ns
        parts.append(
            f"worst at {moment(start)} of the session, {duration(end - start)} long"
            f" (--window {start}ns:{end}ns)"
        )
    return ", ".join(parts)


class Unjudged(NamedTuple):
    """Questions that the recording cannot answer, for one reason.

    Attributes:
        analyses: Names of the analyses that would answer.
        title: Why they do not.
        reasons: What is missing.
        commands: Commands that record it.
    """

    analyses: tuple[str, ...]
    title: str
    reasons: tuple[str, ...]
    commands: tuple[str, ...]


def unjudged(diagnosis: Diagnosis) -> tuple[Unjudged, ...]:
    """Return every question that could not be judged, same reasons together."""
    found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for finding in diagnosis.findings:
        if finding.level is Level.UNKNOWN:
            commands = dict.fromkeys(printable(m.command) for m in finding.missing if m.command)
            reasons = dict.fromkeys(printable(m.what) for m in finding.missing if m.what)
            key = (printable(finding.title), tuple(reasons), tuple(commands))
            found.setdefault(key, []).append(analysis_name(finding))
    return tuple(Unjudged(tuple(dict.fromkeys(names)), *key) for key, names in found.items())


def commands_of(questions: Iterable[Unjudged]) -> tuple[str, ...]:
    """Return the commands to run, without those whose every word another one has too."""
    commands = tuple(dict.fromkeys(c for q in questions for c in q.commands))
    words = {c: set(c.split()) for c in commands}
    return tuple(c for c in commands if not any(words[c] < words[o] for o in commands))


def analysis_name(finding: Finding) -> str:
    """Return the name of the analysis that made `finding`, safe to print."""
    return printable(finding.id.partition("/")[0])
