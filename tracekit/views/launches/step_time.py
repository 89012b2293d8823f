"""The time that losses are compared with: a rank's steps by group, or the whole capture."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, clock_spans, gpu_spans, queues
from tracekit.views.launches.attribution import attribution, steps

__all__ = ["CAPTURE", "gpu_time_of_capture", "gpu_time_of_steps", "share_of_steps", "step_time"]

_NO_STEP, _NO_GPU = np.iinfo(np.uint32).max, -1
CAPTURE = "capture"
"""Group of everything when there are no steps."""


@view
def gpu_time_of_steps(trace: Trace) -> pl.DataFrame:
    """Return how long each step kept each of its GPUs.

    Work adds up over GPUs, so what it is a share of must add up over them too.

    Returns:
        Frame of step UInt32, gpu Int16, time_ns Int64 (first start to last end of the step's work
        on that GPU); sorted by step and gpu. Steps without device work have no row.
    """
    work, step = activity(trace), attribution(trace)["step"]
    if work.is_empty():
        return work.select(step, "gpu", pl.col("start_ns").alias("time_ns"))
    # Work is sorted by GPU and start, so that of one step comes in few runs.
    codes = step.fill_null(_NO_STEP).to_numpy(), work["gpu"].fill_null(_NO_GPU).to_numpy()
    opens = np.ones(work.height, np.bool_)
    opens[1:] = (codes[0][1:] != codes[0][:-1]) | (codes[1][1:] != codes[1][:-1])
    first = np.flatnonzero(opens)
    runs = work.select("gpu", "start_ns")[first].with_columns(
        step[first], pl.Series("end_ns", np.maximum.reduceat(work["end_ns"].to_numpy(), first))
    )
    length = (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("time_ns")
    found = runs.drop_nulls("step").group_by("step", "gpu").agg(length)
    return found.sort("step", "gpu", nulls_last=True)


@view
def gpu_time_of_capture(trace: Trace) -> int:
    """Return the time from first to last work of each GPU, added up, ns."""
    spans = gpu_spans(trace)
    return int((spans["end_ns"] - spans["start_ns"]).sum())


@view
def step_time(trace: Trace) -> pl.DataFrame:
    """Return how long the steps of each process kept the device.

    Returns:
        Frame of report UInt16, pid UInt32, step_group String, n_steps UInt32, time_ns Int64 (sum
        of GPU spans); sorted. Without steps one row a process of group `CAPTURE` that lasts from
        the first to the last device activity of all reports on the same clock.
    """
    spans = steps(trace).drop_nulls("gpu_start_ns")
    if spans.height:
        length = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
        keys = ["report", "pid", pl.col("group").alias("step_group")]
        grouped = spans.group_by(keys).agg(pl.len().alias("n_steps"), length.sum().alias("time_ns"))
        return grouped.sort("report", "pid", "step_group")
    processes = queues(trace).select("report", "pid").unique().sort("report", "pid")
    return processes.join(
        clock_spans(trace), on="report", how="left", maintain_order="left"
    ).select(
        "report",
        "pid",
        pl.lit(CAPTURE).alias("step_group"),
        pl.lit(0, pl.UInt32).alias("n_steps"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("time_ns"),
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
