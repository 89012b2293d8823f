"""Whom the time that contention costs can be put down to: the work beside slowed collectives."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.numerics import intervals
from tracekit.numerics.excess import assign_excess
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.collectives.instances import instances, matching
from tracekit.views.collectives.overlap import comm_overlap
from tracekit.views.contention.loss import contention_excess
from tracekit.views.device.activity import activity
from tracekit.views.device.kernels import kernel_names
from tracekit.views.device.lanes import Lanes, lanes

__all__ = ["ATTRIBUTION", "excess_attribution"]

_PAIR = ["comm", "op", "mechanism"]
ATTRIBUTION = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "mechanism": pl.String(),
        "gpu": pl.Int16(),
        "corunner": pl.String(),
        "kind": pl.String(),
        "n": pl.Int64(),
        "excess_ns": pl.Float64(),
        "excess_frac": pl.Float64(),
    }
)
"""Columns of `excess_attribution`."""


@view(of=[activity, contention_excess, comm_overlap, instances, kernel_names, lanes, matching])
def excess_attribution(trace: Trace) -> pl.DataFrame:
    """Return which co-running work the lost time goes with.

    The excess of a collective is spread over what ran beside it on each of its GPUs, in
    proportion to the integral of 1 / (rows active) over the common time, an equal part a GPU.

    Returns:
        Frame of `ATTRIBUTION`, most excess first within comm, op, mechanism: corunner is the
        kernel's name or the kind of copy, n its executions that shared time, excess_frac the
        share of the mechanism's excess.
    """
    slowed = contention_excess(trace).drop_nulls("excess_ns")
    if slowed.is_empty():
        return pl.DataFrame(schema=ATTRIBUTION)
    pairs = slowed.select(_PAIR).unique(maintain_order=True).with_row_index("pair")
    slowed = slowed.join(pairs, on=_PAIR, how="left", nulls_equal=True, maintain_order="left")
    rows = _with_windows(trace, slowed)
    work = activity(trace).select("name_key", "kind")
    found_on = lanes(trace)

    def assigned(of_gpu: pl.DataFrame) -> list[pl.DataFrame]:
        return _assigned(of_gpu, found_on[of_gpu["gpu"][0]], work)

    gpus = rows.partition_by("gpu", maintain_order=True)
    parts = [part for of_gpu in each(assigned, gpus) for part in of_gpu]
    names = kernel_names(trace).select("name_key", pl.col("name").alias("corunner"))
    found = (
        pl.concat(parts)
        .join(pairs, on="pair", how="left", maintain_order="left")
        .join(names, on="name_key", how="left", maintain_order="left")
    )
    found = found.with_columns(
        pl.coalesce("corunner", pl.col("kind").cast(pl.String)).alias("corunner")
    )
    shares = pl.col("excess_ns") / pl.col("excess_ns").sum().over(_PAIR)
    found = found.with_columns(shares.alias("excess_frac")).select(list(ATTRIBUTION))
    order = [*_PAIR, "excess_ns", "gpu", "corunner"]
    return found.cast(ATTRIBUTION).sort(order, descending=[False] * 3 + [True] + [False] * 2)


def _with_windows(trace: Trace, slowed: pl.DataFrame) -> pl.DataFrame:
    """Windows of the members of slowed collectives, each with its part of the excess, in order."""
    members = matching(trace).members
    excess = np.full(instances(trace).height, np.nan)
    pair = np.zeros(excess.size, np.uint32)
    own = slowed["instance"].to_numpy()
    excess[own], pair[own] = slowed["excess_ns"].to_numpy(), slowed["pair"].to_numpy()
    instance = members["instance"].to_numpy()
    at = np.flatnonzero(~np.isnan(excess)[instance])
    at = at[np.argsort(members["activity"].to_numpy()[at])]
    part = excess / np.bincount(instance, minlength=excess.size)
    rows = members.select("row", "gpu", "end_ns")[at]
    return (
        comm_overlap(trace)
        .kernels.select("window_start_ns")[rows["row"]]
        .hstack(
            [
                *rows.drop("row"),
                pl.Series("pair", pair[instance[at]]),
                pl.Series("excess_ns", part[instance[at]]),
            ]
        )
    )


def _assigned(rows: pl.DataFrame, lane: Lanes, work: pl.DataFrame) -> list[pl.DataFrame]:
    """Excess by co-running name and kind on one GPU, a frame a mechanism."""
    parts = []
    for own in rows.partition_by("pair", maintain_order=True):
        start, end, excess = (own[c].to_numpy() for c in ("window_start_ns", "end_ns", "excess_ns"))
        other = lane.rows_beside(intervals.union(start, end))
        given, weight = assign_excess(start, end, excess, lane.start[other], lane.end[other])
        at = np.flatnonzero(weight > 0)
        shared = work[(lane.first + other[at]).astype(np.uint32)]
        shared = shared.with_columns(pl.Series("excess_ns", given[at]))
        shared = shared.group_by("name_key", "kind").agg(
            pl.len().cast(pl.Int64).alias("n"), pl.col("excess_ns").sum()
        )
        gpu = pl.lit(own["gpu"][0], pl.Int16).alias("gpu")
        parts.append(shared.with_columns(gpu, pl.lit(own["pair"][0], pl.UInt32).alias("pair")))
    return parts
