"""From device work back to the host: the launching call, its range, its step and layer."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.trace import Trace, view
from tracekit.numerics import joins, stacks
from tracekit.views.activity import TABLES, activity, identified, queues, recorded
from tracekit.views.keys import row_numbers
from tracekit.views.steps import range_scopes, step_ranges, thread_code

__all__ = ["REASON", "attribution", "steps"]

REASON = pl.Enum(["attributed", "no_launch_record", "no_open_range", "other_thread"])
_ATTRIBUTED, _NO_LAUNCH, _NO_RANGE, _OTHER_THREAD = range(4)
"""Positions in `REASON`."""
_NONE = -1
_NODE_HOPS = 8
"""Clones of clones that are followed from an executed graph node to the captured one."""


@view("runtime", *TABLES.values(), of=[activity, queues])
def _launching_call(trace: Trace) -> pl.DataFrame:
    """The host call that launched each row of `activity`; nulls without one.

    Matched by (report, process, correlation id). When device rows carry no process, the ids are
    unambiguous only if a single process made calls.
    """
    work, calls = activity(trace), trace.frame("runtime")
    process, processes = row_numbers(calls.select("report", "pid"))
    known = queues(trace)
    if processes.height == 1 and known["pid"].null_count() == known.height:
        of_queue = np.zeros(known.height, np.int64)
    else:
        numbered = processes.with_row_index("_process")
        found = known.join(numbered, on=["report", "pid"], how="left", maintain_order="left")
        of_queue = found["_process"].cast(pl.Int64).fill_null(_NONE).to_numpy()
    row = joins.match(
        (of_queue[work["queue"].to_numpy()], _ids(recorded(trace, work, "correlation"))),
        (process.astype(np.int64), _ids(calls["correlation"])),
    )
    columns = calls.select(
        pl.col("start_ns").alias("launch_start_ns"),
        pl.col("end_ns").alias("launch_end_ns"),
        pl.col("tid").alias("launch_tid"),
        pl.col("pid").alias("launch_pid"),
    )
    return columns[_taken(row, calls.height)] if calls.height else _all_null(columns, work.height)


def _ids(correlation: pl.Series) -> NDArray[np.int64]:
    return correlation.cast(pl.Int64).fill_null(_NONE).to_numpy()


def _taken(row: NDArray[np.int64], n: int) -> pl.Series:
    series = pl.Series(row)
    return series.set((series < 0) | (series >= n), None).cast(pl.UInt32)


def _all_null(columns: pl.DataFrame, height: int) -> pl.DataFrame:
    return pl.DataFrame(
        {n: pl.Series(n, [None] * height, dtype=t) for n, t in columns.schema.items()}
    )


@view("graph_nodes", *TABLES.values(), of=[activity, queues, range_scopes])
def _capture_layer(trace: Trace) -> pl.Series:
    """Layer of graph kernels, from the range that was open when their node was captured."""
    nodes = trace.frame("graph_nodes")
    work = activity(trace)
    nothing = pl.repeat(None, work.height, dtype=pl.Int32, eager=True).alias("layer")
    node = recorded(trace, work, "graph_node")
    if nodes.is_empty() or node.null_count() == work.height:
        return nothing
    work = identified(trace, work.select("queue"), "report", "pid").with_columns(node)
    keys = ["report", "pid", "graph_node"]
    nodes = nodes.sort("start_ns").unique(keys, keep="first", maintain_order=True)
    for _ in range(_NODE_HOPS):
        known = nodes.select(*keys, pl.col("original_node").alias("_further"))
        nodes = nodes.join(
            known.rename({"graph_node": "original_node"}),
            on=["report", "pid", "original_node"],
            how="left",
            maintain_order="left",
        ).with_columns(pl.coalesce("_further", "original_node").alias("original_node"))
        if nodes["_further"].null_count() == nodes.height:
            break
        nodes = nodes.drop("_further")
    scopes = range_scopes(trace)
    inside = stacks.innermost(
        scopes["start_ns"].to_numpy(),
        scopes["end_ns"].to_numpy(),
        scopes["thread"].to_numpy(),
        nodes["start_ns"].to_numpy(),
        nodes.select(thread_code().fill_null(_NONE)).to_series().to_numpy(),
    )
    layers = scopes["layer"][_taken(inside, scopes.height)] if scopes.height else nothing
    if layers.null_count() == len(layers):
        return nothing
    captured = nodes.select(*keys).with_columns(layers.alias("layer"))
    root = nodes.select(
        "report",
        "pid",
        pl.col("graph_node").alias("executed"),
        pl.coalesce("original_node", "graph_node").alias("graph_node"),
    )
    by_node = root.join(captured, on=keys, how="left").select(
        "report", "pid", pl.col("executed").alias("graph_node"), "layer"
    )
    return work.join(by_node, on=keys, how="left", maintain_order="left").get_column("layer")


@view(of=[activity, queues, _launching_call, _capture_layer, range_scopes, step_ranges])
def attribution(trace: Trace) -> pl.DataFrame:
    """Return where on the host each row of `activity` comes from.

    The range is the innermost one that was open on the launching thread when the launching call
    began; work launched by a thread without an open range is not given to another thread's range.
    Kernels of a CUDA graph take their step from the graph launch and their layer from the range
    that was open when the node was captured.

    Returns:
        Frame of launch_start_ns Int64, launch_end_ns Int64, launch_tid UInt32, range Int64 (row in
        `ranges`), step UInt32 (in `step_ranges`), layer Int32, reason Enum `REASON`; one row per
        row of `activity`, in its order.
    """
    calls, work, scopes = _launching_call(trace), activity(trace), range_scopes(trace)
    times = calls["launch_start_ns"].fill_null(np.iinfo(np.int64).min).to_numpy()
    where = identified(trace, work.select("queue"), "report")
    where = where.with_columns(calls["launch_pid"], calls["launch_tid"])
    threads = where.select(thread_code("launch_").fill_null(_NONE)).to_series().to_numpy()
    starts, ends = scopes["start_ns"].to_numpy(), scopes["end_ns"].to_numpy()
    own = scopes["thread"].to_numpy()
    inside = stacks.innermost(starts, ends, own, times, threads)
    launched = calls["launch_start_ns"].is_not_null().to_numpy()
    reason = np.where(inside >= 0, _ATTRIBUTED, np.where(launched, _NO_RANGE, _NO_LAUNCH))
    # A thread code is its process code times 2^24 plus the thread: shifting leaves the process.
    lost = np.flatnonzero(launched & (inside < 0))
    elsewhere = stacks.innermost(starts, ends, own >> 24, times[lost], threads[lost] >> 24)
    reason[lost[elsewhere >= 0]] = _OTHER_THREAD
    picked = scopes.select("range", "step_range", "layer")
    picked = (
        picked[_taken(inside, scopes.height)] if scopes.height else _all_null(picked, work.height)
    )
    numbers = step_ranges(trace).select(pl.col("range").alias("step_range"), "step")
    joined = picked.join(numbers, on="step_range", how="left", maintain_order="left")
    return calls.select("launch_start_ns", "launch_end_ns", "launch_tid").with_columns(
        joined["range"],
        joined["step"],
        _capture_layer(trace)
        .zip_with(_capture_layer(trace).is_not_null(), joined["layer"])
        .alias("layer"),
        _named(reason),
    )


def _named(reason: NDArray[np.int64]) -> pl.Series:
    names = pl.Series(REASON.categories).cast(REASON)
    return names[pl.Series(reason.astype(np.uint32))].alias("reason")


@view(of=[activity, attribution, step_ranges])
def steps(trace: Trace) -> pl.DataFrame:
    """Return the steps with the device time that each kept.

    Returns:
        `step_ranges` plus gpu_start_ns Int64 and gpu_end_ns Int64 (first start to last end of the
        device work launched inside, null without any) and n_work UInt32.
    """
    work = activity(trace).select("start_ns", "end_ns").hstack(attribution(trace).select("step"))
    spans = (
        work.drop_nulls("step")
        .group_by("step")
        .agg(
            pl.col("start_ns").min().alias("gpu_start_ns"),
            pl.col("end_ns").max().alias("gpu_end_ns"),
            pl.len().alias("n_work"),
        )
    )
    joined = step_ranges(trace).join(spans, on="step", how="left", maintain_order="left")
    return joined.with_columns(pl.col("n_work").fill_null(0))
