"""How full the KV cache is: reserved, allocated and holding tokens are three different numbers."""

from __future__ import annotations

import polars as pl

from tracekit.numerics import intervals, strides
from tracekit.trace import Trace, view
from tracekit.views.kv.cache import KvCache, kv_cache, kv_layout
from tracekit.views.kv.layout import live_at
from tracekit.views.nvtx.markers import markers

__all__ = ["kv_usage"]

MIXED = "blocks of mixed size"
_USAGE = pl.Schema(
    {
        "pool_id": pl.Int64(),
        "t_ns": pl.Int64(),
        "at_peak": pl.Boolean(),
        "reserved_bytes": pl.Int64(),
        "allocated_bytes": pl.Int64(),
        "used_bytes": pl.Int64(),
        "allocated_frac": pl.Float64(),
        "used_frac": pl.Float64(),
        "int_frac": pl.Float64(),
        "ext_frac": pl.Float64(),
        "used_from": pl.String(),
    }
)


@view(of=[kv_cache, kv_layout, markers])
def kv_usage(trace: Trace) -> pl.DataFrame:
    """Return how full each pool is over time.

    Returns:
        One row a pool and time: pool_id, t_ns, at_peak, reserved_bytes (all stated pools; null
        when none was), allocated_bytes (distinct live blocks), used_bytes (holding tokens),
        allocated_frac and used_frac (of what is reserved), int_frac (share of allocated bytes
        without a token), ext_frac (share of free memory outside the largest free extent, at the
        peak; null for blocks of one size, any of which fits any hole), used_from ("blocks" when
        markers state it, "step tokens" when steps do; null when unknown), sorted.
    """
    cache = kv_cache(trace)
    pools = kv_layout(trace).filter(pl.col("level") == "pool")
    if pools.is_empty():
        return pl.DataFrame(schema=_USAGE)
    rows = pools.select("pool_id", "t_ns", "at_peak", "used_bytes", allocated_bytes="bytes")
    reserved = (
        cache.pools.drop_nulls("pool_id")
        .group_by("pool_id")
        .agg(
            pl.col("bytes").sum().alias("reserved_bytes"),
            # A pool that does not say how many tokens a block holds makes the sum unknown.
            pl.when(pl.col("block_tokens").is_not_null().all())
            .then((pl.col("block_bytes") / pl.col("block_tokens")).sum())
            .alias("token_bytes"),
        )
    )
    rows = rows.join(reserved, on="pool_id", how="left")
    rows = _filled(_with_step_tokens(rows, markers(trace)["STEP"], cache))
    rows = rows.join(_external(cache), on=["pool_id", "t_ns"], how="left")
    return rows.select(pl.col(n).cast(t) for n, t in _USAGE.items()).sort("pool_id", "t_ns")


def _filled(rows: pl.DataFrame) -> pl.DataFrame:
    """Add what holds tokens: as blocks state it, else as steps count their tokens."""
    stated = pl.col("used_bytes").is_not_null()
    known = pl.all_horizontal(pl.col("tokens", "token_bytes").is_not_null())
    guess = pl.min_horizontal(pl.col("tokens") * pl.col("token_bytes"), "allocated_bytes")
    guess = pl.when(known).then(guess.round().cast(pl.Int64))
    source = pl.when(stated).then(pl.lit("blocks")).when(known).then(pl.lit("step tokens"))
    return rows.with_columns(
        pl.coalesce("used_bytes", guess).alias("used_bytes"), source.alias("used_from")
    ).with_columns(
        (pl.col("allocated_bytes") / pl.col("reserved_bytes")).alias("allocated_frac"),
        (pl.col("used_bytes") / pl.col("reserved_bytes")).alias("used_frac"),
        (1 - pl.col("used_bytes") / pl.col("allocated_bytes")).alias("int_frac"),
    )


def _with_step_tokens(rows: pl.DataFrame, steps: pl.DataFrame, cache: KvCache) -> pl.DataFrame:
    """Add the tokens that the cache held in the last step that said so."""
    said = steps.drop_nulls("kv_tokens").select("report", "t_ns", tokens="kv_tokens").sort("t_ns")
    rows = rows.join(cache.owners.select("pool_id", "report"), on="pool_id", how="left")
    return rows.sort("t_ns").join_asof(said, on="t_ns", by="report", check_sortedness=False)


def _external(cache: KvCache) -> pl.DataFrame:
    """External fragmentation at the peak of pools whose blocks differ in size."""
    found: list[tuple[int, int, float]] = []
    mixed = cache.owners.filter(pl.col("group") == MIXED)["pool_id"].to_list()
    for pool in mixed:
        extents = cache.pools.filter((pl.col("pool_id") == pool) & pl.col("bytes").is_not_null())
        if extents.is_empty():
            continue
        t_ns = cache.peaks[pool]
        live = live_at(cache.records.filter(pl.col("pool_id") == pool), t_ns)
        whole = intervals.union(*_ends(extents))
        free = intervals.subtract(*whole, *intervals.union(*_ends(live)))
        found.append((pool, t_ns, strides.external_frac(free[1] - free[0])))
    schema = {"pool_id": pl.Int64, "t_ns": pl.Int64, "ext_frac": pl.Float64}
    return pl.DataFrame(found, schema=schema, orient="row")


def _ends(rows: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    return rows["addr"], rows["addr"] + rows["bytes"]
