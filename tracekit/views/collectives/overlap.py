"""Work that overlaps each communication kernel on its GPU, and how long that kernel queued."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.table import Column, Table
from tracekit.numerics import intervals
from tracekit.numerics.sweeps import BEFORE_ALL
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.collectives.kernels import collectives
from tracekit.views.collectives.matching import firsts, instances, last_starts, matching
from tracekit.views.device.activity import WORK_KIND
from tracekit.views.device.lanes import Lanes, lanes
from tracekit.views.keys import row_numbers
from tracekit.views.launches.attribution import steps

__all__ = [
    "ALONE_FRAC",
    "CONTENDED_FRAC",
    "MIN_LAG_NS",
    "CommOverlap",
    "comm_overlap",
    "contention_cases",
    "merged",
    "other_streams",
    "queued_kernels",
]

ALONE_FRAC, CONTENDED_FRAC = 0.05, 0.5
"""Up to this share of overlap a collective is a baseline; from this share on it is contended."""
MIN_LAG_NS = 20_000
"""Shorter lags are the ordinary latency of a launch."""
BUSY_FRAC = 0.9
"""Share of the lag during which other work must have kept the GPU busy."""
Bool: TypeAlias = NDArray[np.bool_]
Int64: TypeAlias = NDArray[np.int64]
_LANE = ["gpu", "pid", "stream"]
_NO_LAG = -1
OVERLAPS = Table(
    "overlaps",
    (
        Column("activity", pl.UInt32, "", "row of `activity`"),
        Column("window_start_ns", pl.Int64, "ns", "start of the transfer"),
        Column("overlap_ns", pl.Int64, "ns", "time that other work overlaps"),
        Column("overlap_frac", pl.Float64, "1", "share of the transfer that other work overlaps"),
        Column("ready_ns", pl.Int64, "ns", "when it could have started"),
        Column("lag_ns", pl.Int64, "ns", "start - ready"),
        Column("queued_ns", pl.Int64, "ns", "time from ready to start, summed over collectives"),
    ),
    "other work that overlaps one communication kernel",
)
BY_KIND = Table(
    "by_kind",
    (
        Column("row", pl.UInt32, "", "row of `collectives`"),
        Column("kind", WORK_KIND, "", "class of work"),
        Column("overlap_ns", pl.Int64, "ns", "time that work of this kind overlaps"),
    ),
    "work of one kind that overlaps one communication kernel",
)


class CommOverlap(NamedTuple):
    """Overlap of communication kernels with other work of their GPU.

    Attributes:
        kernels: Frame of `OVERLAPS`, one row a row of `collectives`, in its order: window_start_ns
            (latest start over the ranks where they are matched, else own start),
            overlap_ns Int64 (of the window, any other work on another stream), overlap_frac
            Float64, ready_ns Int64 (launched and previous work of its stream done; null without a
            launch), lag_ns Int64 (start - ready), queued_ns Int64 (part of the lag during which
            other work kept the GPU busy; null unless the lag is at least `MIN_LAG_NS`).
        by_kind: Frame of `BY_KIND`: overlap_ns > 0 of a row of `collectives` with one kind of
            work; long form, in any order.
    """

    kernels: pl.DataFrame
    by_kind: pl.DataFrame


class _Measured(NamedTuple):
    """Kernels of one stream.

    Attributes:
        at: int64[n], their rows in `collectives`.
        overlap: int64[n], ns, other work in the window.
        kinds: int64[n] by kind, ns.
        held: int64[m], rows with a lag.
        queued: int64[m], ns, other work in the lag.
    """

    at: Int64
    overlap: Int64
    kinds: dict[str, Int64]
    held: Int64
    queued: Int64


@view
def comm_overlap(trace: Trace) -> CommOverlap:
    """Return the work that overlaps each communication kernel, and how long the kernel queued."""
    rows, work = _with_windows(trace), lanes(trace)
    window, start, end = (rows[c].to_numpy() for c in ("window_start_ns", "start_ns", "end_ns"))
    ready, known = _ready(rows, work)
    lag = np.maximum(start - ready, 0)
    late = known & (lag >= MIN_LAG_NS)
    number, streams = row_numbers(rows.select(_LANE))

    def measured(one: int) -> _Measured:
        gpu, pid, stream = streams.row(one)
        lane, at = work[gpu], np.flatnonzero(number == one)
        others, held = lane.not_on(pid, stream), at[late[at]]
        overlap, kinds = lane.overlap_by_kind((window[at], end[at]), others)
        queued = lane.overlap_time((ready[held], start[held]), others) if held.size else held
        return _Measured(at, overlap, kinds, held, queued)

    found = each(measured, range(streams.height))
    overlap, queued = np.zeros((2, start.size), np.int64)
    for part in found:
        overlap[part.at], queued[part.held] = part.overlap, part.queued
    unknown = pl.Series(~known)
    kernels = rows.select(
        "activity",
        "window_start_ns",
        pl.Series("overlap_ns", overlap),
        pl.Series("overlap_frac", overlap / np.maximum(end - window, 1)),
        pl.Series("ready_ns", ready).set(unknown, None),
        pl.Series("lag_ns", lag).set(unknown, None),
        pl.Series("queued_ns", queued).set(pl.Series(~late), None),
    )
    return CommOverlap(OVERLAPS.select(kernels), _by_kind(found))


def _by_kind(found: list[_Measured]) -> pl.DataFrame:
    code = {kind: place for place, kind in enumerate(WORK_KIND.categories)}
    rows, kinds, shared = list[Int64](), list[NDArray[np.uint32]](), list[Int64]()
    for part in found:
        for kind, ns in part.kinds.items():
            own = np.flatnonzero(ns)
            rows.append(part.at[own])
            kinds.append(np.full(own.size, code[kind], np.uint32))
            shared.append(ns[own])
    if not rows:
        return BY_KIND.empty()
    every = pl.Series("kind", WORK_KIND.categories, WORK_KIND)
    row = pl.Series("row", np.concatenate(rows), pl.UInt32)
    kind_of = every.gather(np.concatenate(kinds))
    return pl.DataFrame([row, kind_of, pl.Series("overlap_ns", np.concatenate(shared))])


@view
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


def other_streams(work: pl.DataFrame, group: pl.DataFrame) -> pl.DataFrame:
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


def _ready(rows: pl.DataFrame, work: dict[int | None, Lanes]) -> tuple[Int64, Bool]:
    """When each kernel was launched and its stream had finished all else, and where known."""
    activity = rows["activity"].to_numpy()
    order = np.argsort(activity, kind="stable")
    at = activity[order].astype(np.int64)
    free = np.empty(at.size, np.int64)
    for lane in work.values():
        begin, end = np.searchsorted(at, (lane.first, lane.first + lane.start.size))
        free[order[begin:end]] = lane.stream_free(at[begin:end] - lane.first)
    launch = rows["launch_start_ns"]
    known = (launch.is_not_null() & ~rows["in_graph"]).to_numpy()
    ready = np.maximum(free, launch.fill_null(BEFORE_ALL).to_numpy())
    return np.where(known, ready, rows["start_ns"].to_numpy()), known


@view
def contention_cases(trace: Trace) -> pl.DataFrame:
    """Return one row per matched collective: which work overlapped its transfer.

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
    of = last_starts(trace)["instance"]
    shared = overlap.by_kind.select(of.gather(overlap.by_kind["row"]), "kind", "overlap_ns")
    shared = shared.drop_nulls("instance")
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
