"""NVTX rows as ranges and marks, with their text, domain and nesting."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.model.trace import Trace, view
from tracekit.numerics import stacks
from tracekit.views.strings import resolved

__all__ = [
    "DOMAIN_CREATE",
    "LIBRARY_DOMAINS",
    "MARK",
    "RANGE_TYPES",
    "capture_end_ns",
    "marks",
    "ranges",
]

MARK, DOMAIN_CREATE = 34, 75
PUSH_POP_TYPES, START_END_TYPES = (59, 70), (60, 71)
RANGE_TYPES = (*PUSH_POP_TYPES, *START_END_TYPES)
LIBRARY_DOMAINS = (
    r"(?i)^(nccl|cccl|thrust|cub|cublas\w*|cudnn\w*|cusparse\w*|cufft\w*|cusolver\w*|nvshmem"
    r"|nvjpeg|dali|tensorrt)$"
)
"""Domains in which libraries mark their own inside; never a user's step or layer."""


@view("nvtx", "strings")
def _events(trace: Trace) -> pl.DataFrame:
    """Ranges and marks with text and domain name, in the order of the catalog frame."""
    rows = trace.frame("nvtx").with_row_index("nvtx_row")
    names = resolved(
        rows.filter(pl.col("event_type") == DOMAIN_CREATE),
        trace.frame("strings"),
        "text",
        "text_id",
    ).select("report", "pid", "domain", pl.col("text").alias("domain_name"))
    names = names.unique(["report", "pid", "domain"], keep="last", maintain_order=True)
    events = rows.filter(pl.col("event_type").is_in([MARK, *RANGE_TYPES]))
    events = events.drop("json_text", "json_text_id", "range_id", "category", "payload")
    events = events.with_columns(pl.col("domain").fill_null(0))
    events = resolved(events, trace.frame("strings"), "text", "text_id")
    keys = ["report", "pid", "domain"]
    events = events.join(names, on=keys, how="left", nulls_equal=True, maintain_order="left")
    nameless = (
        pl.when(pl.col("domain") == 0).then(pl.lit("")).otherwise(pl.format("domain#{}", "domain"))
    )
    return events.with_columns(
        pl.coalesce("domain_name", nameless).alias("domain_name"), pl.col("text").fill_null("")
    )


@view("nvtx")
def capture_end_ns(trace: Trace) -> int:
    """Return the last moment that NVTX knows of: capture length or last NVTX time, ns."""
    lengths = [r.duration_ns for r in trace.reports if r.duration_ns is not None]
    latest = pl.max_horizontal(pl.col("start_ns") + 1, "end_ns").max()
    last = trace.frame("nvtx").select(latest).item()
    return max([*lengths, last or 0])


@view(of=[_events, capture_end_ns])
def ranges(trace: Trace) -> pl.DataFrame:
    """Return the NVTX ranges.

    Returns:
        Frame of report UInt16, pid UInt32, tid UInt32, domain Int64, domain_name String ("" for
        the default domain, "domain#2" for a nameless one), start_ns Int64, end_ns Int64, open
        Boolean (never closed: end is the end of the capture), push_pop Boolean, text String, int64
        Int64, parent Int64 (row in this frame of the enclosing range of the same thread and
        domain, null at the top), depth Int64 (0 at the top), nvtx_row UInt32 (row in the catalog
        frame); in the order of the catalog frame. Ranges that end before they start are left out.
    """
    found = _events(trace).filter(pl.col("event_type") != MARK)
    end = max(capture_end_ns(trace), 0)
    found = found.with_columns(
        pl.col("end_ns").is_null().alias("open"),
        pl.col("event_type").is_in(PUSH_POP_TYPES).alias("push_pop"),
        pl.col("end_ns").fill_null(pl.max_horizontal(pl.lit(end, pl.Int64), "start_ns")),
    ).filter(pl.col("end_ns") >= pl.col("start_ns"))
    parent, depth = _nesting(found)
    return found.with_columns(parent, depth).select(
        "report",
        "pid",
        "tid",
        "domain",
        "domain_name",
        "start_ns",
        "end_ns",
        "open",
        "push_pop",
        "text",
        "int64",
        "parent",
        "depth",
        "nvtx_row",
    )


def _nesting(found: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Parents and depths of push/pop ranges, a stack per thread and domain."""
    stacked = found.with_row_index("_row").filter(pl.col("push_pop"))
    group = stacked.select(pl.struct("report", "pid", "tid", "domain").rank("dense")).to_series()
    rows = stacked["_row"].to_numpy().astype(np.int64)
    parents, depths = stacks.nest(
        stacked["start_ns"].to_numpy(), stacked["end_ns"].to_numpy(), group.to_numpy()
    )
    parent = np.full(found.height, -1, np.int64)
    depth = np.zeros(found.height, np.int64)
    parent[rows] = np.where(parents >= 0, rows[parents], -1)
    depth[rows] = depths
    series = pl.Series("parent", parent)
    return series.set(series < 0, None), pl.Series("depth", depth)


@view(of=[_events])
def marks(trace: Trace) -> pl.DataFrame:
    """Return the NVTX marks.

    Returns:
        Frame of report UInt16, pid UInt32, tid UInt32, domain Int64, domain_name String, t_ns
        Int64, text String, int64 Int64, nvtx_row UInt32; in the order of the catalog frame.
    """
    found = _events(trace).filter(pl.col("event_type") == MARK)
    return found.select(
        "report",
        "pid",
        "tid",
        "domain",
        "domain_name",
        pl.col("start_ns").alias("t_ns"),
        "text",
        "int64",
        "nvtx_row",
    )
