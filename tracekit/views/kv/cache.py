"""The KV cache as its markers state it: records, who they belong to, and when to look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.model.table import Column, Table
from tracekit.numerics import intervals, strides
from tracekit.trace import Trace, view
from tracekit.views.keys import row_numbers
from tracekit.views.kv.layout import MEASURED, MEASURES, live_at, measure
from tracekit.views.kv.records import RECORDS, SPACE, KvRecords, build_records
from tracekit.views.launches.attribution import steps
from tracekit.views.nvtx.markers import markers

__all__ = ["MAX_TIMES", "USAGE_MEASURES", "KvCache", "kv_cache", "kv_layout", "kv_usage", "named"]

_NEVER = np.iinfo(np.int64).max
MAX_TIMES = 64
"""Times at which the live set is measured, at most."""
ROW_BUDGET = 500_000
"""Live rows that all times together may cost; large caches are looked at less often."""
LIST = (*SPACE, "seq", "layer", "kind")
LAYOUT = pl.Schema(
    {
        "level": pl.String(),
        "t_ns": pl.Int64(),
        "at_peak": pl.Boolean(),
        "pool_id": pl.Int64(),
        "layer_id": pl.Int64(),
        "list_id": pl.Int64(),
        **{c.name: c.dtype for c in MEASURES},
    }
)
"""Columns of `kv_layout`."""


class KvCache(NamedTuple):
    """Block records of a trace with their owners.

    Attributes:
        records: Frame of `tracekit.views.kv.records.RECORDS` plus list_id, layer_id and pool_id
            (Int64, rows of the owner in the frames of the same name).
        lists: One row a sequence, layer and kind: list_id, layer_id, pool_id, report, pid, device,
            seq, layer, kind.
        layers: One row a layer and kind: layer_id, pool_id, report, pid, device, layer, kind.
        owners: One row a pool, a group of layers with blocks of one kind in one address space:
            pool_id, report, pid, device, gpu (Int16, null when unknown), group (String).
        pools: Stated pools (`tracekit.views.kv.records.pool_frame`) with pool_id.
        faults: What was dropped, in words, to how many.
        times: int64[k], ns, ascending: when the live set is measured.
        peaks: pool_id to the time at which its live blocks are largest, ns.
    """

    records: pl.DataFrame
    lists: pl.DataFrame
    layers: pl.DataFrame
    owners: pl.DataFrame
    pools: pl.DataFrame
    faults: Mapping[str, int]
    times: tuple[int, ...]
    peaks: Mapping[int, int]


@view
def kernel_devices(trace: Trace) -> pl.DataFrame:
    """Return the devices on which kernels ran, as processes number them.

    Returns:
        Frame of report UInt16, pid UInt32, device (the ordinal) and gpu Int16; distinct, sorted.
    """
    return row_numbers(trace.frame("kernels").select("report", "pid", "device", "gpu"))[1]


@view
def kv_cache(trace: Trace) -> KvCache:
    """Return the KV cache as the markers of the trace state it; all frames empty without any."""
    built = build_records(markers(trace))
    if built.records.is_empty() and built.pools.is_empty():
        return _nothing(built)
    records = built.records.sort(*LIST, "block", "t_alloc_ns")
    records = records.with_columns(pl.struct(LIST).rle_id().cast(pl.Int64).alias("list_id"))
    groups = _groups(records, built.pools)
    lists = records.select("list_id", *LIST).unique(maintain_order=True)
    lists = lists.join(groups, on=[*SPACE, "layer", "kind"], how="left", maintain_order="left")
    lists = lists.with_columns(
        _rank("layer_id", *SPACE, "layer", "kind"), _rank("pool_id", *SPACE, "group")
    )
    owners = lists.select("pool_id", *SPACE, "group").unique().sort("pool_id")
    owners = owners.join(_gpu_of(trace, owners), on="pool_id", how="left", maintain_order="left")
    ids = lists.select("list_id", "layer_id", "pool_id")
    records = records.join(ids, on="list_id", how="left", maintain_order="left")
    layers = lists.select("layer_id", "pool_id", *SPACE, "layer", "kind").unique().sort("layer_id")
    pools = built.pools.join(
        layers.select("pool_id", *SPACE, "layer", "kind"), on=[*SPACE, "layer", "kind"], how="left"
    )
    peaks = _peaks(records)
    return KvCache(
        records=records,
        lists=lists.drop("group"),
        layers=layers,
        owners=owners,
        pools=pools,
        faults=built.faults,
        times=_times(trace, records, peaks),
        peaks=peaks,
    )


def _nothing(built: KvRecords) -> KvCache:
    """The cache that no marker states, as most traces have it."""
    ids = dict.fromkeys(("list_id", "layer_id", "pool_id"), pl.Int64())
    known = {**RECORDS, **ids, "group": pl.String(), "gpu": pl.Int16()}

    def empty(*names: str) -> pl.DataFrame:
        return pl.DataFrame(schema={name: known[name] for name in names})

    return KvCache(
        records=empty(*RECORDS, *ids),
        lists=empty("list_id", *LIST, "layer_id", "pool_id"),
        layers=empty("layer_id", "pool_id", *SPACE, "layer", "kind"),
        owners=empty("pool_id", *SPACE, "group", "gpu"),
        pools=built.pools.with_columns(pl.lit(None, pl.Int64).alias("pool_id")),
        faults=built.faults,
        times=(),
        peaks={},
    )


def _rank(name: str, *columns: str) -> pl.Expr:
    return (pl.struct(columns).rank("dense") - 1).cast(pl.Int64).alias(name)


def _groups(records: pl.DataFrame, pools: pl.DataFrame) -> pl.DataFrame:
    """Name what kind of blocks each layer has; layers of one name form a pool."""
    key = [*SPACE, "layer", "kind"]
    found = records.group_by(key).agg(
        (pl.col("source") == "realloc").any().alias("whole"),
        pl.col("bytes").n_unique().alias("sizes"),
        pl.col("bytes").first().alias("size"),
    )
    known = pools.select(*key, "blocks").unique(key, keep="last")
    found = found.join(known, on=key, how="left")
    label = (
        pl.when(pl.col("whole"))
        .then(pl.lit("one tensor a layer"))
        .when(pl.col("sizes") > 1)
        .then(pl.lit("blocks of mixed size"))
        .when(pl.col("blocks").is_not_null())
        .then(pl.format("pool of {} blocks of {} B", "blocks", "size"))
        .otherwise(pl.format("blocks of {} B", "size"))
    )
    return found.select(*key, label.alias("group"))


def _gpu_of(trace: Trace, owners: pl.DataFrame) -> pl.DataFrame:
    """Physical GPU of each address space: by ordinal, else the only GPU its process used."""
    ran = kernel_devices(trace)
    listed = trace.frame("cuda_devices").select("report", "pid", "device", "gpu")
    ordinals = pl.concat([ran, listed]).drop_nulls("gpu").cast({"device": pl.Int64})
    ordinals = ordinals.unique(["report", "pid", "device"], keep="first", maintain_order=True)
    named = owners.join(ordinals, on=SPACE, how="left").select("pool_id", "gpu")
    lonely = (
        ran.drop_nulls("gpu")
        .group_by("report", "pid")
        .agg(pl.when(pl.col("gpu").n_unique() == 1).then(pl.col("gpu").first()).alias("only"))
    )
    rest = owners.filter(pl.col("device") < 0).join(lonely, on=["report", "pid"], how="left")
    named = named.join(rest.select("pool_id", "only"), on="pool_id", how="left")
    return named.select("pool_id", pl.coalesce("gpu", "only").cast(pl.Int16).alias("gpu"))


def _peaks(records: pl.DataFrame) -> dict[int, int]:
    """First time at which the live bytes of each pool are largest."""
    grown = records.select("pool_id", pl.col("t_alloc_ns").alias("t_ns"), "bytes")
    freed = records.drop_nulls("t_free_ns").select(
        "pool_id", pl.col("t_free_ns").alias("t_ns"), -pl.col("bytes")
    )
    deltas = pl.concat([grown, freed]).group_by("pool_id", "t_ns").agg(pl.col("bytes").sum())
    level = deltas.sort("pool_id", "t_ns").with_columns(pl.col("bytes").cum_sum().over("pool_id"))
    best = level.group_by("pool_id").agg(pl.col("t_ns").get(pl.col("bytes").arg_max()))
    return dict(best.sort("pool_id").iter_rows())


def _times(trace: Trace, records: pl.DataFrame, peaks: Mapping[int, int]) -> tuple[int, ...]:
    """Ends of steps, thinned evenly, else even times; always the peaks and the last change."""
    if records.is_empty():
        return ()
    first, last = records.select(
        pl.col("t_alloc_ns").min().alias("first"),
        pl.max_horizontal("t_alloc_ns", "t_free_ns").max().alias("last"),
    ).row(0)
    count = min(ROW_BUDGET // records.height, MAX_TIMES)
    ends = steps(trace)["end_ns"].unique().sort().to_numpy()
    ends = ends[ends >= first]
    if ends.size:
        chosen = ends[np.unique(np.linspace(0, ends.size - 1, min(count, ends.size)).astype(int))]
    else:
        chosen = np.linspace(first, last, count).astype(np.int64)
    return tuple(sorted({*chosen.tolist(), *peaks.values(), int(last)}))


def named(rows: pl.DataFrame, cache: KvCache) -> pl.DataFrame:
    """Join names to rows that carry a list_id, layer_id or pool_id.

    Returns:
        The rows with gpu, group, pid, device, seq, layer and kind in place of ids, null where
        the level has none or the markers do not state it.
    """
    for key, frame in (("layer_id", cache.layers), ("list_id", cache.lists)):
        if key in rows.columns:
            new = [c for c in frame.columns if c not in rows.columns]
            rows = rows.join(frame.select(key, *new), on=key, how="left", maintain_order="left")
    new = [c for c in cache.owners.columns if c not in rows.columns]
    return rows.join(
        cache.owners.select("pool_id", *new), on="pool_id", how="left", maintain_order="left"
    )


@view
def kv_layout(trace: Trace) -> pl.DataFrame:
    """Measure the cache over time.

    Returns:
        Frame of level ("pool", "layer" or "seq"), t_ns, at_peak Boolean (the time at which the
        pool is fullest), pool_id, layer_id, list_id (null above their level) and the columns
        `tracekit.views.kv.layout.MEASURES`. Pools and layers appear at every time of
        `KvCache.times`, sequences at the peak of their pool.
    """
    cache = kv_cache(trace)
    if cache.records.is_empty():
        return pl.DataFrame(schema=LAYOUT)
    records = cache.records.select(*_LABELS.values(), *MEASURED, "t_alloc_ns", "t_free_ns")
    always = _live(records, cache.times)
    peak = _live(records, tuple(cache.peaks.values()), tuple(cache.peaks))
    parts = [_level(cache, always, "pool"), _level(cache, always, "layer")]
    parts.append(_level(cache, peak, "seq"))
    return pl.concat(parts).sort("level", "pool_id", "t_ns", "layer_id", "list_id")


def _live(
    records: pl.DataFrame, times: tuple[int, ...], pools: tuple[int, ...] | None = None
) -> pl.DataFrame:
    """Rows live at each of some times (t_alloc <= t < t_free), of one pool each where given."""
    begun, gone = (records[c].fill_null(_NEVER).to_numpy() for c in ("t_alloc_ns", "t_free_ns"))
    live = [(begun <= t) & (gone > t) for t in times]
    if pools is not None:
        own = records["pool_id"].to_numpy()
        live = [mask & (own == pool) for mask, pool in zip(live, pools, strict=True)]
    rows = [np.flatnonzero(mask) for mask in live]
    at = np.repeat(np.array(times, np.int64), [one.size for one in rows])
    return records[np.concatenate(rows)].with_columns(pl.Series("t_ns", at))


_LABELS = {"pool": "pool_id", "layer": "layer_id", "seq": "list_id"}


def _level(cache: KvCache, live: pl.DataFrame, level: str) -> pl.DataFrame:
    """Measure live sets of several times in one go: a time makes its own lists and owners."""
    label = _LABELS[level]
    n = cache.lists.height
    at = live["t_ns"].rle_id().cast(pl.Int64) * n
    moments = live.select(at.alias("at"), "t_ns").unique(maintain_order=True)
    rows = measure(live.with_columns(pl.col(c) + at for c in {"list_id", label}), label)
    rows = rows.with_columns((pl.col(label) // n * n).alias("at"), pl.col(label) % n)
    rows = rows.join(moments, on="at", how="left", maintain_order="left").drop("at")
    owner = {"layer": cache.layers, "seq": cache.lists}.get(level)
    if owner is not None:
        ids = [c for c in ("layer_id", "pool_id") if c != label]
        rows = rows.join(owner.select(label, *ids), on=label, how="left", maintain_order="left")
    nothing = [pl.lit(None, pl.Int64).alias(c) for c in _LABELS.values() if c not in rows.columns]
    rows = rows.with_columns(*nothing, pl.lit(level).alias("level"))
    peak = pl.col("pool_id").replace_strict(dict(cache.peaks), return_dtype=pl.Int64)
    return rows.with_columns((peak == pl.col("t_ns")).alias("at_peak")).select(LAYOUT.names())


MIXED = "blocks of mixed size"
USAGE_MEASURES: tuple[Column, ...] = (
    Column("t_ns", pl.Int64, "ns", "time"),
    Column("at_peak", pl.Boolean, "", "whether the pool is fullest then"),
    Column("reserved_bytes", pl.Int64, "bytes", "size of the stated pool; null when not stated"),
    Column("allocated_bytes", pl.Int64, "bytes", "distinct live blocks"),
    Column("used_bytes", pl.Int64, "bytes", "bytes holding tokens; null when not stated"),
    Column("allocated_frac", pl.Float64, "1", "allocated over reserved"),
    Column("used_frac", pl.Float64, "1", "holding tokens over reserved"),
    Column("internal_frac", pl.Float64, "1", "internal fragmentation: allocated without a token"),
    Column(
        "external_frac", pl.Float64, "1", "external: free outside the largest extent; null if paged"
    ),
    Column("used_from", pl.String, "", "blocks or step tokens; null when unknown"),
)
"""Columns of `kv_usage` that the analysis shows."""
_USAGE = Table(
    "kv_usage",
    (Column("pool_id", pl.Int64, "", "number of the pool"), *USAGE_MEASURES),
    "how full one pool is at one time",
)


@view
def kv_usage(trace: Trace) -> pl.DataFrame:
    """Return how full each pool is over time.

    Returns:
        One row a pool and time: pool_id, t_ns, at_peak, reserved_bytes (all stated pools; null
        when none was), allocated_bytes (distinct live blocks), used_bytes (holding tokens),
        allocated_frac and used_frac (of what is reserved), internal_frac (share of allocated
        bytes without a token), external_frac (share of free memory outside the largest free
        extent, at the peak; null for blocks of one size, any of which fits any hole), used_from
        ("blocks" when markers state it, "step tokens" when steps do; null when unknown), sorted.
    """
    cache = kv_cache(trace)
    pools = kv_layout(trace).filter(pl.col("level") == "pool")
    if pools.is_empty():
        return _USAGE.empty()
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
    return _USAGE.select(rows).sort("pool_id", "t_ns")


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
        (1 - pl.col("used_bytes") / pl.col("allocated_bytes")).alias("internal_frac"),
    )


def _with_step_tokens(rows: pl.DataFrame, counted: pl.DataFrame, cache: KvCache) -> pl.DataFrame:
    """Add the tokens that the cache held in the last step that said so."""
    said = counted.drop_nulls("kv_tokens").select("report", "t_ns", tokens="kv_tokens").sort("t_ns")
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
    schema = {"pool_id": pl.Int64, "t_ns": pl.Int64, "external_frac": pl.Float64}
    return pl.DataFrame(found, schema=schema, orient="row")


def _ends(rows: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    return rows["addr"], rows["addr"] + rows["bytes"]
