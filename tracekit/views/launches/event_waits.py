"""Which stream waits for which: event records and the waits for them, in the host's order.

A wait names the record that it waits for by a number that no other record of the process has. What
a record or wait stands between is decided by when the host made the calls, as for launches; the
profiler's own times of waits are on another clock and off by tens of microseconds.
"""

from __future__ import annotations

import polars as pl

from tracekit.model.cupti import STREAM_WAIT_EVENT
from tracekit.trace import Trace, view

__all__ = ["event_waits"]

_CALL = ["report", "pid", "correlation"]
_RECORD = ["report", "pid", "event_sync"]
WAITS = pl.Schema(
    {
        "report": pl.UInt16(),
        "pid": pl.UInt32(),
        "record_context": pl.Int64(),
        "record_stream": pl.Int64(),
        "record_ns": pl.Int64(),
        "wait_context": pl.Int64(),
        "wait_stream": pl.Int64(),
        "wait_ns": pl.Int64(),
    }
)


@view("sync", "event_records", "runtime")
def event_waits(trace: Trace) -> pl.DataFrame:
    """Return every wait of a stream for an event.

    Returns:
        Frame of report, pid, the stream (context and stream) and host time ns of the record that
        is waited for, and the stream and host time of the wait, by report, pid and wait_ns. What
        cannot be told (no record of that number, no host call) is null.
    """
    waits = trace.frame("sync").filter(pl.col("sync_type") == STREAM_WAIT_EVENT)
    if waits.is_empty():
        return pl.DataFrame(schema=WAITS)
    records = _called(trace, trace.frame("event_records"), "record")
    # Two records of one number would leave open which is meant.
    records = records.drop_nulls("event_sync").unique(_RECORD, keep="none")
    waits = _called(trace, waits, "wait")
    joined = waits.join(records, on=_RECORD, how="left", maintain_order="left")
    return joined.select(list(WAITS)).cast(WAITS).sort("report", "pid", "wait_ns", nulls_last=True)


def _called(trace: Trace, rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """Name the columns of a record or wait, with the time of the host call that made it."""
    calls = trace.frame("runtime").join(rows, on=_CALL, how="semi")
    calls = calls.group_by(_CALL).agg(pl.col("start_ns").min().alias(f"{name}_ns"))
    return rows.join(calls, on=_CALL, how="left", maintain_order="left").select(
        "report",
        "pid",
        "event_sync",
        f"{name}_ns",
        pl.col("context").alias(f"{name}_context"),
        pl.col("stream").alias(f"{name}_stream"),
    )
