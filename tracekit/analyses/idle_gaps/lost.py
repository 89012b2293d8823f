"""What a recording that lost device work, or holds hardly any, can and cannot say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import count, duration, share

__all__ = ["endings", "incomplete", "nothing_recorded"]

Row = dict[str, Any]
LOST_FRAC = 0.10
"""More launches without device work than this are no accident of the capture's edges."""
HANG_NS = 100_000_000
HANG_CAPTURE_FRAC, HANG_CALL_FRAC = 0.10, 0.50
HARDLY_BUSY_FRAC = 0.001
_WORK = ("kernels", "memcpy", "memset", "graph_trace")


def nothing_recorded(frames: Frames, summary: Row) -> Finding | None:
    """Return a finding that there is no device work, or hardly any; None where there is some."""
    capture = summary["capture_ns"]
    n_work = int(frames["gpus"]["n_work"].sum())
    if frames["gpus"].is_empty():
        return _no_records(summary)
    spans = frames["gpus"]["span_ns"].max() or 0
    if capture and max(summary["busy_ns"], spans) < HARDLY_BUSY_FRAC * capture:
        return Finding(
            id="idle_gaps/no-work",
            level=Level.UNKNOWN,
            title=(
                f"no GPU work to speak of: {duration(summary['busy_ns'])} in a capture of"
                f" {duration(capture)}"
            ),
            metrics=(
                Metric("busy_ns", summary["busy_ns"], "ns", n=n_work, doc="device work"),
                Metric("capture_ns", capture, "ns"),
            ),
            advice="Record a part of the run in which the GPU is used.",
            missing=(Missing("device work in the recorded part of the run"),),
        )
    return None


def _no_records(summary: Row) -> Finding:
    n = summary["n_launches"]
    if n == 0:
        return Finding(
            id="idle_gaps/no-work",
            level=Level.UNKNOWN,
            title="not judged: no device work was recorded",
            missing=(Missing("kernels, copies or graphs of a GPU", _WORK),),
        )
    return Finding(
        id="idle_gaps/lost",
        level=Level.UNKNOWN,
        title=(
            f"device records were lost: {count(n)} launches were called (host time"
            f" {duration(summary['host_call_ns'])} in launches and copies), and no device work was"
            " recorded"
        ),
        metrics=(
            Metric("n_launches", n, doc="launch calls on the host"),
            Metric("host_call_ns", summary["host_call_ns"], "ns", doc="in launches and copies"),
        ),
        advice=(
            "Record again: another profiler may have held CUPTI, permission may have been missing,"
            " or the process ended before its records were written."
        ),
        missing=(Missing("kernels, copies or graphs of a GPU", _WORK),),
    )


def incomplete(summary: Row) -> Iterator[Finding]:
    """Return a finding that many launches have no device work, if so."""
    n, lost, graphs = (summary[c] for c in ("n_launches", "n_without_work", "n_graph_without_work"))
    if not n or lost <= LOST_FRAC * n:
        return
    what = [f"{count(graphs)} graph launches"] if graphs else []
    what += [f"{count(lost - graphs)} kernel launches"] if lost > graphs else []
    yield Finding(
        id="idle_gaps/incomplete",
        level=Level.UNKNOWN,
        title=(
            f"device activity incomplete: {' and '.join(what)} without device rows"
            f" ({share(lost / n)} of all): idle time cannot be separated from lost work"
        ),
        metrics=(
            Metric("n_without_work", lost, doc="launches of which no device work was recorded"),
            Metric("n_launches", n, doc="launch calls outside of stream captures"),
        ),
        advice="Record again with --cuda-graph-trace=node, and let the process end normally.",
        missing=(Missing("what the launches ran", ("kernels", "graph_trace")),),
        evidence=(Evidence("summary", title="The capture"),),
    )


def endings(summary: Row) -> Iterator[Finding]:
    """Return a finding that the capture ends in a wait for work that never ended, if so."""
    after, capture, call = summary["after_ns"], summary["capture_ns"], summary["last_call_ns"]
    whole = max(capture or 0, after)
    if call < HANG_NS or call < HANG_CALL_FRAC * after or after < HANG_CAPTURE_FRAC * whole:
        return
    yield Finding(
        id="idle_gaps/hang",
        level=Level.WARN,
        title=(
            f"the host waits {duration(call)} in {summary['last_call']} after the last recorded"
            f" device work ({share(after / whole)} of the capture): work that did not end, or was"
            " not recorded"
        ),
        metrics=(
            Metric("last_call_ns", call, "ns", doc=f"in {summary['last_call']}"),
            Metric("after_ns", after, "ns", doc="last device work to the end of the capture"),
            Metric("capture_ns", capture, "ns"),
        ),
        at_stake_ns=call,
        at_stake_frac=call / whole,
        at_stake_of="capture",
        confidence=Confidence(why="the time of the call is measured; what it waits for is not"),
        advice=(
            "Look for a kernel or collective that never ends (a rank that did not come, a deadlock"
            " between streams): device work that has not finished leaves no record."
        ),
        caveats=("A process that only keeps its context open after its work looks alike.",),
        evidence=(Evidence("summary", title="The capture"),),
    )
