"""All device work on one list: kernels, copies, memsets and opaque graph launches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.trace import Trace, view
from tracekit.views.device.kernels import COPY_KINDS, OPAQUE, WORK_KIND, kernels
from tracekit.views.keys import row_numbers

__all__ = [
    "COPY_KINDS",
    "OPAQUE",
    "SOURCE",
    "TABLES",
    "WORK_KIND",
    "DeviceIds",
    "activity",
    "activity_span",
    "clock_spans",
    "device_ids",
    "gpu_spans",
    "identified",
    "queues",
    "used_gpus",
]

TABLES = {"kernel": "kernels", "memcpy": "memcpy", "memset": "memset", "graph": "graph_trace"}
"""Source of device work to its table in the catalog."""
SOURCE = pl.Enum(list(TABLES))
_COLUMNS = ("gpu", "start_ns", "end_ns", "source", "row", "kind", "name_key", "queue")
_QUEUE = ["gpu", "report", "pid", "context", "stream"]
_NO_GPU = -1
"""Sorts before every GPU, as null does."""


class _Work(NamedTuple):
    """All device work.

    Attributes:
        rows: Frame of `activity`.
        queues: Frame of `queues`.
    """

    rows: pl.DataFrame
    queues: pl.DataFrame


@view
def _work(trace: Trace) -> _Work:
    frames = [trace.frame(table) for table in TABLES.values()]
    queue, table = row_numbers(pl.concat(frame.select(_QUEUE) for frame in frames))
    order, columns = in_order(*_places_of(frames))
    at = pl.Series(order)
    columns["source"], columns["row"] = _origins(order, [frame.height for frame in frames])
    columns["kind"] = pl.concat(_kinds(trace), rechunk=True).gather(at)
    columns["name_key"] = _name_keys(trace, columns["source"], columns["row"])
    columns["queue"] = pl.Series(queue).gather(at)
    return _Work(pl.DataFrame({name: columns[name] for name in _COLUMNS}), table)


def _places_of(frames: Sequence[pl.DataFrame]) -> list[pl.Series]:
    """GPU, start and end of all rows, each in one piece."""
    wanted = ("gpu", "start_ns", "end_ns")
    return [
        pl.concat([f[name] for f in frames if f.height] or [frames[0][name]]) for name in wanted
    ]


def _kinds(trace: Trace) -> list[pl.Series]:
    copies = trace.frame("memcpy").select(
        pl.concat_str(
            pl.lit("memcpy "),
            pl.col("copy_kind").replace_strict(
                COPY_KINDS, default=pl.lit("kind unknown"), return_dtype=pl.String
            ),
        ).cast(WORK_KIND)
    )
    constant = [
        pl.repeat(kind, trace.frame(table).height, dtype=WORK_KIND, eager=True)
        for kind, table in (("memset", "memset"), (OPAQUE, "graph_trace"))
    ]
    return [kernels(trace)["kind"], copies.to_series(), *constant]


def _origins(order: NDArray[np.uint32], heights: Sequence[int]) -> tuple[pl.Series, pl.Series]:
    """From which table and which of its rows each comes."""
    first = np.cumsum([0, *heights[:-1]], dtype=np.uint32)
    code = np.zeros(order.size, np.uint8)
    for number in first[1:]:
        code += order >= number
    row, later = order.copy(), np.flatnonzero(code)
    row[later] -= first[code[later]]
    return pl.Series(list(TABLES), dtype=SOURCE)[pl.Series(code)], pl.Series(row)


def _name_keys(trace: Trace, source: pl.Series, row: pl.Series) -> pl.Series:
    keys = kernels(trace)["name_key"]
    if len(keys) == len(row):
        return keys.gather(row)
    is_kernel = source.to_physical() == 0
    return keys.gather(pl.select(pl.when(is_kernel).then(row)).to_series())


@view
def activity(trace: Trace) -> pl.DataFrame:
    """Return every interval in which a device worked.

    Returns:
        Frame of gpu Int16, start_ns Int64, end_ns Int64, source Enum `SOURCE`, row UInt32 (row in
        the catalog frame of that source), kind `WORK_KIND` (kernel class, "memcpy DtoD", "memset",
        `OPAQUE`), name_key UInt32 (null for no kernel), queue UInt32 (row of `queues`); sorted by
        gpu, start_ns, end_ns, source, row. What else is known of a row: `identified`, `device_ids`.
    """
    return _work(trace).rows


@view
def queues(trace: Trace) -> pl.DataFrame:
    """Return the streams with work.

    Returns:
        Frame of gpu Int16, report UInt16, pid UInt32, context Int64, stream Int64; sorted, nulls
        last.
    """
    return _work(trace).queues


def identified(trace: Trace, work: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return rows of `activity` with columns of `queues`.

    Args:
        trace: The run.
        work: Has the column ``queue``.
        columns: Which; report, pid, context and stream when none is named.
    """
    wanted = columns or ("report", "pid", "context", "stream")
    return work.hstack(queues(trace).select(wanted)[work["queue"]])


class DeviceIds(NamedTuple):
    """Ids of device work that lead back to the host.

    Attributes:
        correlation: UInt32, id of the launching call within its process; a row a row of `activity`.
        graph_node: Int64 likewise, node of a CUDA graph; None when no work has any.
    """

    correlation: pl.Series
    graph_node: pl.Series | None


@view
def device_ids(trace: Trace) -> DeviceIds:
    """Return the ids of all device work."""
    return DeviceIds(_recorded(trace, "correlation"), _node_ids(trace))


