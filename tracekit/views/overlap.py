"""What ran on a GPU beside each communication kernel, and how long that kernel was kept waiting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.trace import Trace, view
from tracekit.numerics import intervals
from tracekit.numerics.sweeps import BEFORE_ALL
from tracekit.numerics.threads import each
from tracekit.views.activity import WORK_KIND, activity
from tracekit.views.attribution import steps
from tracekit.views.coll_instances import firsts, instances, last_starts, matching
from tracekit.views.collectives import collectives
from tracekit.views.lanes import COMM_KINDS, Lanes, lanes

__all__ = [
    "ALONE_FRAC",
    "COMM_KINDS",
    "CONTENDED_FRAC",
    "MIN_LAG_NS",
    "CommOverlap",
    "comm_overlap",
    "company_of",
    "contention_cases",
    "merged",
    "queued_kernels",
]

ALONE_FRAC, CONTENDED_FRAC = 0.05, 0.5
"""Up to this share of overlap a collective is a baseline; from this share on it is contended."""
MIN_LAG_NS = 20_000
"""Shorter lags are the ordinary latency of a launch."""
BUSY_FRAC = 0.9
"""Share of the lag during which other work must have kept the GPU busy."""
_LANE = ["gpu", "pid", "stream"]
_NO_LAG = -1
KERNELS = pl.Schema(
    {
        "activity": pl.UInt32(),
        "window_start_ns": pl.Int64(),
        "overlap_ns": pl.Int64(),
        "overlap_frac": pl.Float64(),
        "ready_ns": pl.Int64(),
        "lag_ns": pl.Int64(),
        "queued_ns": pl.Int64(),
    }
)
"""Columns of `CommOverlap.kernels`."""
BY_KIND = pl.Schema({"activity": pl.UInt32(), "kind": WORK_KIND, "overlap_ns": pl.Int64()})
"""Columns of `CommOverlap.by_kind`."""


class CommOverlap(NamedTuple):
    """Overlap of communication kernels with other work of their GPU.

    Attributes:
        kernels: Frame of `KERNELS`, one row a row of `collectives`, in its order: window_start_ns
            (latest start over the ranks where they are matched, else own start),
            overlap_ns Int64 (of the window, any other work on another stream), overlap_frac
            Float64, ready_ns Int64 (launched and previous work of its stream done; null without a
            launch), lag_ns Int64 (start - ready), queued_ns Int64 (part of the lag during which
            other work kept the GPU busy).
        by_kind: Frame of `BY_KIND`: overlap_ns > 0 with one kind of work; long form.
    """

    kernels: pl.DataFrame
    by_kind: pl.DataFrame


@view(of=[activity, collectives, last_starts, lanes])
def comm_overlap(trace: Trace) -> CommOverlap:
    """Return what ran beside each communication kernel."""
    rows = _with_windows(trace).with_row_index("_at")
    work = lanes(trace)
    rows = rows.hstack([_previous_end(rows, work)])
    ready = pl.max_horizontal("launch_start_ns", "_previous_end")
    launched = pl.col("launch_start_ns").is_not_null() & ~pl.col("in_graph")
    rows = rows.with_columns(pl.when(launched).then(ready).alias("ready_ns"))

    def measured(group: pl.DataFrame) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        gpu, pid, stream = group.select("gpu", "pid", "stream").row(0)
        lane = work[gpu]
        return _measured(group, lane, lane.not_on(pid, stream))

    columns = ["_at", "activity", "window_start_ns", "start_ns", "end_ns", "ready_ns"]
    groups = rows.select(*_LANE, *columns).partition_by(_LANE, maintain_order=True)
    parts = each(measured, groups)
    if not parts:
        return CommOverlap(pl.DataFrame(schema=KERNELS), pl.DataFrame(schema=BY_KIND))
    found = pl.concat([p for p, _ in parts]).sort("_at").select(list(KERNELS)).cast(KERNELS)
    by_kind = pl.concat([BY_KIND.to_frame(), *(k for _, of_group in parts for k in of_group)])
    return CommOverlap(found, by_kind.sort("activity", "kind"))


@view(of=[comm_overlap])
def queued_kernels(trace: Trace) -> pl.DataFrame:
    """Return since when communication kernels were ready but queued behind other work.

    Returns:
        Frame of ready_ns and lag_ns of `CommOverlap.kernels`, one row a row of `collectives`; null
        unless the lag is at least `MIN_LAG_NS` and other work kept the GPU busy during at least
        `BUSY_FRAC` of it.
    """
    lag = pl.col("lag_ns")
    held = (lag >= MIN_LAG_NS) & (pl.col("queued_ns") >= BUSY_FRAC * lag)
    return comm_overlap(trace).kernels.select(
        pl.when(held).then("ready_ns").alias("ready_ns"), pl.when(held).then(lag).alias("lag_ns")
    )


def company_of(work: pl.DataFrame, group: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `work` on the GPU of `group` that are not on its stream.

    Args:
        work: Rows of `activity`.
        group: Communication kernels of one (gpu, pid, stream).
    """
    gpu, pid, stream = group.select("gpu", "pid", "stream").row(0)
    same = pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16))
    own = pl.col("pid").eq_missing(pl.lit(pid, pl.UInt32)) & pl.col("stream").eq_missing(
        pl.lit(stream, pl.Int64)
    )
    return work.filter(same & ~own)


