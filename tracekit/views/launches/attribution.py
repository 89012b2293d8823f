"""From device work back to the host: the launching call, its range, its step and layer."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.cupti import STREAM_WAIT_EVENT
from tracekit.model.table import Column, Table
from tracekit.numerics import numbering, stacks
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, device_ids, identified, queues
from tracekit.views.keys import row_numbers
from tracekit.views.launches.graph_replays import graph_replays
from tracekit.views.launches.step_ranges import range_scopes, range_threads, step_ranges
from tracekit.views.nvtx.ranges import ranges

__all__ = [
    "REASON",
    "HostCalls",
    "attribution",
    "event_waits",
    "host_calls",
    "launching_calls",
    "steps",
]

_CALL = ["report", "pid", "correlation"]
_RECORD = ["report", "pid", "event_sync"]
EVENT_WAITS = Table(
    "event_waits",
    (
        Column("report", pl.UInt16, "", "report"),
        Column("pid", pl.UInt32, "", "process"),
        Column("record_context", pl.Int64, "", "context that records the event"),
        Column("record_stream", pl.Int64, "", "stream that records it"),
        Column("record_ns", pl.Int64, "ns", "time of that call"),
        Column("wait_context", pl.Int64, "", "context that waits"),
        Column("wait_stream", pl.Int64, "", "stream that waits"),
        Column("wait_ns", pl.Int64, "ns", "time of the waiting call"),
    ),
    "one wait of a stream for an event",
)


@view
def event_waits(trace: Trace) -> pl.DataFrame:
    """Return every wait of a stream for an event.

    Returns:
        Frame of report, pid, the stream (context and stream) and host time ns of the record that
        is waited for, and the stream and host time of the wait, by report, pid and wait_ns. What
        is unknown (no record of that number, no host call) is null.
    """
    waits = trace.frame("sync").filter(pl.col("sync_type") == STREAM_WAIT_EVENT)
    if waits.is_empty():
        return EVENT_WAITS.empty()
    records = _called(trace, trace.frame("event_records"), "record")
    # Two records of one number would leave open which is meant.
    records = records.drop_nulls("event_sync").unique(_RECORD, keep="none")
    waits = _called(trace, waits, "wait")
    joined = waits.join(records, on=_RECORD, how="left", maintain_order="left")
    return EVENT_WAITS.select(joined).sort("report", "pid", "wait_ns", nulls_last=True)


def _called(trace: Trace, rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """Name the columns of a record or wait, with the time of the host call that made it."""
    calls = trace.frame("runtime").join(rows, on=_CALL, how="semi")
    calls = calls.group_by(_CALL).agg(pl.col("start_ns").min().alias(f"{name}_ns"))
    return rows.join(calls, on=_CALL, how="left", maintain_order="left").select(
        "report",
        "pid",
        "event_sync",
        f"{name}_ns",
        pl.col("context").alias(f"{name}_context"),
        pl.col("stream").alias(f"{name}_stream"),
    )


REASON = pl.Enum(["attributed", "no_launch_record", "no_open_range", "other_thread"])
_ATTRIBUTED, _NO_LAUNCH, _NO_RANGE, _OTHER_THREAD = range(4)
"""Positions in `REASON`."""
_NONE = -1
_NODE_HOPS = 8
"""Clones of clones that are followed from an executed graph node to the captured one."""
_THREAD, _PROCESS = ["report", "pid", "tid"], ["report", "pid"]
Int32 = NDArray[np.int32]


class HostCalls(NamedTuple):
    """Host calls, and which of them launched the device work.

    Attributes:
        of_work: int32[n], row of ``runtime`` for each row of `activity`, -1 without one.
        thread: uint32[m], row of `threads` of each call.
        threads: Frame of report, pid and tid.
    """

    of_work: Int32
    thread: NDArray[np.uint32]
    threads: pl.DataFrame


class _Launches(NamedTuple):
    """Which host calls launched the device work.

    Attributes:
        call: int32[n], row of ``runtime`` for each row of `activity`, -1 without one.
        inside: int32[n], row of `range_scopes` that was innermost on the launching thread.
        elsewhere: bool[n], no range was, but one of another thread of the process.
    """

    call: Int32
    inside: Int32
    elsewhere: NDArray[np.bool_]


@view
def host_calls(trace: Trace) -> HostCalls:
    """The host call that launched each row of `activity`.

    Matched by (report, process, correlation id). When device rows carry no process, the ids are
    unambiguous only if a single process made calls.
    """
    work, calls = activity(trace), trace.frame("runtime")
    thread, threads = row_numbers(calls.select(_THREAD))
    if calls.is_empty():
        return HostCalls(np.full(work.height, _NONE, np.int32), thread, threads)
    of_thread, processes = row_numbers(threads.select(_PROCESS))
    known = queues(trace)
    keys = _PROCESS
    if processes.height == 1 and known["pid"].null_count() == known.height:
        keys = ["report"]
    of_queue = _places(known, processes, keys)
    row = numbering.match(
        (work["queue"].to_numpy(), of_queue, _ids(device_ids(trace).correlation)),
        (thread, of_thread, _ids(calls["correlation"])),
    )
    return HostCalls(row, thread, threads)


@view
def launching_calls(trace: Trace) -> NDArray[np.bool_]:
    """Return which host calls launched recorded device work; bool, a value a row of ``runtime``."""
    launched = np.zeros(trace.frame("runtime").height + 1, np.bool_)
    launched[host_calls(trace).of_work] = True  # The last one stands for no call.
    return launched[:-1]


def _ids(correlation: pl.Series) -> NDArray[np.uint32]:
    return correlation.fill_null(numbering.NO_ID).to_numpy()


def _places(rows: pl.DataFrame, table: pl.DataFrame, keys: list[str]) -> Int32:
    """Row of a table of distinct keys for each row, -1 for none; nulls are no key."""
    numbered = table.select(*keys, pl.int_range(pl.len(), dtype=pl.Int32).alias("_place"))
    found = rows.select(keys).join(numbered, on=keys, how="left", maintain_order="left")
    return found["_place"].fill_null(_NONE).to_numpy()


@view
def _launches(trace: Trace) -> _Launches:
    """Look for the ranges around the calls: those are nearly in order of time, unlike the work."""
    calls, scopes, known = host_calls(trace), range_scopes(trace), range_threads(trace)
    row, own = calls.of_work, scopes["thread"].to_numpy()
    launching = np.zeros(calls.thread.size + 1, np.bool_)
    launching[row] = True  # The last one stands for no call.
    at = np.flatnonzero(launching[:-1]).astype(np.int32)
    if scopes.is_empty() or not at.size:
        return _Launches(row, np.full(row.size, _NONE, np.int32), np.zeros(row.size, np.bool_))
    times = trace.frame("runtime")["start_ns"].to_numpy()
    around = partial(_innermost, scopes, times=times, labels=calls.thread)
    inside = around(own, at, groups=_places(calls.threads, known, _THREAD))
    found, lost = _taken(inside, row), at[inside.take(at) < 0]
    if not lost.size:
        return _Launches(row, found, np.zeros(row.size, np.bool_))
    process, processes = row_numbers(known.select(_PROCESS))
    shared = _places(calls.threads, processes, _PROCESS)
    return _Launches(row, found, _taken(around(process[own], lost, groups=shared), row) >= 0)


def _taken(values: Int32, rows: Int32) -> Int32:
    """The values of rows, -1 for a negative row."""
    found = values.take(rows)
    found[rows < 0] = _NONE
    return found


def _innermost(
    scopes: pl.DataFrame,
    own: NDArray[Any],
    points: Int32 | None = None,
    *,
    times: NDArray[np.int64],
    groups: Int32,
    labels: NDArray[np.uint32],
) -> Int32:
    starts, ends = (scopes[c].to_numpy() for c in ("start_ns", "end_ns"))
    n_groups = int(own.max(initial=0)) + 1
    groups = np.where(groups < n_groups, groups, _NONE)
    return stacks.innermost(
        starts, ends, own, times, labels, n_groups=n_groups, group_of=groups, points=points
    )


def _or_null(rows: Int32) -> pl.Series:
    series = pl.Series(rows)
    return series.set(series < 0, None).cast(pl.UInt32)


def _picked(columns: pl.DataFrame, rows: Int32) -> pl.DataFrame:
    """Rows of a frame, all null for a negative number."""
    if columns.is_empty():
        columns = columns.clear(1)
    return columns[_or_null(rows)]


@view
def _capture_layer(trace: Trace) -> pl.Series | None:
    """Layer of graph kernels, from the range that was open when their node was captured.

    None where no layer is known.
    """
    nodes = trace.frame("graph_nodes")
    node = device_ids(trace).graph_node
    if nodes.is_empty() or node is None:
        return None
    work = identified(trace, activity(trace).select("queue"), "report", "pid")
    work = work.with_columns(node.alias("graph_node"))
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
    scopes, thread = range_scopes(trace), _places(nodes, range_threads(trace), _THREAD)
    around = _innermost(
        scopes,
        scopes["thread"].to_numpy(),
        times=nodes["start_ns"].to_numpy(),
        groups=thread,
        labels=np.arange(nodes.height, dtype=np.uint32),
    )
    layers = _picked(scopes.select("layer"), around).to_series()
    if layers.null_count() == len(layers):
        return None
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


@view
def attribution(trace: Trace) -> pl.DataFrame:
    """Return where on the host each row of `activity` comes from.

    The range is the innermost one that was open on the launching thread when the launching call
    began; work launched by a thread without an open range is not given to another thread's range.
    Kernels of a CUDA graph take their step from the graph launch and their layer from the range
    that was open when the node was captured.

    Returns:
        Frame of launch_start_ns Int64, launch_tid UInt32, range UInt32 (row in `ranges`), step
        UInt32 (in `step_ranges`), layer Int32, reason Enum `REASON`; one row per row of
        `activity`, in its order.
    """
    launches, scopes = _launches(trace), range_scopes(trace)
    calls = trace.frame("runtime").select(launch_start_ns="start_ns", launch_tid="tid")
    numbers = step_ranges(trace).drop_nulls("range")
    step = np.full(ranges(trace).height + 1, _NONE, np.int32)
    step[numbers["range"].to_numpy()] = numbers["step"].to_numpy()
    own = _or_null(step[scopes["step_range"].fill_null(_NONE).to_numpy()]).alias("step")
    around = _picked(scopes.select("range", own, "layer"), launches.inside)
    if numbers.is_empty() and step_ranges(trace).height:
        replay = _taken(graph_replays(trace).of_call, launches.call)
        around = around.with_columns(_or_null(replay).alias("step"))
    captured = _capture_layer(trace)
    if captured is not None:
        layer = captured.zip_with(captured.is_not_null(), around["layer"])
        around = around.with_columns(layer.alias("layer"))
    reason = np.where(launches.call >= 0, np.uint8(_NO_RANGE), np.uint8(_NO_LAUNCH))
    reason[launches.inside >= 0] = _ATTRIBUTED
    reason[launches.elsewhere] = _OTHER_THREAD
    said = pl.Series("reason", REASON.categories, REASON)[pl.Series(reason)]
    return _picked(calls, launches.call).hstack(around).hstack([said])


@view
def steps(trace: Trace) -> pl.DataFrame:
    """Return the steps with the device time that each kept.

    Returns:
        `step_ranges` plus gpu_start_ns Int64 and gpu_end_ns Int64 (first start to last end of the
        device work launched inside, null without any) and n_work UInt32.
    """
    work = activity(trace).select("start_ns", "end_ns").hstack(attribution(trace).select("step"))
    spans = (
        work.group_by("step")
        .agg(
            pl.col("start_ns").min().alias("gpu_start_ns"),
            pl.col("end_ns").max().alias("gpu_end_ns"),
            pl.len().alias("n_work"),
        )
        .drop_nulls("step")
    )
    joined = step_ranges(trace).join(spans, on="step", how="left", maintain_order="left")
    return joined.with_columns(pl.col("n_work").fill_null(0))
