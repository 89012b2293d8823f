"""The time that losses are compared with: a rank's steps by group, or the whole capture."""

from __future__ import annotations

import polars as pl

from tracekit.model.trace import Trace, view
from tracekit.views.activity import activity, activity_span
from tracekit.views.attribution import steps

__all__ = ["CAPTURE", "share_of_steps", "step_time"]

CAPTURE = "capture"
"""Group of everything when there are no steps."""


@view(of=[activity, activity_span, steps])
def step_time(trace: Trace) -> pl.DataFrame:
    """Return how long the steps of each process kept the device.

    Returns:
        Frame of report UInt16, pid UInt32, step_group String, n_steps UInt32, time_ns Int64 (sum
        of GPU spans); sorted. Without steps one row a process of group `CAPTURE` that lasts from
        the first to the last device activity of the trace.
    """
    spans = steps(trace).drop_nulls("gpu_start_ns")
    if spans.height:
        length = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
        keys = ["report", "pid", pl.col("group").alias("step_group")]
        grouped = spans.group_by(keys).agg(pl.len().alias("n_steps"), length.sum().alias("time_ns"))
        return grouped.sort("report", "pid", "step_group")
    span = activity_span(trace)
    whole = 0 if span is None else span[1] - span[0]
    processes = activity(trace).select("report", "pid").unique().sort("report", "pid")
    return processes.with_columns(
        pl.lit(CAPTURE).alias("step_group"),
        pl.lit(0, pl.UInt32).alias("n_steps"),
        pl.lit(whole, pl.Int64).alias("time_ns"),
    )


def share_of_steps(lost: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Turn lost time into shares of step time, per step group and over all.

    Args:
        lost: Frame of step_group String (null outside steps) and lost_ns Int64, any other columns
            being keys; one row a key and group at most.
        times: `step_time`; where processes differ their mean counts.

    Returns:
        `lost` with time_ns Float64, lost_frac Float64 (of its group), all_time_ns Float64. Rows
        outside steps keep null shares, unless there are no steps at all.
    """
    mean = times.group_by("step_group").agg(pl.col("time_ns").mean())
    whole = mean["time_ns"].sum()
    if times["step_group"].eq(CAPTURE).all():
        lost = lost.with_columns(pl.lit(CAPTURE).alias("step_group"))
    joined = lost.join(mean, on="step_group", how="left", maintain_order="left")
    some = pl.when(pl.col("time_ns") > 0).then(pl.col("lost_ns") / pl.col("time_ns"))
    return joined.with_columns(
        some.alias("lost_frac"), pl.lit(float(whole or 0), pl.Float64).alias("all_time_ns")
    )
