"""What the data lack: lost, invalid and unattributable records, and what the profiler said."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracekit.model.diagnosis import Quality
from tracekit.model.finding import Level
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, queues
from tracekit.views.device.record_faults import shared_gpus, stream_overlaps
from tracekit.views.launches.attribution import attribution
from tracekit.views.launches.graph_replays import GROUP
from tracekit.views.launches.step_ranges import step_ranges
from tracekit.views.nvtx.ranges import range_faults
from tracekit.views.overview.totals import UNCLASSIFIED_WORTH_SAYING, overview
from tracekit.wording.numbers import duration, moment, share, size

__all__ = ["quality", "scrubbed"]

_LOST = re.compile(r"\b(lost|dropped|discarded|overflow\w*|missing)\b", re.IGNORECASE)
_NUMBER = re.compile(r"dropped:?\s*(\d+)", re.IGNORECASE)
_HINTS = (
    (
        re.compile(r"privilege|permission|ERR_NVGPUCTRPERM|CAP_SYS_ADMIN", re.IGNORECASE),
        "GPU counters need permission: run as root, or load the driver with"
        " NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        re.compile(r"in use|already.*(use|subscrib)|multiple.*subscrib", re.IGNORECASE),
        "another tool holds the counters or CUPTI: stop DCGM monitoring (dcgmi profile --pause) or"
        " the framework's own profiler and record again",
    ),
    (
        re.compile(r"CUPTI", re.IGNORECASE),
        "a second CUPTI user (PyTorch or TensorFlow profiler) leaves one of the two traces empty:"
        " switch it off and record again",
    ),
)
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[/\\][^\s:'\"]+")
_RANK = {Level.CRITICAL: 0, Level.WARN: 1, Level.UNKNOWN: 2, Level.OK: 3}
DEEP = 1_000
"""Nesting depth that only ranges that are never closed reach."""
SEVERITY_WARNING, SEVERITY_ERROR = 2, 3


def scrubbed(text: str) -> str:
    """Return a profiler's message on one line without file paths."""
    return _PATH.sub("<path>", " ".join(text.split()))


@view
def quality(trace: Trace) -> tuple[Quality, ...]:
    """Return everything that makes the answer partial, worst first."""
    lines = [
        *_cut(trace),
        *_diagnostics(trace),
        *_dropped(trace),
        *_names(trace),
        *_nvtx(trace),
        *_launches(trace),
        *_steps(trace),
        *_device(trace),
    ]
    lines += [Quality(Level.OK, n) for n in sorted({n for r in trace.reports for n in r.notes})]
    return tuple(sorted(lines, key=lambda q: _RANK[q.level]))


def _cut(trace: Trace) -> Iterator[Quality]:
    """Say that only the beginning of the run was read because the rest did not fit."""
    if trace.memory.cut_ns is not None:
        low, high = trace.memory.cut_ns
        allowed_bytes = trace.memory.allowed_bytes or 0
        text = (
            f"only {moment(low)} to {moment(high)} was analysed: the whole run does not fit into"
            f" {size(allowed_bytes)} of memory"
        )
        yield Quality(Level.WARN, text, hint="allow more with --memory, or choose a --window")


def _diagnostics(trace: Trace) -> Iterator[Quality]:
    rows = trace.frame("diagnostics").drop_nulls("text")
    counted = rows.group_by("severity", "text").len().sort("severity", "text", descending=True)
    vague = 0
    for severity, text, n in counted.iter_rows():
        said, dropped = scrubbed(text), _NUMBER.search(text)
        hint = next((h for pattern, h in _HINTS if pattern.search(text)), "")
        if (severity or 0) >= SEVERITY_ERROR:
            level = Level.CRITICAL if _LOST.search(text) else Level.WARN
            yield Quality(level, f"the profiler reported an error: {said}", n, hint)
        elif dropped and int(dropped[1]):
            yield Quality(Level.OK, f"the profiler dropped records: {said}", int(dropped[1]))
        elif severity == SEVERITY_WARNING and (hint and _HINTS[-1][1] != hint):
            yield Quality(Level.WARN, f"the profiler warned: {said}", n, hint)
        elif severity == SEVERITY_WARNING and _LOST.search(text):
            yield Quality(Level.WARN, f"the profiler warned: {said}", n)
        elif severity == SEVERITY_WARNING:
            vague += n
    if vague:
        yield Quality(
            Level.OK,
            f"{vague} general warnings of the profiler, about no record in particular",
            vague,
        )


def _dropped(trace: Trace) -> Iterator[Quality]:
    for report in trace.reports:
        for table, reasons in sorted(report.dropped.items()):
            for reason, n in sorted(reasons.items()):
                harmless = reason in {"zero length", "sampled before the capture"}
                level = Level.OK if harmless else Level.WARN
                what = "sampling times" if table == "gpu_metrics" else f"{table} rows"
                where = f" of {report.name}" if len(trace.reports) > 1 else ""
                yield Quality(level, f"{n} {what}{where} left out: {reason}", n)


