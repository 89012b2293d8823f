"""KV-cache fragmentation: how blocks lie in memory, how full they are, what moving them costs.

Everything rests on markers, since no profiler knows which bytes are a KV cache or in which order a
sequence reads them. All quantities are exact counts over addresses and sizes. Most layouts that
look untidy cost nothing (32 KiB blocks in random order run as fast as in order): a finding is
made only where extra bytes, requests, copies or unusable memory are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analyses.kv_fragmentation.chart import chart
from tracekit.analyses.kv_fragmentation.rules import RULES, severity
from tracekit.analyses.kv_fragmentation.verdict import verdict
from tracekit.model.table import Column, Table
from tracekit.numerics.association import theil_sen
from tracekit.trace import Trace
from tracekit.trace.analysis import Analysis, param
from tracekit.views.kv.address_map import kv_map
from tracekit.views.kv.cache import USAGE_MEASURES, KvCache, kv_cache, kv_layout, kv_usage, named
from tracekit.views.kv.copies import CHAIN_MEASURES, COPY_MEASURES, kv_chains, kv_copies
from tracekit.views.kv.layout import MEASURES
from tracekit.views.kv.oom import oom_messages
from tracekit.views.nvtx.markers import markers

__all__ = ["ANALYSIS", "Params"]

I64, F64, STR = pl.Int64, pl.Float64, pl.String


@dataclass(frozen=True)
class Params:
    """Parameters of `kv_fragmentation`."""

    overfetch_warn_frac: float = param(
        0.05, unit="1", help="extra sectors (requested or distinct) that are a warning"
    )
    overfetch_critical_frac: float = param(
        0.25, unit="1", help="extra distinct sectors that are critical, from 2 MiB and 32 blocks on"
    )
    misaligned_warn_frac: float = param(
        0.05, unit="1", help="share of blocks or rows off a 16 B boundary that is a warning"
    )
    broken_warn_frac: float = param(
        0.5, unit="1", help="fragmentation index that is a warning where runs are short"
    )
    short_run_bytes: int = param(4096, unit="bytes", help="mean run below which breaks matter")
    page_ratio_warn: float = param(
        4.0, unit="x", help="2 MiB pages touched over pages needed that is a warning"
    )
    copy_warn_frac: float = param(0.03, unit="1", help="share of a step spent copying: warning")
    copy_critical_frac: float = param(0.10, unit="1", help="the same: critical")
    internal_warn_frac: float = param(
        0.25, unit="1", help="share of allocated bytes without a token that is a warning"
    )
    internal_critical_frac: float = param(0.5, unit="1", help="the same: critical")
    external_warn_frac: float = param(
        0.5, unit="1", help="share of free memory outside the largest free extent: warning"
    )
    external_critical_frac: float = param(0.8, unit="1", help="the same: critical")


_POOL = (
    Column("pool", I64, "", "number of the pool in this table"),
    Column("gpu", pl.Int16, "", "GPU; null when the markers do not state it"),
    Column("group", STR, "", "what kind of blocks the pool has"),
)
LAYOUT = Table(
    "layout",
    (
        Column("level", STR, "", "pool, layer or seq; seq rows only when the pool is fullest"),
        *_POOL,
        Column("seq", I64, "", "sequence; null above its level or when not stated"),
        Column("layer", I64, "", "layer; null above its level or when not stated"),
        Column("kind", STR, "", "k, v or kv; null for a pool"),
        Column("t_ns", I64, "ns", "time of the live set"),
        Column("at_peak", pl.Boolean, "", "whether the pool is fullest then"),
        *MEASURES,
        Column("severity", STR, "", "ok, warn or critical by the thresholds"),
        Column("why", STR, "", "quantities at or above their threshold, comma-separated"),
        Column("conf_frac", F64, "1", "confidence from the number of blocks; 0 where they overlap"),
    ),
    "layout of the live blocks of one pool, layer or sequence at one time",
)
CHAINS = Table(
    "chains",
    (
        *_POOL,
        Column("seq", I64, "", "sequence; null when not stated"),
        Column("layer", I64, "", "layer"),
        Column("kind", STR, "", "k, v or kv"),
        *CHAIN_MEASURES,
    ),
    "memory of one cache over time, for caches stated as a whole or whose blocks moved",
)
COPIES = Table(
    "copies",
    (
        *_POOL,
        *COPY_MEASURES,
    ),
    "what relocations copied in one group of steps",
)
USAGE = Table(
    "usage",
    (
        *_POOL,
        *USAGE_MEASURES,
    ),
    "how full one pool is at one time",
)
POOLS = Table(
    "pools",
    (
        *_POOL,
        Column("report", pl.UInt16, "", "report"),
        Column("pid", pl.UInt32, "", "process"),
        Column("n_layers", I64, "", "layers"),
        Column("n_seqs", I64, "", "sequences"),
        Column("n_records", I64, "", "block records over all time"),
        Column("device_bytes", I64, "bytes", "memory of the GPU; null when unknown"),
        Column("frag_slope_per_s", F64, "1/s", "trend of the fragmentation index (Theil-Sen)"),
    ),
    "one pool: layers of one process with blocks of one kind",
)
FAULTS = Table(
    "faults",
    (Column("what", STR, "", "what was dropped or merged"), Column("n", I64, "", "how often")),
    "one kind of fault in the markers",
)
OOM = Table(
    "oom",
    (
        Column("t_ns", I64, "ns", "when it was marked or logged"),
        Column("requested_bytes", I64, "bytes", "size of the failed allocation"),
        Column("unallocated_bytes", I64, "bytes", "reserved by PyTorch without a tensor in it"),
        Column("free_bytes", I64, "bytes", "free for the driver"),
        Column("possible", pl.Boolean, "", "whether fragmentation is possible; null: not stated"),
        Column("verdict", STR, "", "the same in words"),
    ),
    "one out-of-memory message of PyTorch in the NVTX or profiler texts",
)
SUMMARY = Table(
    "summary",
    (
        Column("n_nvtx", I64, "", "NVTX rows of any kind"),
        Column("n_kv_markers", I64, "", "KV markers"),
        Column("n_records", I64, "", "block records"),
        Column("n_pool_markers", I64, "", "pools stated"),
    ),
    "what the markers hold; one row",
)


def compute(trace: Trace, params: Params) -> dict[str, pl.DataFrame]:
    """Return the frames of `ANALYSIS`."""
    cache = kv_cache(trace)
    events = {name: frame for name, frame in markers(trace).items() if name.startswith("KV_")}
    judged = severity([rule for rule in RULES if rule.table == "layout"], params)
    faults = sorted(cache.faults.items())
    summary = {
        "n_nvtx": sum(r.tables.get("nvtx", 0) for r in trace.reports),
        "n_kv_markers": sum(frame.height for frame in events.values()),
        "n_records": cache.records.height,
        "n_pool_markers": cache.pools.height,
    }
    return {
        "layout": _named(LAYOUT, kv_layout(trace), cache, *judged),
        "chains": _named(CHAINS, kv_chains(trace), cache),
        "copies": _named(COPIES, kv_copies(trace), cache),
        "usage": _named(USAGE, kv_usage(trace), cache),
        "pools": _pools(trace, cache),
        "oom": OOM.conform(oom_messages(trace)),
        "faults": pl.DataFrame(faults, schema=FAULTS.schema, orient="row"),
        "summary": SUMMARY.conform(pl.DataFrame([summary])),
    }


def _named(table: Table, rows: pl.DataFrame, cache: KvCache, *more: pl.Expr) -> pl.DataFrame:
    """Rows of a view as a result, with names for ids and `more` columns."""
    if rows.is_empty():
        return table.empty()
    return table.conform(_shown(named(rows, cache)).with_columns(more))


def _shown(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows as people read them: what no marker states is null."""
    stated = [
        pl.when(pl.col(c) >= 0).then(pl.col(c)).alias(c)
        for c in ("seq", "layer")
        if c in rows.columns
    ]
    return rows.rename({"pool_id": "pool"}).with_columns(stated)


