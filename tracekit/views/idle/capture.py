"""What the capture holds beside device work: its length, and how it ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.model.kernels.roles import CallRole
from tracekit.trace import Trace, view
from tracekit.numerics import intervals
from tracekit.views.device.activity import activity, activity_span, queues
from tracekit.views.idle.host import call_names

__all__ = ["Ending", "ending"]


class Ending(NamedTuple):
    """How a capture ends, and what the host did in it.

    Attributes:
        capture_ns: Length of the longest report; None when unknown.
        busy_ns: Device work of all GPUs, overlaps counted once.
        after_ns: From the last device work to the end of its report's capture.
        call: Name of the call that waits longest after the last device work, "" without one.
        call_ns: How long it waits after that.
        host_call_ns: Host time in calls that launch or copy.
    """

    capture_ns: int | None
    busy_ns: int
    after_ns: int
    call: str
    call_ns: int
    host_call_ns: int


@view("runtime", of=[activity, activity_span, call_names, queues])
def ending(trace: Trace) -> Ending:
    """Return how the capture ends."""
    work, rows, names = activity(trace), trace.frame("runtime"), call_names(trace)
    busy = intervals.total_ns(*intervals.union(work["start_ns"].to_numpy(), work["end_ns"].to_numpy()))
    roles = names.roles()[names.number]
    start, end = (rows[c].to_numpy() for c in ("start_ns", "end_ns"))
    launching = (roles & CallRole.ENQUEUES) > 0
    host_call_ns = int((end[launching] - start[launching]).sum())
    durations = [r.duration_ns for r in trace.reports if r.duration_ns]
    span = activity_span(trace)
    last_calls = int(end.max()) if end.size else 0
    capture = max(durations) if durations else None
    after, call, call_ns = 0, "", 0
    if span is not None:
        after = max(max(capture or 0, last_calls) - span[1], 0)
        waits = np.flatnonzero(((roles & CallRole.WAITS) > 0) & (end > span[1]))
        if waits.size:
            length = end[waits] - np.maximum(start[waits], span[1])
            longest = waits[int(np.argmax(length))]
            call, call_ns = names.table["name"][int(names.number[longest])], int(length.max())
    return Ending(capture, busy, after, call, call_ns, host_call_ns)
