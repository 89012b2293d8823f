"""Caches that move: what relocations copied, and which share of the steps that took."""

from __future__ import annotations

import polars as pl

from tracekit.model.table import Column, Table
from tracekit.numerics import strides
from tracekit.trace import Trace, view
from tracekit.views.device.activity import clock_spans
from tracekit.views.device.hardware import peak_bytes_per_s
from tracekit.views.kv.cache import KvCache, kv_cache
from tracekit.views.launches.attribution import steps

__all__ = ["CHAIN_MEASURES", "COPY_MEASURES", "kv_chains", "kv_copies"]

READ_AND_WRITE = 2
GROWING, STATIC, MOVING = "growing cache", "static", "moving"


@view
def kv_chains(trace: Trace) -> pl.DataFrame:
    """Follow the memory of every cache that is stated as a whole, or whose blocks moved.

    Returns:
        One row a sequence, layer and kind: list_id, pool_id, events (times that an address was
        stated), moves (changes of address with a copy), copied_bytes (sizes before each move),
        new_bytes (growth), write_amplification (copied over new; null without growth), first_bytes
        and last_bytes, pattern ("growing cache" when it grows by moving, "static" when it stays,
        "moving" when it moves without growing), sorted.
    """
    records = kv_cache(trace).records
    moving = records.filter(pl.col("moved") | (pl.col("source") == "realloc"))["list_id"]
    rows = records.filter(pl.col("list_id").is_in(moving.implode()))
    if rows.is_empty():
        return _CHAINS.empty()
    # A block that is stated anew, without its old content, begins another chain.
    anew = ~pl.col("moved") & (pl.col("addr") != pl.col("addr").shift(1))
    begins = pl.col("before_bytes").is_null() | anew
    rows = rows.with_columns(begins.cum_sum().cast(pl.Int64).alias("_c"))
    chains = rows.group_by("list_id", "pool_id", "_c", maintain_order=True).agg(
        pl.len().alias("events"),
        pl.col("bytes").first().alias("first_bytes"),
        pl.col("bytes").last().alias("last_bytes"),
    )
    sums = (
        chains.join(_relocated(rows), on="_c")
        .sort("_c")
        .group_by("list_id", "pool_id", maintain_order=True)
        .agg(
            pl.col("events", "moves", "copied_bytes", "new_bytes").sum(),
            pl.col("first_bytes").first(),
            pl.col("last_bytes").last(),
        )
    )
    amplified = pl.when(pl.col("new_bytes") > 0).then(pl.col("copied_bytes") / pl.col("new_bytes"))
    sums = sums.with_columns(amplified.alias("write_amplification"), _pattern().alias("pattern"))
    return _CHAINS.select(sums).sort("list_id")


def _relocated(rows: pl.DataFrame) -> pl.DataFrame:
    """Moves, copied and new bytes of each chain."""
    columns = (rows[c].to_numpy() for c in ("_c", "t_alloc_ns", "addr", "bytes"))
    found = strides.relocations(*columns)
    return pl.DataFrame(
        {
            "_c": found.group,
            "moves": found.moves,
            "copied_bytes": found.copied_bytes,
            "new_bytes": found.new_bytes,
        }
    )


def _pattern() -> pl.Expr:
    grows = pl.when(pl.col("new_bytes") > 0).then(pl.lit(GROWING)).otherwise(pl.lit(MOVING))
    return pl.when(pl.col("moves") == 0).then(pl.lit(STATIC)).otherwise(grows)


CHAIN_MEASURES: tuple[Column, ...] = (
    Column("events", pl.Int64, "", "times that an address was stated"),
    Column("moves", pl.Int64, "", "changes of address with a copy"),
    Column("copied_bytes", pl.Int64, "bytes", "sizes before each move"),
    Column("new_bytes", pl.Int64, "bytes", "growth"),
    Column("write_amplification", pl.Float64, "x", "copied over new; informational"),
    Column("first_bytes", pl.Int64, "bytes", "first size"),
    Column("last_bytes", pl.Int64, "bytes", "last size"),
    Column("pattern", pl.String, "", "growing cache, static or moving"),
)
"""Columns of `kv_chains` that the analysis shows."""
_CHAINS = Table(
    "kv_chains",
    (
        Column("list_id", pl.Int64, "", "number of the list"),
        Column("pool_id", pl.Int64, "", "number of the pool"),
        *CHAIN_MEASURES,
    ),
    "memory of one cache over time",
)