def _names(trace: Trace) -> Iterator[Quality]:
    unclassified = overview(trace).unclassified_frac
    if unclassified is not None and unclassified > UNCLASSIFIED_WORTH_SAYING:
        text = f"{share(unclassified)} of kernel time is unclassified"
        yield Quality(Level.WARN, f"{text}: shares by class are lower bounds")
    n = range_faults(trace).dangling
    if n:
        yield Quality(Level.WARN, f"{n} NVTX rows name a string that the file does not hold", n)


def _nvtx(trace: Trace) -> Iterator[Quality]:
    found = range_faults(trace)
    if found.depth >= DEEP:
        deepest = found.depth + 1
        text = f"range depth grows without bound ({deepest:,}): ranges are pushed, never popped"
        yield Quality(Level.WARN, text, deepest)
    if found.never_closed:
        n = found.never_closed
        text = f"{n} NVTX ranges never closed; taken to last until the end of the capture"
        yield Quality(Level.OK, text, n)
    if found.inverted:
        text = f"{found.inverted} NVTX ranges end before they start; left out"
        yield Quality(Level.WARN, text, found.inverted)
    if found.repeated:
        text = f"{found.repeated} NVTX ranges are exact duplicates of another"
        yield Quality(Level.OK, text, found.repeated)


def _launches(trace: Trace) -> Iterator[Quality]:
    work = activity(trace)
    if work.is_empty():
        return
    n = overview(trace).n_with_launch
    missing = work.height - n
    if missing and trace.has("runtime"):
        text = f"launch known for n={n} of {work.height} device records; the rest have no host call"
        yield Quality(Level.OK, text, missing)
    known = queues(trace)
    if trace.has("kernels") and known["pid"].null_count() == known.height:
        yield Quality(
            Level.OK, "device records name no process: host calls matched by correlation id alone"
        )
    by_other = attribution(trace)["reason"] == "other_thread"
    others = int(by_other.sum())
    if others:
        length = (work["end_ns"] - work["start_ns"]).to_numpy()
        time_frac = length[by_other.to_numpy()].sum() / (length.sum() or 1)
        text = (
            f"{others} device records ({share(time_frac)} of device time) are unattributed:"
            " launched by another thread than the one with the open range"
        )
        yield Quality(Level.OK, text, others)


def _steps(trace: Trace) -> Iterator[Quality]:
    """Say that steps are a guess."""
    source = step_ranges(trace)["source"]
    replays = int((source == GROUP).sum())
    if replays:
        text = f"no range marks a step: {replays} replays of CUDA graphs are taken for steps"
        hint = "mark steps with NVTX ranges such as 'step 12' to be sure"
        yield Quality(Level.OK, text, replays, hint)
    elif (functions := int((source == "function").sum())) > 0:
        text = f"no range names a step: {functions} ranges of a function that runs once a step are"
        yield Quality(Level.OK, f"{text} taken for steps", functions)


def _device(trace: Trace) -> Iterator[Quality]:
    """Say what is wrong with device records, and which GPUs processes share."""
    if incomplete := overview(trace).incomplete:
        hint = "record again: another profiler, missing permission or a full buffer loses records"
        yield Quality(Level.WARN, incomplete, hint=hint)
    for report in trace.reports:
        for table, n in sorted(report.unread.items()):
            text = f"{table}: {n} rows of device work in a table that is not read"
            yield Quality(Level.WARN, f"{text}; busy time is a lower bound", n)
    launched = attribution(trace)["launch_start_ns"]
    inverted = int((activity(trace)["start_ns"] < launched).sum())
    if inverted:
        which = _records(inverted, "begin")
        text = f"{which} before the call that launched them: clocks differ"
        yield Quality(Level.WARN, f"{text}, and times between host and device are wrong", inverted)
    over = stream_overlaps(trace)
    if over.n:
        text = (
            f"{_records(over.n, 'overlap')} more than the neighbour on one stream, by"
            f" {duration(over.time_ns)}: damaged durations; busy time and shares are too large"
        )
        yield Quality(Level.WARN, text, over.n)
    for shared in shared_gpus(trace):
        pids = ", ".join(map(str, shared.pids))
        text = f"{len(shared.pids)} processes share GPU {shared.gpu} (pids {pids})"
        if not shared.both_ns:
            yield Quality(Level.OK, f"{text}, never at the same time", len(shared.pids))
            continue
        text += (
            f" and have work on it at once for {duration(shared.both_ns)}: they are time-sliced,"
            " or run under MPS, and kernels take longer than alone"
        )
        yield Quality(Level.WARN, text, len(shared.pids))


def _records(n: int, verb: str) -> str:
    return f"1 device record {verb}s" if n == 1 else f"{n:,} device records {verb}"
