"""All device work on one list: kernels, copies, memsets and opaque graph launches."""

from __future__ import annotations

import polars as pl

from tracekit.model.trace import Trace, view
from tracekit.views.kernels import kernels

__all__ = ["COPY_KINDS", "OPAQUE", "SOURCE", "activity", "activity_span", "used_gpus"]

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
_ORDER = ["gpu", "start_ns", "end_ns", "source", "row"]


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
    return pl.concat(parts).sort(_ORDER)


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
def used_gpus(trace: Trace) -> frozenset[int]:
    """Return the GPUs on which any work was recorded."""
    return frozenset(activity(trace)["gpu"].drop_nulls().unique().to_list())
