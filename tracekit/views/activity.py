"""All device work on one list: kernels, copies, memsets and opaque graph launches."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.model.trace import Trace, view
from tracekit.views.kernels import kernels

__all__ = [
    "COPY_KINDS",
    "OPAQUE",
    "SOURCE",
    "activity",
    "activity_span",
    "clock_spans",
    "gpu_spans",
    "used_gpus",
]

SOURCE = pl.Enum(["kernel", "memcpy", "memset", "graph"])
OPAQUE = "opaque graph"
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "UVM HtoD",
    12: "UVM DtoH",
    13: "UVM DtoD",
}
"""CUPTI's copy kinds."""
_SHARED = ["report", "gpu", "pid", "context", "stream", "start_ns", "end_ns", "correlation"]
_NO_GPU = -1
"""Sorts before every GPU, as null does."""


@view("memcpy", "memset", "graph_trace", of=[kernels])
def activity(trace: Trace) -> pl.DataFrame:
    """Return every interval in which a device worked.

    Returns:
        Frame of report UInt16, gpu Int16, pid UInt32, context Int64, stream Int64, start_ns Int64,
        end_ns Int64, correlation Int64, source Enum `SOURCE`, row UInt32 (row in the catalog frame
        of that source), kind String (kernel class, "memcpy DtoD", "memset", `OPAQUE`), name_key
        UInt32 (null for no kernel), graph_node Int64, bytes Int64; sorted by gpu, start_ns,
        end_ns, source, row.
    """
    copies = trace.frame("memcpy").with_columns(
        pl.concat_str(
            pl.lit("memcpy "),
            pl.col("copy_kind").replace_strict(
                COPY_KINDS, default=pl.lit("kind unknown"), return_dtype=pl.String
            ),
        ).alias("kind")
    )
    parts = [
        _part(kernels(trace).with_columns(pl.col("kind").cast(pl.String)), "kernel"),
        _part(copies, "memcpy"),
        _part(trace.frame("memset").with_columns(pl.lit("memset").alias("kind")), "memset"),
        _part(trace.frame("graph_trace").with_columns(pl.lit(OPAQUE).alias("kind")), "graph"),
    ]
    work = pl.concat(parts)
    return work[in_order(work)]


def in_order(work: pl.DataFrame) -> pl.Series:
    """Return the rows of `work` by GPU, start, end, source and row: UInt32.

    They are by source and row already.

    A table of the profiler is in time order but for a few rows, which a merging sort of one column
    makes use of; only rows that begin at one moment on one GPU are compared by more.
    """
    start, end = (work[c].to_numpy() for c in ("start_ns", "end_ns"))
    gpu = work["gpu"].fill_null(_NO_GPU).to_numpy()
    order = np.argsort(start, kind="stable")
    order = order[np.argsort(gpu[order], kind="stable")]
    same = (start[order[1:]] == start[order[:-1]]) & (gpu[order[1:]] == gpu[order[:-1]])
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((end[rows], start[rows], gpu[rows]))]
    return pl.Series(order.astype(np.uint32))


def _part(frame: pl.DataFrame, source: str) -> pl.DataFrame:
    optional = {"name_key": pl.UInt32, "graph_node": pl.Int64, "bytes": pl.Int64}
    return frame.with_row_index("row").select(
        *_SHARED,
        pl.lit(source, SOURCE).alias("source"),
        "row",
        "kind",
        *(
            pl.col(c) if c in frame.columns else pl.lit(None, dtype).alias(c)
            for c, dtype in optional.items()
        ),
    )


@view(of=[activity])
def activity_span(trace: Trace) -> tuple[int, int] | None:
    """Return the first start and last end of device work, ns; None without any."""
    low, high = activity(trace).select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return None if low is None else (low, high)


@view(of=[activity])
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
    spans = activity(trace).group_by("report").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return (
        spans.with_columns(clock.alias("clock"))
        .with_columns(pl.col("start_ns").min().over("clock"), pl.col("end_ns").max().over("clock"))
        .select("report", "clock", "start_ns", "end_ns")
        .sort("report")
    )


@view(of=[activity, clock_spans])
def gpu_spans(trace: Trace) -> pl.DataFrame:
    """Return from when to when each GPU worked.

    Returns:
        Frame of gpu Int16, clock UInt16 (see `clock_spans`), start_ns Int64, end_ns Int64; sorted
        by gpu and clock, an unknown GPU last.
    """
    clocks = clock_spans(trace).select("report", "clock")
    work = activity(trace).select("report", "gpu", "start_ns", "end_ns")
    spans = work.join(clocks, on="report", how="left").group_by("gpu", "clock")
    ends = spans.agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return ends.sort("gpu", "clock", nulls_last=True)


@view(of=[activity])
def used_gpus(trace: Trace) -> frozenset[int]:
    """Return the GPUs on which any work was recorded."""
    return frozenset(activity(trace)["gpu"].drop_nulls().unique().to_list())
