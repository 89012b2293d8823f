"""What the launching threads were doing while a GPU was idle, where the processor was sampled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.numerics import intervals
from tracekit.numerics.idle import causes
from tracekit.trace import Trace, view
from tracekit.views.idle.gaps import gap_rows
from tracekit.views.idle.parts import idle_parts
from tracekit.views.idle.range_names import range_names
from tracekit.views.launches.attribution import attribution, host_calls
from tracekit.views.strings import resolved

__all__ = ["EVIDENCE", "host_evidence"]

_NAMED = 3
"""So many functions are named."""
_KEYS = ["timeline", "cause", "range"]
EVIDENCE = pl.Schema(
    {
        "timeline": pl.UInt16(),
        "cause": pl.String(),
        "range": pl.String(),
        "n_samples": pl.UInt32(),
        "functions": pl.String(),
        "off_cpu_frac": pl.Float64(),
    }
)
"""Columns of `host_evidence`."""


class _HostParts(NamedTuple):
    """Parts of gaps before the launching call, by thread and start.

    Attributes:
        keys: Frame of timeline, cause and range (place in `RangeNames.names`, -1 for none).
        thread: int64[n], row of `HostCalls.threads`.
        start: int64[n], ns.
        end: int64[n], ns.
    """

    keys: pl.DataFrame
    thread: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


@view
def host_evidence(trace: Trace) -> pl.DataFrame:
    """Return what threads executed in host parts of gaps, by cause and range.

    Returns:
        Frame of `EVIDENCE`: timeline UInt16, cause, range (numbers as N, null for none), n_samples,
        functions (the most sampled ones with their shares; null without samples), off_cpu_frac
        (share of the time in which the thread was on no processor; null where that was not
        recorded). Empty when neither was recorded.
    """
    samples, switches = trace.frame("cpu_samples"), trace.frame("sched")
    if samples.is_empty() and switches.is_empty():
        return pl.DataFrame(schema=EVIDENCE)
    parts = _host_parts(trace)
    found = _off_cpu(trace, parts).join(
        _functions(trace, parts), on=_KEYS, how="full", coalesce=True
    )
    texts = range_names(trace).names
    named = [texts[at] if at >= 0 else None for at in found["range"].to_list()]
    found = found.with_columns(
        pl.Series("range", named, pl.String),
        pl.Series("cause", [causes.CAUSES[c] for c in found["cause"]], pl.String),
        pl.col("n_samples").fill_null(0),
    )
    return found.select(list(EVIDENCE)).cast(EVIDENCE).sort(*_KEYS, nulls_last=True)


def _host_parts(trace: Trace) -> _HostParts:
    idle, gaps = idle_parts(trace), gap_rows(trace)
    parts = idle.parts
    call = idle.call[parts.gap]
    at = np.flatnonzero((parts.place == causes.PLACES.index("host")) & (call >= 0))
    thread = host_calls(trace).thread[call[at]].astype(np.int64)
    at = at[np.lexsort((parts.start[at], thread))]
    gap = parts.gap[at]
    inside = range_names(trace).of(attribution(trace)["range"][pl.Series(gaps.after[gap])])
    keys = {"timeline": gaps.timeline[gap], "cause": parts.cause[at], "range": inside}
    return _HostParts(
        pl.DataFrame(keys),
        host_calls(trace).thread[idle.call[gap]].astype(np.int64),
        parts.start[at],
        parts.end[at],
    )


def _threads(trace: Trace, rows: pl.DataFrame) -> NDArray[np.int64]:
    """Row of `HostCalls.threads` of each row, -1 for a thread that made no call."""
    known = host_calls(trace).threads.with_row_index("thread")
    keys = ["report", "pid", "tid"]
    joined = rows.select(keys).join(known, on=keys, how="left", maintain_order="left")
    return joined["thread"].cast(pl.Int64).fill_null(-1).to_numpy()


def _functions(trace: Trace, parts: _HostParts) -> pl.DataFrame:
    """Number of samples, and the most sampled functions."""
    samples = trace.frame("cpu_samples")
    thread, time = _threads(trace, samples), samples["t_ns"].to_numpy()
    at = np.full(samples.height, -1, np.int64)
    for own in np.unique(thread[thread >= 0]).tolist():
        low, high = np.searchsorted(parts.thread, [own, own + 1])
        rows = np.flatnonzero(thread == own)
        place = low + np.searchsorted(parts.start[low:high], time[rows], side="right") - 1
        if high == low:
            continue
        inside = (place >= low) & (time[rows] < parts.end[place])
        at[rows[inside]] = place[inside]
    hit = np.flatnonzero(at >= 0)
    leaves = (
        trace.frame("cpu_frames")
        .filter(pl.col("depth") == 0)
        .with_columns(pl.lit(None, pl.String).alias("symbol"))
    )
    leaves = resolved(leaves, trace.frame("strings"), "symbol", "symbol_id")
    leaves = leaves.select("report", "symbol", id="sample").unique(["report", "id"], keep="first")
    seen = samples.select("report", "id")[pl.Series(hit)].hstack(parts.keys[pl.Series(at[hit])])
    seen = seen.join(leaves, on=["report", "id"], how="left", maintain_order="left")
    symbols = seen.with_columns(pl.col("symbol").fill_null("an unknown function"))
    counted = (
        symbols.group_by(*_KEYS, "symbol").len().sort("len", "symbol", descending=[True, False])
    )
    share = pl.col("len") / pl.col("len").sum().over(_KEYS)
    text = pl.format("{}% {}", (share * 100).round(0).cast(pl.Int32), "symbol")
    return (
        counted.with_columns(text.alias("text"))
        .group_by(_KEYS)
        .agg(
            pl.col("len").sum().alias("n_samples"),
            pl.col("text").head(_NAMED).str.join(", ").alias("functions"),
        )
    )


def _off_cpu(trace: Trace, parts: _HostParts) -> pl.DataFrame:
    """Share of the time in which the thread was on no processor."""
    rows = trace.frame("sched").sort("t_ns")
    thread, time = _threads(trace, rows), rows["t_ns"].to_numpy()
    is_in = rows["is_in"].to_numpy() != 0
    off = np.zeros(parts.start.size, np.int64)
    known = np.zeros(parts.start.size, np.bool_)
    for own in np.unique(thread[thread >= 0]).tolist():
        low, high = np.searchsorted(parts.thread, [own, own + 1])
        at = np.flatnonzero(thread == own)
        moments, on = time[at], is_in[at]
        begins = np.flatnonzero(~on[:-1]) if at.size else at
        away = intervals.union(moments[begins], moments[begins + 1])
        start, end = parts.start[low:high], parts.end[low:high]
        off[low:high] = intervals.overlap_ns(start, end, *away)
        known[low:high] = True
    table = parts.keys.with_columns(
        pl.Series("off_ns", off), pl.Series("time_ns", parts.end - parts.start)
    ).filter(pl.Series(known))
    sums = table.group_by(_KEYS).agg(pl.col("off_ns").sum(), pl.col("time_ns").sum())
    return sums.select(*_KEYS, (pl.col("off_ns") / pl.col("time_ns")).alias("off_cpu_frac"))
