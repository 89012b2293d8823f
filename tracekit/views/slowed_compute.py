"""Kernels and copies that take longer while a collective runs on their GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.model.trace import Trace, view
from tracekit.numerics import intervals
from tracekit.numerics.resample import MIN_EACH, lost, median_ratio
from tracekit.views.activity import OPAQUE, activity
from tracekit.views.collectives import collectives
from tracekit.views.kernels import kernel_names
from tracekit.views.overlap import ALONE_FRAC, COMM_KINDS, company_of, merged

__all__ = ["INSIDE_FRAC", "SLOWED", "slowed_compute"]

INSIDE_FRAC = 0.95
"""Share of a kernel that collectives must cover for it to count as run beside them."""
_LIKE = ["name_key", "kind", "grid", "block", "bytes"]
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
        summed; ``hidden_ns`` the communication time that ran meanwhile, which would have been
        exposed without the overlap.
    """
    work = _with_cover(trace)
    rows = []
    for _, group in work.partition_by(_LIKE, as_dict=True, maintain_order=True).items():
        outside = group.filter(pl.col("cover_frac") <= ALONE_FRAC)["length_ns"].to_numpy()
        within = group.filter(pl.col("cover_frac") >= INSIDE_FRAC)
        inside = within["length_ns"].to_numpy()
        if min(outside.size, inside.size) < MIN_EACH:
            continue
        slowdown = median_ratio(outside, inside)
        about = group.select("name", "kind", "grid", "block", "bytes").row(0, named=True)
        rows.append(
            about
            | {
                "n_outside": outside.size,
                "n_inside": inside.size,
                "outside_ns": float(np.median(outside)),
                "inside_ns": float(np.median(inside)),
                "slowdown_ratio": slowdown.value,
                "slowdown_lo_ratio": slowdown.lo,
                "slowdown_hi_ratio": slowdown.hi,
                "excess_ns": round(lost(outside, inside)),
                "hidden_ns": within["length_ns"].sum(),
            }
        )
    order = ["excess_ns", "name", "grid", "block", "bytes"]
    return pl.DataFrame(rows, schema=SLOWED).sort(
        order, descending=[True] + [False] * 4, nulls_last=True
    )


def _with_cover(trace: Trace) -> pl.DataFrame:
    """Work other than communication on GPUs that communicate, with its share beside collectives."""
    comm = collectives(trace)
    shapes = (
        trace.frame("kernels")
        .with_row_index("row")
        .select(
            "row",
            pl.format("{}x{}x{}", "grid_x", "grid_y", "grid_z").alias("grid"),
            pl.format("{}x{}x{}", "block_x", "block_y", "block_z").alias("block"),
            pl.lit("kernel", activity(trace)["source"].dtype).alias("source"),
        )
    )
    work = activity(trace).filter(
        ~pl.col("kind").is_in([*COMM_KINDS, OPAQUE])
        & pl.col("gpu").is_in(comm["gpu"].drop_nulls().unique().implode())
    )
    work = work.join(shapes, on=["source", "row"], how="left", maintain_order="left")
    work = work.join(
        kernel_names(trace).select("name_key", "name"),
        on="name_key",
        how="left",
        maintain_order="left",
    ).with_columns(
        pl.coalesce("name", "kind").alias("name"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns"),
    )
    parts = []
    for group in work.partition_by("gpu", "pid", "stream", maintain_order=True):
        union = merged(company_of(comm, group))
        starts, ends = group["start_ns"].to_numpy(), group["end_ns"].to_numpy()
        cover = intervals.overlap_ns(starts, ends, *union) / np.maximum(ends - starts, 1)
        parts.append(group.with_columns(pl.Series("cover_frac", cover)))
    none = work.with_columns(pl.lit(0.0).alias("cover_frac"))
    return pl.concat(parts) if parts else none
