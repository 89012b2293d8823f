"""What Nsight Compute counted, by kernel and by layer of the timeline."""

from __future__ import annotations

import polars as pl

from tracekit.analyses.l2_miss.tables import NCU_KERNELS, NCU_LAYERS, NCU_MATCH
from tracekit.model.ncu import SHAPE
from tracekit.trace import Trace
from tracekit.views.kv.cache import kv_cache
from tracekit.views.l2.hits import ATTENTION
from tracekit.views.l2.layers import kv_beside
from tracekit.views.l2.ncu import matched, profiled

__all__ = ["VIEWS", "counted_kernels", "counted_layers", "matching"]

VIEWS = (matched, profiled, kv_cache)
"""Views that the functions here read."""
MIN_MATCHED = 0.8


def counted_kernels(trace: Trace, useful_bytes: int) -> pl.DataFrame:
    """Return misses by kernel and layer; ratios of sums.

    Args:
        trace: The run.
        useful_bytes: What one execution must read; 0 when not stated.

    Returns:
        Frame of `NCU_KERNELS`.
    """
    key = ["name", "layer", *SHAPE]
    table = (
        profiled(trace)
        .group_by(key)
        .agg(
            pl.len().alias("n_profiled"),
            pl.when(pl.col("misses").count() > 0).then(pl.col("misses").sum()).alias("misses"),
            _ratio("misses", "lookups").alias("miss_frac"),
            _ratio("all_misses", "all_lookups").alias("all_miss_frac"),
            pl.col("dram_read_bytes", "occupancy_frac", "occupancy_gap_pp").mean(),
            pl.col("miss_source").unique().sort().str.join(", "),
            pl.col("inconsistent").any(),
        )
    )
    if useful_bytes > 0:
        useful = pl.col("dram_read_bytes") / useful_bytes
        table = table.with_columns(useful.alias("dram_amplification"))
    order = ["misses", *key]
    ordered = table.sort(order, descending=[True, *[False] * len(key)], nulls_last=True)
    return NCU_KERNELS.conform(_with_shapes(ordered))


def counted_layers(trace: Trace) -> pl.DataFrame:
    """Return misses by layer of the timeline, each kernel with what it is matched with.

    Returns:
        Frame of `NCU_LAYERS`; misses are null where less than 80 % of a layer's kernel time was
        profiled.
    """
    if profiled(trace).is_empty():
        return NCU_LAYERS.empty()
    rows = matched(trace).kernels.drop_nulls("layer")
    attention = rows.filter(pl.col("kind") == ATTENTION)
    of = "attention kernels" if attention.height else "all kernels"
    rows = attention if attention.height else rows
    seen = pl.col("how").is_not_null()
    share = pl.col("time_ns").filter(seen).sum() / pl.col("time_ns").sum()
    sums = rows.group_by("gpu", "layer").agg(
        pl.lit(of).alias("of"),
        pl.len().alias("n_kernels"),
        pl.col("time_ns").sum(),
        pl.col("time_ns").median().alias("median_ns"),
        share.alias("matched_frac"),
        *(
            pl.when(share >= MIN_MATCHED).then(value).alias(name)
            for name, value in (
                ("miss_frac", _ratio("misses", "lookups")),
                ("all_miss_frac", _ratio("all_misses", "all_lookups")),
                ("dram_read_bytes", pl.col("dram_read_bytes").mean()),
            )
        ),
    )
    sums = sums.join(kv_beside(trace, rows), on=["gpu", "layer"], how="left")
    return NCU_LAYERS.conform(sums.sort("gpu", "miss_frac", "layer", nulls_last=True))


def matching(trace: Trace) -> pl.DataFrame:
    """Return kernels of the timeline and of Nsight Compute side by side, frame of `NCU_MATCH`."""
    if profiled(trace).is_empty():
        return NCU_MATCH.empty()
    both = matched(trace)
    key = ["bare", *SHAPE]
    ways = both.kernels.group_by(key).agg(
        pl.col("how").drop_nulls().unique().sort().str.join(", ").alias("matched_by")
    )
    total = pl.col("time_ns").sum()
    table = both.table.join(
        ways.rename({"bare": "name"}),
        on=["name", *SHAPE],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).with_columns(
        pl.when(total > 0).then(pl.col("time_ns") / total).alias("time_frac"),
        pl.col("matched_by").fill_null(""),
    )
    return NCU_MATCH.conform(_with_shapes(table))


def _ratio(above: str, below: str) -> pl.Expr:
    """Ratio of sums over rows that have both; null without any."""
    known = pl.col(above).is_not_null() & (pl.col(below) > 0)
    total = pl.col(below).filter(known).sum()
    return pl.when(total > 0).then(pl.col(above).filter(known).sum() / total)


def _with_shapes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add grid and block as text; null where the shape is not known."""
    texts = (
        pl.concat_str([pl.col(f"{kind}_{a}") for a in "xyz"], separator=" x ").alias(kind)
        for kind in ("grid", "block")
    )
    return rows.with_columns(texts)
