"""Host calls that put work on a device of which no record exists."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import ApiKind
from tracekit.trace import Trace, view
from tracekit.views.device.activity import queues
from tracekit.views.launches.attribution import launching_calls
from tracekit.views.launches.call_names import CallNames, call_names

__all__ = ["UnseenWork", "unseen_work"]

_THREAD = ["report", "pid", "tid"]
_BEGIN = frozenset(
    {"cudaStreamBeginCapture", "cuStreamBeginCapture", "cudaStreamBeginCaptureToGraph"}
)
_END = frozenset({"cudaStreamEndCapture", "cuStreamEndCapture"})


class UnseenWork(NamedTuple):
    """Launches and copies without a device record.

    Attributes:
        calls: Calls of each kind that should have left a device record.
        unseen: Those of them that left none.
        time_ns: Host time of the latter, ns.
    """

    calls: dict[ApiKind, int]
    unseen: dict[ApiKind, int]
    time_ns: dict[ApiKind, int]


@view
def unseen_work(trace: Trace) -> UnseenWork | None:
    """Count the calls that launch or copy and have no device record.

    Calls made while a CUDA graph is captured launch nothing and are left out, and so are those
    before the window that the answer is confined to.

    Returns:
        The counts; None where records cannot be matched with calls, because they name no process.
    """
    calls, names = trace.frame("runtime"), call_names(trace)
    known = queues(trace)
    if known.height and known["pid"].null_count() == known.height:
        return None
    usable = pl.repeat(True, calls.height, dtype=pl.Boolean, eager=True)
    if known.height:  # a call without an id cannot be matched with what was recorded
        usable = calls["correlation"].fill_null(0) != 0
    if trace.window_ns is not None:
        usable &= calls["start_ns"] >= trace.window_ns[0]
    live = usable.to_numpy() & ~_captured(calls, names)
    launched = launching_calls(trace)
    found = UnseenWork({}, {}, {})
    for kind in (ApiKind.KERNEL_LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.MEMCPY):
        ids = names.ids(kind)
        if not ids:
            continue
        own = np.flatnonzero(calls["name_id"].is_in(ids).fill_null(value=False).to_numpy() & live)
        lost = own[~launched[own]]
        length = calls["end_ns"].gather(lost) - calls["start_ns"].gather(lost)
        found.calls[kind], found.unseen[kind] = own.size, lost.size
        found.time_ns[kind] = int(length.sum())
    return found


def _captured(calls: pl.DataFrame, names: CallNames) -> NDArray[np.bool_]:
    """Which calls were made between the begin and the end of a capture on their thread."""
    inside = np.zeros(calls.height, np.bool_)
    begin, end = names.ids_of(_BEGIN), names.ids_of(_END)
    if not begin:
        return inside
    edges = calls.select(*_THREAD, "start_ns", "end_ns", "name_id").filter(
        pl.col("name_id").is_in([*begin, *end])
    )
    for key, own in edges.group_by(_THREAD):
        here = pl.all_horizontal(
            pl.col(c).eq_missing(pl.lit(v, calls.schema[c]))
            for c, v in zip(_THREAD, key, strict=True)
        )
        rows = calls.select(here.arg_true()).to_series().to_numpy()
        times = calls["start_ns"].to_numpy()[rows]
        opens = np.sort(own.filter(pl.col("name_id").is_in(begin))["start_ns"].to_numpy())
        closes = np.sort(own.filter(pl.col("name_id").is_in(end))["start_ns"].to_numpy())
        depth = np.searchsorted(opens, times, "left") - np.searchsorted(closes, times, "left")
        inside[rows] = depth > 0
    return inside
