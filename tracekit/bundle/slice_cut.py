"""Which rows of a trace belong to a time window, so that the window can be judged alone.

An event belongs to a window that it touches. What explains it comes along although it lies
earlier: the host call that launched it, the ranges that were open then, and markers that declare
something for the rest of the run.
"""

from __future__ import annotations

import polars as pl

from tracekit.model.nvtx import DOMAIN_CREATE, MARK, RANGE_TYPES
from tracekit.trace import Trace

__all__ = ["Frames", "Window", "cut"]

Window = tuple[int, int]
Frames = dict[str, pl.DataFrame]
_DEVICE_TABLES = ("kernels", "memcpy", "memset", "graph_trace")
_WHOLE = ("cuda_devices", "gpus", "graph_nodes", "nvtx_schemas", "nvtx_schema_entries")
_CALLED = ("runtime", "event_records")
_LAUNCH = ("pid", "correlation")
_DECLARES = r"^(?:META|SYNC|KV_POOL|COMM)\b|^p?ncclComm[A-Z]"
_DEFAULT_PERIOD_NS = 1_000_000


def cut(trace: Trace, report: int, window: Window | None, counters: frozenset[str]) -> Frames:
    """Return what one report holds of a window.

    Args:
        trace: The run.
        report: Index of the report.
        window: Half-open session time in ns; None for everything.
        counters: Exact names of the counters whose samples are wanted.

    Returns:
        Catalog name to frame; ``samples`` (see `Trace.samples`) stands for the counters.
    """
    frames = {
        name: trace.frame(name).filter(pl.col("report") == report)
        for name in (*_DEVICE_TABLES, *_WHOLE, *_CALLED, "sync", "overhead", "memory_events")
    }
    nvtx = trace.frame("nvtx").filter(pl.col("report") == report)
    nvtx = nvtx.filter(pl.col("event_type").is_in([MARK, DOMAIN_CREATE, *RANGE_TYPES]))
    samples = trace.samples(sorted(counters)).filter(pl.col("report") == report)
    if window is None:
        return frames | {"nvtx": nvtx, "samples": samples}
    for name in (*_DEVICE_TABLES, "sync", "overhead"):
        frames[name] = frames[name].filter(_touches(window))
    frames["memory_events"] = frames["memory_events"].filter(pl.col("start_ns") < window[1])
    frames["runtime"] = calls = _calls(frames, window)
    frames["event_records"] = frames["event_records"].join(
        calls, on=_LAUNCH, how="semi", nulls_equal=True, maintain_order="left"
    )
    earliest = frames["runtime"]["start_ns"].min()
    since = min(window[0], window[0] if earliest is None else int(str(earliest)))
    frames["nvtx"] = nvtx.filter(_told((since, window[1])))
    frames["samples"] = samples.filter(_sampled(trace, report, window))
    return frames


def _touches(window: Window) -> pl.Expr:
    return (pl.col("start_ns") < window[1]) & (pl.col("end_ns") > window[0])


def _calls(frames: Frames, window: Window) -> pl.DataFrame:
    """Host calls in the window, and those that launched the device work in it."""
    calls = frames["runtime"].with_row_index("_row")
    launched = pl.concat([frames[t].select(_LAUNCH) for t in _DEVICE_TABLES]).unique()
    own = calls.join(launched, on=_LAUNCH, how="semi", nulls_equal=True)["_row"]
    return calls.filter(_touches(window) | pl.col("_row").is_in(own.implode())).drop("_row")


def _told(window: Window) -> pl.Expr:
    """NVTX rows that are in the window, still open in it, or hold for the rest of the run."""
    kind, start = pl.col("event_type"), pl.col("start_ns")
    inside = (start < window[1]) & (start >= window[0])
    spans = (start < window[1]) & (pl.col("end_ns") > window[0]).fill_null(value=True)
    declares = pl.col("text").str.contains(_DECLARES).fill_null(value=False)
    return (
        (kind == DOMAIN_CREATE)
        | (start < window[1]) & declares
        | ((kind == MARK) & inside)
        | (kind.is_in(RANGE_TYPES) & spans)
    )


def _sampled(trace: Trace, report: int, window: Window) -> pl.Expr:
    """Samples whose period reaches into the window, whichever edge of it their time is."""
    hertz = trace.reports[report].metric_hz
    margin = 2 * (_DEFAULT_PERIOD_NS if not hertz else 1_000_000_000 // hertz)
    return pl.col("t_ns").is_between(window[0] - margin, window[1] + margin)
