"""Kernels and copies that take longer while a collective runs on their GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.trace import Trace, view
from tracekit.numerics import intervals, labels
from tracekit.numerics.resample import MIN_EACH, lost, median_ratio
from tracekit.numerics.threads import each
from tracekit.views.activity import OPAQUE, TABLES, activity, recorded
from tracekit.views.collectives import collectives
from tracekit.views.contention import thinned
from tracekit.views.kernels import kernel_names
from tracekit.views.lanes import COMM_KINDS, Lanes, lanes
from tracekit.views.overlap import ALONE_FRAC, merged

__all__ = ["INSIDE_FRAC", "SLOWED", "slowed_compute"]

INSIDE_FRAC = 0.95
"""Share of a kernel that collectives must cover for it to count as run beside them."""
_SHAPE = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
_LIKE = ["name_key", "kind", *_SHAPE, "bytes"]
SLOWED = pl.Schema(
    {
        "name": pl.String(),
        "kind": pl.String(),
        "grid": pl.String(),
        "block": pl.String(),
        "bytes": pl.Int64(),
        "n_outside": pl.Int64(),
        "n_inside": pl.Int64(),
        "outside_ns": pl.Float64(),
        "inside_ns": pl.Float64(),
        "slowdown_ratio": pl.Float64(),
        "slowdown_lo_ratio": pl.Float64(),
        "slowdown_hi_ratio": pl.Float64(),
        "excess_ns": pl.Int64(),
        "hidden_ns": pl.Int64(),
    }
)
"""Columns of `slowed_compute`."""


@view(*TABLES.values(), of=[activity, collectives, kernel_names, lanes])
def slowed_compute(trace: Trace) -> pl.DataFrame:
    """Compare work inside collectives with the same work outside of any.

    Only like is compared with like: kernels of one name, grid and block, copies of one kind and
    size, with at least five executions on either side.

    Returns:
        Frame of `SLOWED`, most excess first. ``excess_ns`` is the time above the median outside,
        summed, mean over GPUs; ``hidden_ns`` likewise the communication time that ran meanwhile,
        which would have been exposed without the overlap.
    """
    names = dict(kernel_names(trace).select("name_key", "name").rows())
    rows = []
    for key, group in _candidates(_with_cover(trace)):
        name, kind, shape = key["name_key"], key["kind"], [key[c] for c in _SHAPE]
        grid, block = (
            None if None in part else "x".join(map(str, part)) for part in (shape[:3], shape[3:])
        )
        about = {"name": names.get(name, kind), "kind": kind, "grid": grid, "block": block}
        rows.append(about | {"bytes": key["bytes"]} | _compared(*group))
    order = ["excess_ns", "name", "grid", "block", "bytes"]
    return pl.DataFrame(rows, schema=SLOWED).sort(
        order, descending=[True] + [False] * 4, nulls_last=True
    )


def _compared(outside: NDArray[np.int64], inside: NDArray[np.int64], n_gpus: int) -> dict[str, Any]:
    """Durations of like work inside and outside of collectives; sums are means over GPUs."""
    slowdown = median_ratio(thinned(outside), thinned(inside))
    return {
        "n_outside": outside.size,
        "n_inside": inside.size,
        "outside_ns": float(np.median(outside)),
        "inside_ns": float(np.median(inside)),
        "slowdown_ratio": float(np.median(inside) / np.median(outside)),
        "slowdown_lo_ratio": slowdown.lo,
        "slowdown_hi_ratio": slowdown.hi,
        "excess_ns": round(lost(outside, inside) / n_gpus),
        "hidden_ns": round(int(inside.sum()) / n_gpus),
    }


_Sides = tuple[NDArray[np.int64], NDArray[np.int64], int]


def _candidates(work: pl.DataFrame) -> Iterator[tuple[dict[str, Any], _Sides]]:
    """Like work with enough executions on both sides: durations outside, inside, and GPUs."""
    inside, length = pl.col("inside"), pl.col("length_ns")
    groups = work.group_by(_LIKE, maintain_order=True).agg(
        length.filter(~inside).alias("_out"),
        length.filter(inside).alias("_in"),
        pl.col("gpu").filter(inside).n_unique().alias("_gpus"),
    )
    enough = (pl.col("_out").list.len() >= MIN_EACH) & (pl.col("_in").list.len() >= MIN_EACH)
    groups = groups.filter(enough)
    sides = zip(groups["_out"], groups["_in"], groups["_gpus"], strict=True)
    for key, (out, within, n_gpus) in zip(
        groups.select(_LIKE).rows(named=True), sides, strict=True
    ):
        yield key, (out.to_numpy(), within.to_numpy(), n_gpus)


def _with_cover(trace: Trace) -> pl.DataFrame:
    """Work that clearly ran beside collectives or clearly not, on GPUs that communicate.

    Frame of gpu, length_ns, inside (Boolean) and the columns of `_LIKE`.
    """
    comm = collectives(trace).select("gpu", "pid", "stream", "start_ns", "end_ns")
    columns = ["gpu", "source", "row", "kind", "name_key", "start_ns", "end_ns"]
    work = activity(trace).select(columns)
    own = {rows["gpu"][0]: rows for rows in comm.drop_nulls("gpu").partition_by("gpu")}
    gpus = [(lane, own[gpu]) for gpu, lane in lanes(trace).items() if gpu in own]

    def chosen(one: tuple[Lanes, pl.DataFrame]) -> pl.DataFrame:
        cover = _cover(*one)
        own = work.slice(one[0].first, cover.size)
        counted = np.flatnonzero(~own["kind"].is_in([*COMM_KINDS, OPAQUE]).to_numpy())
        counted = counted[_by_stream(one[0], counted)]
        cover = cover[counted]
        inside = cover >= INSIDE_FRAC
        kept = inside | (cover <= ALONE_FRAC)
        found = own[counted[kept].astype(np.uint32)]
        return found.with_columns(pl.Series("inside", inside[kept]))

    work = pl.concat([work.clear().with_columns(inside=pl.lit(value=True)), *each(chosen, gpus)])
    row = pl.when(pl.col("source") == "kernel").then("row")
    shapes = trace.frame("kernels").select(_SHAPE)
    shapes = shapes[work.select(row).to_series()] if shapes.height else _no_shapes(work.height)
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    size = recorded(trace, work, "bytes")
    return work.select("gpu", "inside", length, "name_key", "kind", size).hstack(shapes)


def _by_stream(lane: Lanes, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order of rows by stream, the one that is used first coming first."""
    pairs = {pair: i for i, pair in enumerate(dict.fromkeys(lane.streams))}
    pair = np.array([pairs[s] for s in lane.streams], np.int64)[lane.stream_of[lane.queue[rows]]]
    number, first = labels.numbered(pair)
    rank = np.argsort(np.argsort(first)).astype(np.uint16)
    return np.argsort(rank[number], kind="stable")


def _cover(lane: Lanes, comm: pl.DataFrame) -> NDArray[np.float64]:
    """Share of each row that communication on other streams of its GPU covers."""
    cover = intervals.overlap_ns(lane.start, lane.end, *merged(comm))
    for pid, stream in comm.select("pid", "stream").unique().rows():
        mine = ~lane.not_on(pid, stream)[lane.stream_of][lane.queue]
        on = pl.col("pid").eq_missing(pid) & pl.col("stream").eq_missing(stream)
        others = merged(comm.filter(~on))
        cover[mine] = intervals.overlap_ns(lane.start[mine], lane.end[mine], *others)
    share: NDArray[np.float64] = cover / np.maximum(lane.end - lane.start, 1)
    return share


def _no_shapes(height: int) -> pl.DataFrame:
    return pl.DataFrame({c: pl.Series(c, [None] * height, pl.Int32) for c in _SHAPE})
