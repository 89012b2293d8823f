"""Where the blocks of a KV cache lie in memory, in runs that are contiguous."""

from __future__ import annotations

import polars as pl

from tracekit.model.table import Column, Table
from tracekit.trace import Trace, view
from tracekit.views.kv.cache import kv_cache
from tracekit.views.kv.layout import live_at

__all__ = ["MOST_RUNS", "RUNS", "kv_map"]

RUNS = Table(
    "kv_map",
    (
        Column("pool", pl.Int64, "", "number of the pool"),
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("layer", pl.Int64, "", "layer; null when not stated"),
        Column("kind", pl.String, "", "k, v or kv"),
        Column("seq", pl.Int64, "", "sequence; null when not stated"),
        Column("t_ns", pl.Int64, "ns", "time of the live set"),
        Column("run", pl.UInt32, "", "number of the run"),
        Column("n_runs", pl.UInt32, "", "runs of the layer"),
        Column("n_blocks", pl.UInt32, "", "blocks of the layer"),
        Column("position", pl.Int64, "", "place of the first block among all of the layer"),
        Column("first_block", pl.Int64, "", "first logical block"),
        Column("last_block", pl.Int64, "", "last logical block"),
        Column("start_addr", pl.Int64, "", "lowest address"),
        Column("end_addr", pl.Int64, "", "end of the highest"),
    ),
    "one run of KV blocks that follow each other in memory",
)
MOST_RUNS = 1_500
"""Runs shown of one layer; of more, every k-th."""
_LAYER = ("pool", "gpu", "layer", "kind")


@view
def kv_map(trace: Trace) -> pl.DataFrame:
    """Return the contiguous runs of each layer's blocks when its pool is fullest.

    A run is a row of blocks with consecutive indices of one sequence, each starting where the one
    before ends.

    Returns:
        Frame of `RUNS`, sorted by pool, layer, kind, run; ``n_runs`` and ``n_blocks`` count all of
        the layer, of which at most about `MOST_RUNS` runs have a row. ``position`` is that of the
        first block among the layer's blocks, ordered by sequence and index. Addresses are bytes.
    """
    cache = kv_cache(trace)
    parts = [RUNS.empty()]
    for pool, t_ns in sorted(cache.peaks.items()):
        live = live_at(cache.records.filter(pl.col("pool_id") == pool), t_ns)
        gpu = cache.owners.filter(pl.col("pool_id") == pool)["gpu"].first()
        stated = [pl.when(pl.col(c) >= 0).then(pl.col(c)).alias(c) for c in ("seq", "layer")]
        runs = _runs(live).with_columns(
            *stated,
            pl.lit(pool, pl.Int64).alias("pool"),
            pl.lit(gpu, pl.Int16).alias("gpu"),
            pl.lit(t_ns, pl.Int64).alias("t_ns"),
        )
        parts.append(RUNS.select(_few(runs)))
    return pl.concat(parts).sort("pool", "layer", "kind", "run")


def _runs(live: pl.DataFrame) -> pl.DataFrame:
    live = live.sort("list_id", "block", "t_alloc_ns")
    end = pl.col("addr") + pl.col("bytes")
    joined = (
        (pl.col("list_id") == pl.col("list_id").shift(1))
        & (pl.col("block") == pl.col("block").shift(1) + 1)
        & (pl.col("addr") == end.shift(1))
    ).fill_null(value=False)
    runs = live.with_columns((~joined).cum_sum().alias("piece"))
    return runs.group_by("piece", maintain_order=True).agg(
        pl.col("layer", "kind", "seq").first(),
        pl.col("block").first().alias("first_block"),
        pl.col("block").last().alias("last_block"),
        pl.col("addr").first().alias("start_addr"),
        end.last().alias("end_addr"),
        pl.len().alias("blocks"),
    )


def _few(runs: pl.DataFrame) -> pl.DataFrame:
    """Number the runs of each layer and keep every k-th of too many."""
    numbered = runs.with_columns(
        pl.int_range(pl.len()).over(_LAYER).alias("run"),
        pl.len().over(_LAYER).alias("n_runs"),
        pl.col("blocks").sum().over(_LAYER).alias("n_blocks"),
        (pl.col("blocks").cum_sum() - pl.col("blocks")).over(_LAYER).alias("position"),
    )
    every = (pl.col("n_runs") + MOST_RUNS - 1) // MOST_RUNS
    return numbered.filter(pl.col("run") % every == 0)
