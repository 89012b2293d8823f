"""What the capture holds in addition to device work: its length, and how it ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tracekit.model.kernels.roles import CallRole
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity_span
from tracekit.views.idle.copies import device_time
from tracekit.views.idle.host import call_names

__all__ = ["Ending", "ending"]


class Ending(NamedTuple):
    """How a capture ends, and what the host did in it.

    Attributes:
        capture_ns: Length of the longest report; None when unknown.
        busy_ns: Time in which GPUs worked, added up over them.
        after_ns: From the last device work to the end of its report's capture.
        call: Name of the call that waits longest after the last device work, "" without one.
        call_ns: How long it waits after that.
        host_call_ns: Host time in calls that launch or copy, of a capture without device work.
    """

    capture_ns: int | None
    busy_ns: int
    after_ns: int
    call: str
    call_ns: int
    host_call_ns: int | None


@view
def ending(trace: Trace) -> Ending:
    """Return how the capture ends."""
    rows, names = trace.frame("runtime"), call_names(trace)
    start, end = (rows[c].to_numpy() for c in ("start_ns", "end_ns"))
    roles = names.roles()
    durations = [r.duration_ns for r in trace.reports if r.duration_ns]
    span = activity_span(trace)
    last_calls = int(end.max()) if end.size else 0
    capture = max(durations) if durations else None
    after, call, call_ns = 0, "", 0
    if span is not None:
        after = max(max(capture or 0, last_calls) - span[1], 0)
        waits = np.flatnonzero(end > span[1])
        waits = waits[(roles[names.number[waits]] & CallRole.WAITS) > 0]
        if waits.size:
            length = end[waits] - np.maximum(start[waits], span[1])
            longest = waits[int(np.argmax(length))]
            call, call_ns = names.table["name"][int(names.number[longest])], int(length.max())
    busy_ns = sum(time.busy_ns for time in device_time(trace))
    host_call_ns = None
    if span is None:
        launching = ((roles & CallRole.ENQUEUES) > 0)[names.number]
        host_call_ns = int((end[launching] - start[launching]).sum())
    return Ending(capture, busy_ns, after, call, call_ns, host_call_ns)