def _with_windows(trace: Trace) -> pl.DataFrame:
    """Communication kernels with the start of the part in which they transfer."""
    columns = ["activity", "report", "gpu", "pid", "context", "stream", "start_ns", "end_ns"]
    rows = collectives(trace).select(*columns, "launch_start_ns", "in_graph")
    rows = rows.hstack([last_starts(trace)["last_start_ns"]])
    begins = pl.when(pl.col("last_start_ns") < pl.col("end_ns")).then("last_start_ns")
    return rows.with_columns(pl.coalesce(begins, "start_ns").alias("window_start_ns"))


def _previous_end(rows: pl.DataFrame, work: dict[int | None, Lanes]) -> pl.Series:
    """When the stream of each communication kernel had finished everything before it."""
    activity = rows["activity"].to_numpy()
    order = np.argsort(activity, kind="stable")
    at = activity[order].astype(np.int64)
    free = np.empty(at.size, np.int64)
    for lane in work.values():
        begin, end = np.searchsorted(at, (lane.first, lane.first + lane.start.size))
        free[order[begin:end]] = lane.stream_free(at[begin:end] - lane.first)
    found = pl.Series("_previous_end", free)
    return found.set(found == BEFORE_ALL, None)


def _measured(
    group: pl.DataFrame, lane: Lanes, others: NDArray[np.bool_]
) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Rows of `CommOverlap.kernels` and `CommOverlap.by_kind` of kernels of one stream."""
    starts, ends = group["window_start_ns"].to_numpy(), group["end_ns"].to_numpy()
    overlap, kinds = lane.shares_beside((starts, ends), others)
    begun, known = group["start_ns"], group["ready_ns"].is_not_null()
    ready = group["ready_ns"].fill_null(begun)
    queued = lane.time_beside((ready.to_numpy(), begun.to_numpy()), others)
    found = group.select(
        "_at",
        "activity",
        "window_start_ns",
        pl.Series("overlap_ns", overlap),
        pl.Series("overlap_frac", overlap / np.maximum(ends - starts, 1)),
        "ready_ns",
        (begun - group["ready_ns"]).clip(lower_bound=0).alias("lag_ns"),
        pl.Series("queued_ns", queued).set(~known, None),
    )
    activity = group["activity"].to_numpy()
    parts = []
    for kind, shared in kinds.items():
        at = np.flatnonzero(shared)
        if at.size:
            part = pl.DataFrame({"activity": activity[at], "overlap_ns": shared[at]})
            part = part.with_columns(pl.lit(kind, WORK_KIND).alias("kind"))
            parts.append(part.select(list(BY_KIND)))
    return found, parts


@view(of=[comm_overlap, instances, matching, steps])
def contention_cases(trace: Trace) -> pl.DataFrame:
    """Return one row per matched collective: what it transferred beside.

    A collective goes as fast as its slowest rank, so its overlap is the largest over ranks; its
    partner is the kind of work that covered most of the overlap over all ranks.

    Returns:
        `instances` plus overlap_frac Float64, state String ("alone", "contended", "partly"),
        partner String (null when alone), lag_ns Int64 (largest over ranks), step UInt32 and
        step_group String (of the lowest rank; null outside steps).
    """
    overlap, members = comm_overlap(trace), matching(trace).members
    first, own = firsts(members), overlap.kernels.select("overlap_frac", "lag_ns")
    own = own[members["row"]] if members.height else own.clear()
    lag = own["lag_ns"].fill_null(_NO_LAG).to_numpy()
    rows = instances(trace)
    if rows.height:
        largest = pl.Series("lag_ns", np.maximum.reduceat(lag, first))
        rows = rows.with_columns(
            pl.Series("overlap_frac", np.maximum.reduceat(own["overlap_frac"].to_numpy(), first)),
            largest.set(largest == _NO_LAG, None),
        )
    else:
        rows = rows.hstack(own)
    shared = members.select("instance", "activity").join(
        overlap.by_kind, on="activity", how="inner"
    )
    rows = rows.join(_partners(shared), on="instance", how="left", maintain_order="left")
    groups = steps(trace).select("step", pl.col("group").alias("step_group"))
    rows = rows.join(groups, on="step", how="left", maintain_order="left")
    share = pl.col("overlap_frac")
    state = (
        pl.when(share <= ALONE_FRAC)
        .then(pl.lit("alone"))
        .when(share >= CONTENDED_FRAC)
        .then(pl.lit("contended"))
        .otherwise(pl.lit("partly"))
    )
    return rows.with_columns(state.alias("state")).with_columns(
        pl.when(pl.col("state") != "alone").then("partner").alias("partner")
    )


def _partners(shared: pl.DataFrame) -> pl.DataFrame:
    """The kind of work that covered most of each collective, over all its ranks."""
    totals = shared.group_by("instance", "kind").agg(pl.col("overlap_ns").sum())
    totals = totals.sort("instance", "overlap_ns", "kind", descending=[False, True, False])
    first = totals.unique("instance", keep="first", maintain_order=True)
    return first.select("instance", pl.col("kind").cast(pl.String).alias("partner"))


def merged(frame: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the union of the intervals of a frame with start_ns and end_ns."""
    return intervals.union(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())