@view
def kv_copies(trace: Trace) -> pl.DataFrame:
    """Compare the time that relocations take at least with the time of the steps they fall into.

    Returns:
        One row a pool and step group that has relocations: pool_id, step_group (null: outside of
        steps, or there are none), n_steps, moves, copied_bytes, copy_ns (reading and writing
        those bytes at peak bandwidth; null when that is unknown), step_ns (GPU spans of the
        group's steps in the pool's own process; without any steps the span of all device work;
        null outside), copy_frac, sorted.
    """
    cache = kv_cache(trace)
    moved = cache.records.filter("moved")
    if moved.is_empty():
        return _COPIES.empty()
    frame = moved.select(
        "report",
        "pid",
        "pool_id",
        pl.col("t_alloc_ns").alias("t_ns"),
        pl.col("before_bytes").alias("copied_bytes"),
    )
    all_steps = steps(trace)
    frame = _with_step(frame, all_steps)
    sums = frame.group_by("report", "pid", "pool_id", "step_group").agg(
        pl.len().cast(pl.Int64).alias("moves"), pl.col("copied_bytes").sum()
    )
    spans = _spans(trace, all_steps, sums.select("report", "pid").unique())
    owner = ["report", "pid", "step_group"]
    joined = sums.join(spans, on=owner, how="left", nulls_equal=True)
    rates = _rates(trace, cache)
    joined = joined.join(rates, on="pool_id", how="left")
    copy = READ_AND_WRITE * pl.col("copied_bytes") * 1e9 / pl.col("bytes_per_s")
    joined = joined.with_columns(
        copy.alias("copy_ns"), (copy / pl.col("step_ns")).alias("copy_frac")
    )
    return _COPIES.select(joined).sort("pool_id", "step_group")


COPY_MEASURES: tuple[Column, ...] = (
    Column("step_group", pl.String, "", "steps alike; null outside of steps or without any"),
    Column("n_steps", pl.Int64, "", "steps of the group; null outside of steps"),
    Column("moves", pl.Int64, "", "relocations in them"),
    Column("copied_bytes", pl.Int64, "bytes", "bytes copied"),
    Column("copy_ns", pl.Float64, "ns", "reading and writing them at peak bandwidth"),
    Column("step_ns", pl.Int64, "ns", "GPU span of the group's steps, or of the capture"),
    Column("copy_frac", pl.Float64, "1", "copy_ns / step_ns"),
)
"""Columns of `kv_copies` that the analysis shows."""
_COPIES = Table(
    "kv_copies",
    (Column("pool_id", pl.Int64, "", "number of the pool"), *COPY_MEASURES),
    "what relocations copied in one group of steps",
)


def _with_step(events: pl.DataFrame, all_steps: pl.DataFrame) -> pl.DataFrame:
    """Group label of the step of the same process that was open at each event."""
    known = all_steps.drop_nulls("gpu_start_ns").sort("start_ns")
    joined = events.sort("t_ns").join_asof(
        known.select("report", "pid", "start_ns", "end_ns", pl.col("group").alias("step_group")),
        left_on="t_ns",
        right_on="start_ns",
        by=["report", "pid"],
        check_sortedness=False,
    )
    inside = pl.col("t_ns") < pl.col("end_ns")
    return joined.with_columns(pl.when(inside).then("step_group").alias("step_group"))


def _spans(trace: Trace, all_steps: pl.DataFrame, owners: pl.DataFrame) -> pl.DataFrame:
    """GPU time of each process and step group; without any step the whole span, a null group."""
    known = all_steps.drop_nulls("gpu_start_ns")
    if known.is_empty():
        return owners.join(clock_spans(trace), on="report").select(
            "report",
            "pid",
            pl.lit(None, pl.String).alias("step_group"),
            pl.lit(0, pl.Int64).alias("n_steps"),
            (pl.col("end_ns") - pl.col("start_ns")).alias("step_ns"),
        )
    length = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
    return known.group_by("report", "pid", pl.col("group").alias("step_group")).agg(
        pl.len().cast(pl.Int64).alias("n_steps"), length.sum().alias("step_ns")
    )


def _rates(trace: Trace, cache: KvCache) -> pl.DataFrame:
    by_gpu = {gpu.index: peak_bytes_per_s(trace, gpu) for gpu in trace.gpus}
    rates = [by_gpu.get(gpu) for gpu in cache.owners["gpu"]]
    return cache.owners.select("pool_id").with_columns(
        pl.Series("bytes_per_s", rates, dtype=pl.Float64)
    )
