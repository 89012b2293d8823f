"""KV-cache block records from markers: which block of which sequence lay where, from when to when.

Writers differ in what they know: an engine with a paged pool states pools (`KV_POOL`) and block
tables (`KV_TABLE`), a cache of single tensors states their addresses (`KV_REALLOC`), anybody can
state single blocks (`KV_BLOCK`). All of them end up as rows of one frame of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

__all__ = ["KEY", "RECORDS", "SPACE", "UNSTATED", "KvRecords", "build_records", "pool_frame"]

UNSTATED = -1
"""Stands in `device`, `seq` and `layer` for a key that a marker does not carry."""
SPACE = ("report", "pid", "device")
"""Columns of an address space: addresses of two of them are never compared."""
KEY = (*SPACE, "seq", "layer", "kind", "block")
"""Columns that name one logical block."""
GEOMETRY = ("block_tokens", "token_pitch", "row_bytes", "head_pitch")

RECORDS = pl.Schema(
    {
        "report": pl.UInt16(),
        "pid": pl.UInt32(),
        "device": pl.Int64(),
        "seq": pl.Int64(),
        "layer": pl.Int64(),
        "kind": pl.String(),
        "block": pl.Int64(),
        "addr": pl.Int64(),
        "bytes": pl.Int64(),
        "used": pl.Int64(),
        "t_alloc_ns": pl.Int64(),
        "t_free_ns": pl.Int64(),
        "source": pl.String(),
        "moved": pl.Boolean(),
        "before_bytes": pl.Int64(),
        **{name: pl.Int64() for name in GEOMETRY},
    }
)
_EVENT = pl.Schema(
    {
        **{name: RECORDS[name] for name in (*KEY, "addr", "bytes", "used")},
        "t_ns": pl.Int64(),
        "row": pl.UInt32(),
        "source": pl.String(),
        "op": pl.String(),
        **{name: pl.Int64() for name in GEOMETRY},
    }
)
_OF_BLOCKS = ("KV_BLOCK", "KV_REALLOC", "KV_TABLE", "KV_FREE")
"""Events that state blocks."""


class KvRecords(NamedTuple):
    """Block records and what was wrong with the markers.

    Attributes:
        records: Frame with schema `RECORDS`, sorted by `KEY` and t_alloc_ns. One row is one block
            lying at one address: addr, bytes (its size), used (valid bytes, null when not
            stated), t_alloc_ns, t_free_ns (null: never freed), source ("block", "table" or
            "realloc"), moved (the same block lay elsewhere before and its content was copied),
            before_bytes (its size there), and the row geometry of its pool where one was stated
            (block_tokens, token_pitch, row_bytes, head_pitch in bytes).
        pools: Frame of the pools (see `pool_frame`).
        faults: What was dropped or merged, in words, to how many.
    """

    records: pl.DataFrame
    pools: pl.DataFrame
    faults: Mapping[str, int]


def build_records(markers: Mapping[str, pl.DataFrame]) -> KvRecords:
    """Return the block records that decoded markers state.

    Args:
        markers: Event name to frame, as `tracekit.views.nvtx.markers.decode` returns them.
    """
    faults: dict[str, int] = {}
    pools = pool_frame(markers["KV_POOL"])
    if not any(markers[name].height for name in _OF_BLOCKS):
        return KvRecords(pl.DataFrame(schema=RECORDS), pools, faults)
    tables = _table_events(markers["KV_TABLE"], pools, faults)
    events = pl.concat(
        [_block_events(markers["KV_BLOCK"]), _realloc_events(markers["KV_REALLOC"]), tables]
    )
    is_free = pl.col("op") == "free"
    stated = events.filter(~is_free)
    usable = (pl.col("bytes") > 0) & (pl.col("addr") > 0) & pl.col("block").is_not_null()
    sound = stated.filter(usable)
    _count(faults, "blocks without address, index or size", stated.height - sound.height)
    frees = pl.concat([events.filter(is_free), _shaped(markers["KV_FREE"], "free", "free")])
    return KvRecords(_lifetimes(sound, _spread(frees, sound), faults), pools, faults)


def pool_frame(pools: pl.DataFrame) -> pl.DataFrame:
    """Return the pools, repetitions of the same pool counted once.

    Args:
        pools: Decoded `KV_POOL` markers.

    Returns:
        Frame of report, pid, device, layer, kind, engine and table_group (which block tables fill
        it: String and Int64, null when not stated), addr,
        bytes (whole pool), stride (block to block), blocks, block_bytes, block_tokens,
        token_pitch, row_bytes and head_pitch (bytes; null when not stated; a cache without a heads
        axis has no head_pitch), sorted.
    """
    key = [*SPACE, "layer", "kind"]
    named = pools.sort("t_ns", "nvtx_row").with_columns(_identity(pools))
    named = named.with_columns(
        pl.col("block_bytes").fill_null(pl.col("bytes") // pl.col("blocks")),
        pl.col("bytes").fill_null(pl.col("stride") * pl.col("blocks")),
    ).with_columns(pl.col("stride").fill_null(pl.col("block_bytes")))
    sizes = ("addr", "bytes", "stride", "blocks", "block_bytes")
    named = named.rename({"group": "table_group"})
    named = named.unique([*key, "engine"], keep="last", maintain_order=True)
    return named.select(*key, "engine", "table_group", *sizes, *GEOMETRY).sort(*key, "engine")


def _identity(frame: pl.DataFrame) -> list[pl.Expr]:
    """Expressions that fill the parts of `KEY` that a marker leaves out."""
    filled = {"device": UNSTATED, "seq": UNSTATED, "layer": UNSTATED, "kind": "kv"}
    return [
        pl.col(name).fill_null(value) if name in frame.columns else pl.lit(value).alias(name)
        for name, value in filled.items()
    ]


def _shaped(frame: pl.DataFrame, source: str, op: str | pl.Expr) -> pl.DataFrame:
    """Return marker rows with the columns of `_EVENT`, absent ones null."""
    named = {
        "row": pl.col("nvtx_row"),
        "source": pl.lit(source),
        "op": pl.lit(op) if isinstance(op, str) else op,
    }
    have = set(frame.columns)
    return frame.select(
        named.get(name, pl.col(name) if name in have else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in _EVENT.items()
    )


def _block_events(blocks: pl.DataFrame) -> pl.DataFrame:
    frame = blocks.with_columns(_identity(blocks))
    return _shaped(frame, "block", pl.col("op").fill_null("alloc"))


def _realloc_events(moves: pl.DataFrame) -> pl.DataFrame:
    """One tensor holds the whole cache of a layer: block 0, whose address changes as it grows."""
    frame = moves.with_columns(*_identity(moves), pl.lit(0, pl.Int64).alias("block"))
    return _shaped(frame, "realloc", "alloc")


def _table_events(
    tables: pl.DataFrame, pools: pl.DataFrame, faults: dict[str, int]
) -> pl.DataFrame:
    """Block tables state ids once for all layers; every pool of the engine gives them an address.

    Tables come from the scheduler's process and pools from the workers': the engine (and the
    report) is all that joins the two.
    """
    frame = tables.with_columns(
        pl.col("first").fill_null(0), pl.col("op").fill_null("append"), pl.col("seq").fill_null(-1)
    )
    listed = frame.filter(pl.col("ids").list.len() > 0)
    listed = listed.with_columns(
        pl.int_ranges("first", pl.col("first") + pl.col("ids").list.len()).alias("block")
    ).explode("ids", "block")
    whole = frame.filter((pl.col("op") == "free") & (pl.col("ids").list.len().fill_null(0) == 0))
    nothing = pl.lit(None, pl.Int64)
    whole = whole.with_columns(nothing.alias("ids"), nothing.alias("block"))
    entries = pl.concat([listed, whole]).drop("pid", "device").rename({"ids": "id"})
    placed = entries.join(pools, on=["report", "engine"], how="inner", nulls_equal=True)
    orphans = entries.join(pools, on=["report", "engine"], how="anti", nulls_equal=True)
    # A table of one of several groups says nothing about a layer that names no group.
    ours = pl.col("group").is_null() | (pl.col("group") == pl.col("table_group"))
    unnamed = pl.col("group").is_not_null() & pl.col("table_group").is_null()
    what = "block-table entries of one of several groups, for layers that name none"
    _count(faults, what, placed.filter(unnamed).height)
    placed = placed.filter(ours.fill_null(False))
    _count(faults, "block-table entries whose engine stated no pool", orphans.height)
    outside = pl.col("id").is_not_null() & ~pl.col("id").is_between(
        0, pl.col("blocks"), closed="left"
    )
    _count(faults, "block ids outside their pool", placed.filter(outside).height)
    placed = placed.filter(~outside.fill_null(False)).with_columns(
        pl.col("addr") + pl.col("id") * pl.col("stride"), pl.col("block_bytes").alias("bytes")
    )
    return _shaped(placed, "table", pl.col("op"))


def _spread(frees: pl.DataFrame, stated: pl.DataFrame) -> pl.DataFrame:
    """Turn each release into one row a block that it names; what it leaves out means "all"."""
    blank = pl.col("layer") == UNSTATED
    frees = frees.with_columns(pl.when(~blank.fill_null(True)).then("layer").alias("layer"))
    by_place = pl.all_horizontal(pl.col("block", "seq").is_null()) & pl.col("addr").is_not_null()
    frees = frees.with_columns(pl.when(by_place).then("addr").alias("addr"))
    keys = [k for k in KEY if k not in {"report", "pid"}] + ["addr"]
    pattern = pl.concat_str(pl.col(k).is_not_null().cast(pl.Int8) for k in keys)
    known = stated.select(*KEY, "addr").unique()
    parts = []
    for (_,), rows in frees.with_columns(pattern.alias("_p")).group_by("_p", maintain_order=True):
        on = ["report", "pid", *(k for k in keys if rows[k][0] is not None)]
        hits = rows.select(*on, "t_ns", "row").join(known, on=on, how="inner")
        parts.append(hits.select(*KEY, "t_ns", "row").unique())
    if not parts:
        return stated.clear().select(*KEY, "t_ns", "row")
    return pl.concat(parts)


def _lifetimes(stated: pl.DataFrame, frees: pl.DataFrame, faults: dict[str, int]) -> pl.DataFrame:
    """Close every record at the next one of its block or at its release."""
    once = stated.sort(*KEY, "t_ns", "row").unique([*KEY, "t_ns"], keep="last", maintain_order=True)
    _count(
        faults,
        "two records of one block at one time (the last one counts)",
        stated.height - once.height,
    )
    rows = pl.concat([once, frees.with_columns(pl.lit("free").alias("op"))], how="diagonal")
    rows = rows.sort(*KEY, "t_ns", "row", maintain_order=True)
    rows = rows.with_columns(pl.struct(KEY).rle_id().alias("_key"))
    follows = pl.col("_key") == pl.col("_key").shift(1)
    after_record = follows & (pl.col("op").shift(1) != "free")
    is_free = pl.col("op") == "free"
    early = rows.filter(is_free & ~after_record.fill_null(False)).height
    _count(faults, "releases of blocks that were never allocated", early)
    before = pl.when(after_record).then(pl.col("bytes").shift(1))
    elsewhere = after_record & (pl.col("addr") != pl.col("addr").shift(1))
    copied = (pl.col("source") == "realloc") & (pl.col("bytes") >= before)
    rows = rows.with_columns(
        pl.col("t_ns").alias("t_alloc_ns"),
        pl.when(pl.col("_key") == pl.col("_key").shift(-1))
        .then(pl.col("t_ns").shift(-1))
        .alias("t_free_ns"),
        before.alias("before_bytes"),
        (elsewhere & (copied | (pl.col("op") == "move"))).fill_null(False).alias("moved"),
    ).filter(~is_free)
    return rows.select(pl.col(name).cast(dtype) for name, dtype in RECORDS.items())


def _count(faults: dict[str, int], what: str, n: int) -> None:
    if n:
        faults[what] = faults.get(what, 0) + n
