"""Kernels and copies that take longer while a collective runs on their GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from tracekit.model.trace import Trace, view
from tracekit.numerics import intervals
from tracekit.numerics.resample import MIN_EACH, lost, median_ratio
from tracekit.views.activity import OPAQUE, activity
from tracekit.views.collectives import collectives
from tracekit.views.contention import thinned
from tracekit.views.kernels import kernel_names
from tracekit.views.overlap import ALONE_FRAC, COMM_KINDS, company_of, merged

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


@view("kernels", of=[activity, collectives, kernel_names])
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
    for (name_key, kind, *shape, n_bytes), group in _candidates(_with_cover(trace)):
        grid, block = (
            None if None in part else "x".join(map(str, part)) for part in (shape[:3], shape[3:])
        )
        about = {"name": names.get(name_key, kind), "kind": kind, "grid": grid, "block": block}
        rows.append(about | {"bytes": n_bytes} | _compared(group))
    order = ["excess_ns", "name", "grid", "block", "bytes"]
    return pl.DataFrame(rows, schema=SLOWED).sort(
        order, descending=[True] + [False] * 4, nulls_last=True
    )


def _compared(group: pl.DataFrame) -> dict[str, Any]:
    """Durations of like work inside and outside of collectives; sums are means over GPUs."""
    outside = group.filter(pl.col("cover_frac") <= ALONE_FRAC)["length_ns"].to_numpy()
    within = group.filter(pl.col("cover_frac") >= INSIDE_FRAC)
    inside, n_gpus = within["length_ns"].to_numpy(), within["gpu"].n_unique()
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


def _candidates(work: pl.DataFrame) -> list[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Groups of like work with enough executions inside and outside of collectives."""
    cover = pl.col("cover_frac")
    counts = work.group_by(_LIKE).agg(
        (cover <= ALONE_FRAC).sum().alias("_out"), (cover >= INSIDE_FRAC).sum().alias("_in")
    )
    enough = counts.filter((pl.col("_out") >= MIN_EACH) & (pl.col("_in") >= MIN_EACH))
    chosen = work.join(enough, on=_LIKE, how="semi", nulls_equal=True)
    return list(chosen.partition_by(_LIKE, as_dict=True, include_key=False).items())


def _with_cover(trace: Trace) -> pl.DataFrame:
    """Work other than communication on GPUs that communicate, with its share beside collectives."""
    comm = collectives(trace)
    columns = ["gpu", "pid", "stream", "start_ns", "end_ns", "source", "row", "kind"]
    work = (
        activity(trace)
        .select(*columns, "name_key", "bytes")
        .filter(
            ~pl.col("kind").is_in([*COMM_KINDS, OPAQUE])
            & pl.col("gpu").is_in(comm["gpu"].drop_nulls().unique().implode())
        )
    )
    parts = []
    for group in work.partition_by("gpu", "pid", "stream", maintain_order=True):
        union = merged(company_of(comm, group))
        starts, ends = group["start_ns"].to_numpy(), group["end_ns"].to_numpy()
        cover = intervals.overlap_ns(starts, ends, *union) / np.maximum(ends - starts, 1)
        parts.append(group.with_columns(pl.Series("cover_frac", cover)))
    none = work.with_columns(pl.lit(0.0).alias("cover_frac"))
    work = pl.concat(parts) if parts else none
    row = pl.when(pl.col("source") == "kernel").then("row")
    shapes = trace.frame("kernels").select(_SHAPE)
    shapes = shapes[work.select(row).to_series()] if shapes.height else _no_shapes(work.height)
    length = pl.col("end_ns") - pl.col("start_ns")
    columns = ["gpu", "name_key", "kind", "bytes", "cover_frac"]
    return work.select(length.alias("length_ns"), *columns).hstack(shapes)


def _no_shapes(height: int) -> pl.DataFrame:
    return pl.DataFrame({c: pl.Series(c, [None] * height, pl.Int32) for c in _SHAPE})
