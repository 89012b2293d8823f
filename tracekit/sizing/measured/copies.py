"""How evenly copies over PCIe run, for each process that shares the link."""

from __future__ import annotations

import polars as pl

from tracekit.trace import Trace

__all__ = ["TENANT", "tenants"]

_DIRECTIONS = {1: "HtoD", 2: "DtoH"}
_LARGE_BYTES = 1 << 20
"""Below, the time of a copy is latency, and its rate says nothing of the link."""
_FEWEST_P99 = 100
TENANT = pl.Schema(
    {
        "report": pl.UInt16(),
        "pid": pl.UInt32(),
        "gpu": pl.Int64(),
        "direction": pl.String(),
        "n": pl.Int64(),
        "n_small": pl.Int64(),
        "bytes": pl.Int64(),
        "median_bytes_per_s": pl.Float64(),
        "p50_ns_per_mb": pl.Float64(),
        "p99_ns_per_mb": pl.Float64(),
        "jitter_ns_per_mb": pl.Float64(),
        "insufficient_n": pl.Boolean(),
        "drop_frac": pl.Float64(),
    }
)
"""Columns: jitter is P99 - P50 of the time for a decimal MB; drop_frac is 1 - rate/peak."""


def tenants(trace: Trace, *, peak_bytes_per_s: float | None = None) -> pl.DataFrame:
    """Return rate and jitter of copies between host and device, by process.

    Only copies of at least 1 MiB count; the others are numbered in ``n_small``.

    Args:
        trace: May read ``memcpy``.
        peak_bytes_per_s: Peak of the host link in one direction; None if it is not known.

    Returns:
        Frame of `TENANT`, sorted by its first columns; ``insufficient_n`` marks a P99 of fewer
        than 100 copies.
    """
    rows = trace.frame("memcpy").filter(pl.col("copy_kind").is_in(list(_DIRECTIONS)))
    length = pl.col("end_ns") - pl.col("start_ns")
    large = (pl.col("bytes") >= _LARGE_BYTES) & (length > 0)
    per_mb = (length * 1e6 / pl.col("bytes")).filter(large)
    p50, p99 = per_mb.quantile(0.5, "linear"), per_mb.quantile(0.99, "linear")
    rate = (pl.col("bytes") * 1e9 / length).filter(large).median()
    drop = pl.lit(None, pl.Float64) if peak_bytes_per_s is None else 1 - rate / peak_bytes_per_s
    named = pl.col("copy_kind").replace_strict(_DIRECTIONS, return_dtype=pl.String)
    found = rows.group_by("report", "pid", "gpu", named.alias("direction")).agg(
        large.sum().alias("n"),
        (~large).sum().alias("n_small"),
        pl.col("bytes").sum(),
        rate.alias("median_bytes_per_s"),
        p50.alias("p50_ns_per_mb"),
        p99.alias("p99_ns_per_mb"),
        (p99 - p50).alias("jitter_ns_per_mb"),
        (large.sum() < _FEWEST_P99).alias("insufficient_n"),
        drop.alias("drop_frac"),
    )
    keys = ["report", "pid", "gpu", "direction"]
    return found.select(list(TENANT)).cast(TENANT).sort(keys, nulls_last=True)