def _pools(trace: Trace, cache: KvCache) -> pl.DataFrame:
    if cache.owners.is_empty():
        return POOLS.empty()
    counts = cache.lists.group_by("pool_id").agg(
        pl.col("layer").n_unique().alias("n_layers"), pl.col("seq").n_unique().alias("n_seqs")
    )
    records = cache.records.group_by("pool_id").agg(pl.len().alias("n_records"))
    memory = {gpu.index: gpu.memory_bytes for gpu in trace.gpus}
    pools = cache.owners.join(counts, on="pool_id", how="left").join(
        records, on="pool_id", how="left"
    )
    over_time = kv_layout(trace).filter(pl.col("level") == "pool")
    slopes = [_slope(over_time.filter(pl.col("pool_id") == pool)) for pool in pools["pool_id"]]
    pools = pools.with_columns(
        pl.Series("frag_slope_per_s", slopes, dtype=F64),
        pl.Series("device_bytes", [memory.get(gpu) for gpu in pools["gpu"]], dtype=I64),
    )
    return POOLS.conform(_shown(pools).sort("pool"))


def _slope(rows: pl.DataFrame) -> float | None:
    slope, _ = theil_sen(rows["t_ns"].to_numpy() / 1e9, rows["frag_frac"].to_numpy())
    return None if np.isnan(slope) else slope


ANALYSIS = Analysis(
    name="kv_fragmentation",
    question="Does the way the KV cache lies in memory cost bytes, requests, copies or capacity?",
    requires=(),
    needs="markers that say where KV blocks lie",
    record="tracekit run -o run -- YOUR_COMMAND",
    params=Params,
    results=(LAYOUT, CHAINS, COPIES, USAGE, POOLS, OOM, FAULTS, SUMMARY),
    compute=compute,
    verdict=verdict,
    chart=chart,
    chart_views={"kv_map": kv_map},
)
