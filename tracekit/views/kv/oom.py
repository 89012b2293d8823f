"""Out-of-memory messages that found their way into a trace."""

from __future__ import annotations

import polars as pl

from tracekit.model.torch_oom import parse_oom
from tracekit.trace import Trace, view
from tracekit.views.nvtx.ranges import marks

__all__ = ["oom_messages"]

_WORDS = "(?i)out of memory"
_SCHEMA = {
    "t_ns": pl.Int64,
    "requested_bytes": pl.Int64,
    "unallocated_bytes": pl.Int64,
    "free_bytes": pl.Int64,
    "possible": pl.Boolean,
    "verdict": pl.String,
}


@view("diagnostics", of=[marks])
def oom_messages(trace: Trace) -> pl.DataFrame:
    """Return PyTorch's out-of-memory messages among NVTX marks and the profiler's own messages.

    Returns:
        Frame of t_ns, requested_bytes, unallocated_bytes (reserved by PyTorch but unused),
        free_bytes, possible (whether fragmentation is possible, null when not stated) and
        verdict (the same in words), by time.
    """
    texts = pl.concat(
        [marks(trace).select("t_ns", "text"), trace.frame("diagnostics").select("t_ns", "text")]
    )
    rows = []
    for t_ns, text in texts.filter(pl.col("text").str.contains(_WORDS)).iter_rows():
        oom = parse_oom(text)
        if oom is not None:
            sizes = (oom.requested_bytes, oom.unallocated_bytes, oom.free_bytes)
            rows.append((t_ns, *sizes, oom.possible_fragmentation, oom.verdict()))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").unique().sort(pl.all())
