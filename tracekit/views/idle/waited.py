"""Work whose stream was made to wait for an event."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.cupti import STREAM_WAIT_EVENT
from tracekit.numerics.idle.gaps import before_in_queue
from tracekit.trace import Trace
from tracekit.views.device.activity import activity, device_ids, queues

__all__ = ["waited"]

_QUEUE = ["report", "pid", "context", "stream"]
_CELL = 1 << 33
"""More than there are correlation ids."""


def waited(trace: Trace, rows: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return whether a row's stream was made to wait for an event since its operation before.

    Args:
        trace: Has the table ``sync``.
        rows: uint32[k], rows of `activity`, ascending within a GPU.

    Returns:
        bool[k].
    """
    waits = trace.frame("sync").filter(pl.col("sync_type") == STREAM_WAIT_EVENT)
    known = queues(trace).with_row_index("queue").unique(_QUEUE, keep="first")
    waits = waits.join(known, on=_QUEUE, how="inner", nulls_equal=True)
    if waits.is_empty():
        return np.zeros(rows.size, np.bool_)
    cells = waits["queue"].cast(pl.Int64) * _CELL + waits["correlation"].cast(pl.Int64) + 1
    at = np.sort(cells.drop_nulls().to_numpy())
    queue = activity(trace)["queue"].to_numpy()
    correlation = device_ids(trace).correlation.cast(pl.Int64).fill_null(-1).to_numpy()
    before = before_in_queue(queue, queues(trace).height, rows)
    since = np.where(before >= 0, correlation[before], -1)
    base = queue[rows].astype(np.int64) * _CELL
    first = np.minimum(np.searchsorted(at, base + since + 1, side="right"), at.size - 1)
    found: NDArray[np.bool_] = (at[first] > base + since + 1) & (
        at[first] < base + correlation[rows] + 1
    )
    return found
