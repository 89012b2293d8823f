"""Replays of CUDA graphs as steps, for runs in which no range marks any.

A serving loop replays one graph a step, or the same few graphs in the same order. Where the order
repeats, one period is a step; otherwise every replay is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import ApiKind
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, device_ids, identified
from tracekit.views.launches.call_names import call_names

__all__ = ["GROUP", "GraphReplays", "graph_launches", "graph_replays"]

GROUP = "graph replay"
"""Group of all steps that are replays."""
_LEAST = 2
"""Fewer replays in a thread repeat nothing."""
_REPEATING = 0.9
_GRAPH_SHIFT = 32
"""The upper half of the id of an executed node is its graph's."""
_THREAD = ["report", "pid", "tid"]


class GraphReplays(NamedTuple):
    """Steps that are replays of CUDA graphs.

    Attributes:
        steps: Frame of report UInt16, pid UInt32, tid UInt32, start_ns Int64, end_ns Int64 (first
            to last graph launch of the step, host time) and first_call UInt32 (row of ``runtime``);
            by report, start and call.
        of_call: int32[calls], row of `steps` that each call of ``runtime`` lies in, -1 for none;
            empty where no graph is launched.
    """

    steps: pl.DataFrame
    of_call: NDArray[np.int32]


@view
def graph_launches(trace: Trace) -> pl.DataFrame:
    """Return the calls that launch CUDA graphs.

    Returns:
        Frame of call UInt32 (row of ``runtime``), report UInt16, pid UInt32, tid UInt32, start_ns
        Int64, end_ns Int64, correlation UInt32; by thread and start.
    """
    calls = trace.frame("runtime")
    launching = call_names(trace).ids(ApiKind.GRAPH_LAUNCH)
    wanted = calls.select(*_THREAD, "start_ns", "end_ns", "correlation", "name_id")
    found = wanted.with_row_index("call").filter(pl.col("name_id").is_in(launching))
    return found.drop("name_id").sort(*_THREAD, "start_ns", "call")


@view
def graph_replays(trace: Trace) -> GraphReplays:
    """Return the steps that replays of CUDA graphs are."""
    launches = graph_launches(trace)
    if launches.is_empty():
        return GraphReplays(_steps([]), np.empty(0, np.int32))
    launches = launches.join(
        _graphs(trace, launches), on=["report", "pid", "correlation"], how="inner"
    ).sort(*_THREAD, "start_ns", "call")
    rows: list[dict[str, Any]] = []
    for _, own in launches.group_by(_THREAD, maintain_order=True):
        if own.height < _LEAST:
            continue
        length = _period(own["graph"].fill_null(-1).to_numpy())
        first = own.gather_every(length)
        last = np.minimum(np.arange(first.height) * length + length, own.height) - 1
        ends = own["end_ns"].gather(last)
        rows += first.with_columns(ends.alias("end_ns")).drop("graph").to_dicts()
    steps = _steps(rows)
    of_call = np.full(trace.frame("runtime").height, -1, np.int32)
    _place(trace.frame("runtime"), steps, of_call)
    return GraphReplays(steps, of_call)


def _steps(rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = {
        "report": pl.UInt16,
        "pid": pl.UInt32,
        "tid": pl.UInt32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "call": pl.UInt32,
    }
    frame = pl.DataFrame(rows, schema=schema).rename({"call": "first_call"})
    return frame.sort("report", "start_ns", "first_call")


def _graphs(trace: Trace, launches: pl.DataFrame) -> pl.DataFrame:
    """Which graph each launch replays, known from the nodes or the graph that ran."""
    ids = device_ids(trace)
    work = (
        activity(trace)
        .select("source", "row", "queue")
        .with_columns(
            ids.correlation.alias("correlation"),
            (
                pl.lit(None, pl.Int64) if ids.graph_node is None else ids.graph_node.alias("node")
            ).alias("node"),
        )
    )
    work = work.filter(pl.col("correlation").is_in(launches["correlation"].unique().implode()))
    work = work.hstack(identified(trace, work, "report", "pid").select("report", "pid"))
    whole = (
        trace.frame("graph_trace")
        .select(pl.coalesce("graph_exec", "graph").alias("executed"))
        .with_row_index("row")
        .with_columns(pl.lit("graph").cast(work.schema["source"]).alias("source"))
    )
    work = work.join(whole, on=["source", "row"], how="left")
    graph = pl.coalesce("executed", pl.col("node") // (1 << _GRAPH_SHIFT)).min().alias("graph")
    return work.group_by("report", "pid", "correlation").agg(graph)


def _period(graphs: NDArray[np.int64]) -> int:
    """After how many replays the order of graphs repeats; 1 where it does not."""
    again = np.flatnonzero(graphs[1:] == graphs[0])
    if not again.size:
        return 1
    length = int(again[0]) + 1
    same = graphs[length:] == graphs[:-length]
    return length if same.mean() >= _REPEATING else 1


def _place(calls: pl.DataFrame, steps: pl.DataFrame, of_call: NDArray[np.int32]) -> None:
    """Say for each call which step it lies in."""
    numbered = steps.with_row_index("step")
    for key, own in numbered.group_by(_THREAD):
        here = pl.all_horizontal(
            pl.col(c).eq_missing(pl.lit(v, calls.schema[c]))
            for c, v in zip(_THREAD, key, strict=True)
        )
        rows = calls.select(here.arg_true()).to_series().to_numpy()
        own = own.sort("start_ns")
        starts, ends, number = (own[c].to_numpy() for c in ("start_ns", "end_ns", "step"))
        times = calls["start_ns"].to_numpy()[rows]
        at = np.searchsorted(starts, times, side="right") - 1
        inside = (at >= 0) & (times < np.maximum(ends, starts + 1)[np.maximum(at, 0)])
        of_call[rows[inside]] = number[at[inside]]
