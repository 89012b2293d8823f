"""What the warps of dequantising kernels wait for, where Nsight Compute counted it."""

from __future__ import annotations

import polars as pl

from tracekit.analyses.dequant_stall.periods import DEQUANT, FUSED
from tracekit.analyses.dequant_stall.tables import STALLS
from tracekit.model.kernels import Classifier
from tracekit.model.ncu import worst_stall
from tracekit.trace import Trace
from tracekit.views.l2.ncu import profiled

__all__ = ["stalls"]


def stalls(trace: Trace) -> pl.DataFrame:
    """Return one row a dequantising kernel that Nsight Compute profiled, longest first.

    Counters are averaged over its executions, weighed by their time where that was counted.
    """
    rows = profiled(trace)
    classifier = Classifier(trace.settings.get("kernel_overrides", ()))
    kinds = {name: classifier.classify(name).kind.value for name in rows["name"].drop_nulls()}
    kind = pl.col("name").replace_strict(kinds, default=None, return_dtype=pl.String)
    rows = rows.with_columns(kind.alias("kind")).filter(pl.col("kind").is_in([DEQUANT, FUSED]))
    counters = [c for c in rows.columns if c.startswith("stall_")]
    counters += ["warp_latency", "issue_active", "alu_pct", "tensor_pct"]
    counters += ["occupancy_frac", "occupancy_gap_pp"]
    weight = pl.col("time_ns").fill_null(1.0)
    means = (
        (pl.col(c) * weight).sum() / weight.filter(pl.col(c).is_not_null()).sum() for c in counters
    )
    table = rows.group_by("name", "kind").agg(
        pl.len().alias("n"),
        pl.col("time_ns").sum().alias("total_ns"),
        *means,
    )
    table = table.with_columns(pl.col(counters).fill_nan(None))
    found = [worst_stall(row) for row in table.iter_rows(named=True)]
    read = pl.DataFrame(
        {
            "reason": [f.reason for f in found],
            "stall_frac": [f.share for f in found],
            "flagged": [f.flagged for f in found],
            "reading": [f.reading if f.flagged else "" for f in found],
        },
        schema={c: STALLS.schema[c] for c in ("reason", "stall_frac", "flagged", "reading")},
    )
    table = table.hstack(read).with_columns(pl.col("issue_active").alias("issue_active_frac"))
    return STALLS.conform(table.sort(["total_ns", "name"], descending=[True, False]))