def _node_ids(trace: Trace) -> pl.Series | None:
    nodes = _recorded(trace, "graph_node")
    return None if nodes.null_count() == len(nodes) else nodes


def _recorded(trace: Trace, column: str) -> pl.Series:
    """A column of ids of the catalog frames for all rows of `activity`."""
    frames = [trace.frame(table) for table in TABLES.values()]
    height, dtype = activity(trace).height, frames[0].schema[column]
    known = [f[column] for f in frames if column in f.columns and f.height]
    if all(part.null_count() == len(part) for part in known):
        return pl.repeat(None, height, dtype=dtype, eager=True).alias(column)
    whole = pl.concat(
        f[column] if column in f.columns else pl.repeat(None, f.height, dtype=dtype, eager=True)
        for f in frames
    )
    before = np.cumsum([0, *(f.height for f in frames)], dtype=np.uint32)
    source, row = activity(trace)["source"].to_physical(), activity(trace)["row"]
    return whole[pl.Series(before[source.to_numpy()] + row.to_numpy())]


def in_order(
    gpu: pl.Series, start: pl.Series, end: pl.Series
) -> tuple[NDArray[np.uint32], dict[str, pl.Series]]:
    """Put rows in order of GPU, start and end; what agrees in all of them stays as it is.

    A table of the profiler is in time order but for a few rows, which a merging sort of one column
    makes use of; only rows that begin at one moment on one GPU are compared by more.

    Args:
        gpu: Int16, nulls first.
        start: Int64, ns.
        end: Int64, ns.

    Returns:
        The rows in order, uint32[n], and the three columns in that order.
    """
    device = gpu.fill_null(_NO_GPU).to_numpy()
    order, ordered = _by_number(device)
    begun = start.to_numpy()[order]
    borders = np.flatnonzero(np.diff(ordered)) + 1
    for low, high in itertools.pairwise([0, *borders.tolist(), order.size]):
        own = begun[low:high]
        if (own[1:] < own[:-1]).any():
            new = np.argsort(own, kind="stable")
            begun[low:high], order[low:high] = own[new], order[low:high][new]
    same = begun[1:] == begun[:-1]
    same[borders - 1] = False
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((end.gather(rows).to_numpy(), begun[tied], ordered[tied]))]
    gpus = pl.Series(ordered)
    gpus = gpus.set(gpus == _NO_GPU, None) if gpu.null_count() else gpus
    ends = end.gather(pl.Series(order))
    return order, {"gpu": gpus, "start_ns": pl.Series(begun), "end_ns": ends}


def _by_number(number: NDArray[np.int16]) -> tuple[NDArray[np.uint32], NDArray[np.int16]]:
    """Put small numbers in order: rows, uint32[n], and the numbers, int16[n]; both ascending."""
    low, high = (int(number.min()), int(number.max())) if number.size else (0, 0)
    if low == high:
        return np.arange(number.size, dtype=np.uint32), number
    # Small kinds are sorted by counting, those of one byte in one pass.
    small = (number - low).astype(np.min_scalar_type(high - low))
    order = np.argsort(small, kind="stable").astype(np.uint32)
    values = np.arange(low, high + 1, dtype=np.int16)
    return order, np.repeat(values, np.bincount(small, minlength=values.size))


_ENDS = (pl.col("start_ns").min(), pl.col("end_ns").max())


@view
def _queue_spans(trace: Trace) -> pl.DataFrame:
    """`queues` with its first start and last end."""
    spans = activity(trace).group_by("queue").agg(_ENDS).sort("queue")
    return queues(trace).hstack(spans.drop("queue"))


@view
def activity_span(trace: Trace) -> tuple[int, int] | None:
    """Return the first start and last end of device work, ns; None without any."""
    low, high = activity(trace).select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return None if low is None else (low, high)


@view
def clock_spans(trace: Trace) -> pl.DataFrame:
    """Return from when to when devices worked, on each clock that cannot be compared with others.

    Reports whose clocks were brought together share one; every other report has its own, for the
    time between its events and another report's means nothing.

    Returns:
        Frame of report UInt16, clock UInt16, start_ns Int64, end_ns Int64 (of the whole clock);
        one row a report with device work, sorted by report.
    """
    alone = [a.report for a in trace.alignment if not a.aligned]
    report = pl.col("report")
    clock = pl.when(report.is_in(alone)).then(report + 1).otherwise(0).cast(pl.UInt16)
    spans = _queue_spans(trace).group_by("report").agg(_ENDS)
    return (
        spans.with_columns(clock.alias("clock"))
        .with_columns(pl.col("start_ns").min().over("clock"), pl.col("end_ns").max().over("clock"))
        .select("report", "clock", "start_ns", "end_ns")
        .sort("report")
    )


@view
def gpu_spans(trace: Trace) -> pl.DataFrame:
    """Return from when to when each GPU worked.

    Returns:
        Frame of gpu Int16, clock UInt16 (see `clock_spans`), start_ns Int64, end_ns Int64; sorted
        by gpu and clock, an unknown GPU last.
    """
    clocks = clock_spans(trace).select("report", "clock")
    spans = _queue_spans(trace).join(clocks, on="report", how="left").group_by("gpu", "clock")
    return spans.agg(_ENDS).sort("gpu", "clock", nulls_last=True)


@view
def used_gpus(trace: Trace) -> frozenset[int]:
    """Return the GPUs on which any work was recorded."""
    return frozenset(queues(trace)["gpu"].drop_nulls().unique().to_list())
