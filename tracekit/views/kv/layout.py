"""How live KV blocks lie in memory, measured for sequences, layers or pools at once.

Counts come from `tracekit.numerics`; a layer or pool row is the sum of its sequences. A block that
several sequences share counts once in bytes, granules and pages, and in every sequence in strides.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.table import Column
from tracekit.numerics import strides

__all__ = ["MEASURED", "MEASURES", "live_at", "measure"]

SECTOR_BYTES, LINE_BYTES = 32, 128
_PHASE_BYTES = 128
"""Row patterns repeat with the block's address modulo the largest granule."""

MEASURES: tuple[Column, ...] = (
    Column("m", pl.Int64, "", "live blocks, one shared by several sequences counted in each"),
    Column("pairs", pl.Int64, "", "neighbours with consecutive logical indices"),
    Column("frag_frac", pl.Float64, "1", "fragmentation index F: share of pairs with a gap"),
    Column("contiguity_frac", pl.Float64, "1", "share of pairs without a gap; null without pairs"),
    Column("backward", pl.Int64, "", "pairs whose second block lies at a lower address"),
    Column("stride_mean_bytes", pl.Float64, "bytes", "mean distance of two neighbours"),
    Column("stride_median_bytes", pl.Float64, "bytes", "median distance of two neighbours"),
    Column("runs", pl.Int64, "", "contiguous pieces in logical order"),
    Column("run_mean_bytes", pl.Float64, "bytes", "mean length of a contiguous piece"),
    Column("bytes", pl.Int64, "bytes", "size of all distinct live blocks"),
    Column("used_bytes", pl.Int64, "bytes", "bytes that hold tokens; null when not stated"),
    Column(
        "internal_frac", pl.Float64, "1", "internal fragmentation: share of bytes without a token"
    ),
    Column("span_bytes", pl.Int64, "bytes", "lowest to highest address, summed over sequences"),
    Column("scatter_frac", pl.Float64, "1", "share of the span that is not the group's"),
    Column("segment", pl.String, "", "what overfetch is counted on: row or block"),
    Column("misaligned_16b_frac", pl.Float64, "1", "share of segments off a 16 B boundary"),
    Column("misaligned_32b_frac", pl.Float64, "1", "share of segments off a 32 B boundary"),
    Column("misaligned_128b_frac", pl.Float64, "1", "share of segments off a 128 B boundary"),
    Column("overfetch_32b_frac", pl.Float64, "1", "extra 32 B sectors, counted for each segment"),
    Column(
        "request_overfetch_frac", pl.Float64, "1", "the same with segments cut into 128 B requests"
    ),
    Column("overfetch_64b_frac", pl.Float64, "1", "extra 64 B granules, counted for each segment"),
    Column("overfetch_128b_frac", pl.Float64, "1", "extra 128 B lines, counted for each segment"),
    Column(
        "sector_overfetch_frac",
        pl.Float64,
        "1",
        "extra distinct sectors: lower bound of DRAM overfetch",
    ),
    Column(
        "line_overfetch_frac", pl.Float64, "1", "extra distinct lines: what the cache holds besides"
    ),
    Column("line_bytes", pl.Int64, "bytes", "distinct 128 B lines that the blocks touch"),
    Column("pages", pl.Int64, "", "distinct 2 MiB pages touched"),
    Column("pages_min", pl.Int64, "", "pages that the bytes would need"),
    Column("page_ratio", pl.Float64, "x", "pages over pages_min; null below 2 MiB"),
    Column("overlaps", pl.Int64, "", "blocks of a sequence that begin inside another: a fault"),
)
"""Columns that `measure` adds to each level."""


MEASURED = (
    *("block", "addr", "bytes", "used"),
    *("block_tokens", "token_pitch", "row_bytes", "head_pitch"),
)
"""Columns of a record that `measure` reads in addition to its labels."""


def live_at(records: pl.DataFrame, t_ns: int) -> pl.DataFrame:
    """Return the records that are live at a time (t_alloc <= t < t_free)."""
    live = pl.col("t_free_ns").is_null() | (pl.col("t_free_ns") > t_ns)
    return records.filter((pl.col("t_alloc_ns") <= t_ns) & live)


def measure(live: pl.DataFrame, label: str) -> pl.DataFrame:
    """Measure the layout of live blocks.

    Args:
        live: Records of one time, at most one a logical block, with list_id Int64 (sequence,
            layer and kind) and the column `label`.
        label: Int64 column to report by, constant within a list_id.

    Returns:
        Frame of `label` and `MEASURES`, one row a label, sorted.
    """
    counted = _shape(live, label)
    once = live.select(label, "addr", "bytes", "used", *_ROW_SHAPE).sort(label, "addr", "bytes")
    again = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1) for c in (label, "addr", "bytes"))
    once = once.filter(~again.fill_null(False))
    covered = _covered(once, label)
    joined = counted.join(_bytes(once, covered, label), on=label, how="left", maintain_order="left")
    more = _traffic(once, covered, label)
    joined = joined.join(more, on=label, how="left", maintain_order="left")
    return joined.select(label, *(pl.col(c.name).cast(c.dtype) for c in MEASURES))


def _shape(live: pl.DataFrame, label: str) -> pl.DataFrame:
    """Strides, runs and spans by label."""
    columns = (live[c].to_numpy() for c in ("list_id", "block", "addr", "bytes", "bytes", label))
    shape = strides.layout(*columns)
    frame = pl.DataFrame(
        {
            label: shape.group,
            "m": shape.blocks,
            "pairs": shape.pairs,
            "frag_frac": shape.fragmentation_frac,
            "contiguity_frac": np.where(shape.pairs > 0, shape.contiguity_frac, np.nan),
            "backward": shape.backward,
            "stride_mean_bytes": shape.stride_mean_bytes,
            "stride_median_bytes": shape.stride_median_bytes,
            "runs": shape.runs,
            "run_mean_bytes": shape.run_mean_bytes,
            "span_bytes": shape.span_bytes,
            "scatter_frac": shape.scatter_frac,
            "overlaps": shape.overlaps,
        }
    )
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def _bytes(once: pl.DataFrame, covered: pl.DataFrame, label: str) -> pl.DataFrame:
    """Valid bytes of distinct blocks, and the memory that they cover together."""
    stated = pl.col("used").is_not_null()
    sums = once.group_by(label).agg(
        pl.col("bytes").sum().alias("all"),
        pl.when(stated).then(pl.col("used")).sum().alias("used"),
        pl.when(stated).then(pl.col("bytes")).sum().alias("of"),
    )
    # Where only some blocks state what they hold, those represent the rest if they are most of it.
    used = pl.when(pl.col("of") * 2 >= pl.col("all")).then(pl.col("used") / pl.col("of"))
    sums = sums.join(covered.drop("sector_overfetch", "line_overfetch"), on=label).with_columns(
        (used * pl.col("bytes")).round().cast(pl.Int64).alias("used_bytes"),
        (1 - used).alias("internal_frac"),
        (-(-pl.col("bytes") // strides.PAGE_BYTES)).alias("pages_min"),
    )
    ratio = pl.col("pages") / pl.col("pages_min")
    judged = pl.when(pl.col("bytes") >= strides.PAGE_BYTES).then(ratio)
    return sums.with_columns(judged.alias("page_ratio")).drop("used", "of", "all")


def _covered(once: pl.DataFrame, label: str) -> pl.DataFrame:
    """Distinct bytes, sectors, lines and pages that blocks (sorted by address) cover."""
    columns = (once[c].to_numpy() for c in (label, "addr", "bytes"))
    groups, address, size = (np.ascontiguousarray(c) for c in columns)
    first = strides.group_starts(groups)
    granules = {
        "bytes": 1,
        "sector_overfetch": SECTOR_BYTES,
        "line_overfetch": LINE_BYTES,
        "pages": strides.PAGE_BYTES,
    }
    distinct = {
        name: strides.count_granules(address, size, first, granule)[1]
        for name, granule in granules.items()
    }
    return pl.DataFrame({label: groups[first], **distinct})


def _traffic(once: pl.DataFrame, covered: pl.DataFrame, label: str) -> pl.DataFrame:
    """Alignment and overfetch of distinct blocks, on rows where their pool states them.

    What a segment touches depends on its size and on its address modulo the largest granule, so
    one block of each such pattern is counted and weighed by how many there are.
    """
    by_row = pl.all_horizontal(pl.col("row_bytes", "token_pitch", "block_tokens").is_not_null())
    phased = once.with_columns(
        (pl.col("addr") % _PHASE_BYTES).alias("phase"),
        *(pl.when(by_row).then(c).alias(c) for c in _ROW_SHAPE),
    )
    kinds = phased.group_by(label, *_PATTERN).len().sort(pl.all())
    patterns = kinds.select(_PATTERN).unique(maintain_order=True)
    counted = [_count_pattern(pattern) for pattern in patterns.iter_rows(named=True)]
    weighed = kinds.join(
        patterns.hstack(pl.DataFrame(counted, schema=_COUNTS)), on=_PATTERN, nulls_equal=True
    )
    summed = weighed.group_by(label).agg(
        pl.col("row_bytes").is_not_null().any().alias("rows"),
        *((pl.col(c) * pl.col("len")).sum() for c in _COUNTS),
    )
    # A granule that two blocks share counts twice in the patterns; the count over whole blocks,
    # which hold all of their rows, bounds that from above.
    whole = covered.select(label, "sector_overfetch", "line_overfetch", requested_once="bytes")
    summed = summed.join(whole, on=label, suffix="_whole").with_columns(
        pl.min_horizontal("asked", "requested_once").alias("requested_once"),
        *(
            pl.min_horizontal(c, f"{c}_whole").alias(c)
            for c in ("sector_overfetch", "line_overfetch")
        ),
    )
    return _ratios(summed, label)


def _ratios(summed: pl.DataFrame, label: str) -> pl.DataFrame:
    def extra(column: str, granule: int, of: str = "asked") -> pl.Expr:
        return (granule * pl.col(column) / pl.col(of) - 1).alias(f"{column}_frac")

    return summed.select(
        label,
        pl.when("rows").then(pl.lit("row")).otherwise(pl.lit("block")).alias("segment"),
        *(
            (pl.col(f"misaligned_{q}b") / pl.col("segments")).alias(f"misaligned_{q}b_frac")
            for q in (16, 32, 128)
        ),
        extra("overfetch_32b", 32),
        extra("request_overfetch", 32),
        extra("overfetch_64b", 64),
        extra("overfetch_128b", 128),
        extra("sector_overfetch", 32, "requested_once"),
        extra("line_overfetch", 128, "requested_once"),
        (pl.col("line_overfetch") * LINE_BYTES).alias("line_bytes"),
    )


_ROW_SHAPE = ("block_tokens", "token_pitch", "row_bytes", "head_pitch")
_PATTERN = ("bytes", *_ROW_SHAPE, "phase")
_COUNTS = pl.Schema(
    {
        name: pl.Int64()
        for name in (
            *(
                "segments",
                "asked",
                "misaligned_16b",
                "misaligned_32b",
                "misaligned_128b",
                "overfetch_32b",
                "overfetch_64b",
                "overfetch_128b",
            ),
            *("request_overfetch", "sector_overfetch", "line_overfetch"),
        )
    }
)


def _count_pattern(pattern: dict[str, int | None]) -> dict[str, int]:
    """Counts of one block of a pattern."""
    address, size = _segments(pattern)
    one = np.zeros(address.size, np.int64)
    found = strides.traffic(address, size, one)
    counts: dict[str, NDArray[np.int64]] = {
        "segments": found.segments,
        "asked": found.bytes,
        **{f"misaligned_{q}b": found.misaligned[q] for q in strides.ALIGNMENTS},
        **{f"overfetch_{g}b": found.touched[g] for g in strides.GRANULES},
        "request_overfetch": _request_sectors(address, size).sum(keepdims=True),
        "sector_overfetch": found.distinct[SECTOR_BYTES],
        "line_overfetch": found.distinct[LINE_BYTES],
    }
    return {name: int(values[0]) for name, values in counts.items()}


def _request_sectors(address: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sectors that segments touch when cut into 128 B requests.

    All whole requests of a segment begin at the same place within a sector, so one is counted.
    """
    whole = size // LINE_BYTES
    rest = size - whole * LINE_BYTES
    behind = address + whole * LINE_BYTES
    count: NDArray[np.int64] = whole * _sectors(address, LINE_BYTES)
    return count + np.where(rest > 0, _sectors(behind, rest), 0)


def _sectors(address: NDArray[np.int64], size: NDArray[np.int64] | int) -> NDArray[np.int64]:
    return (address + size - 1) // SECTOR_BYTES - address // SECTOR_BYTES + 1


def _segments(pattern: dict[str, int | None]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Addresses and sizes of what is read from one block: its (token, head) rows, or all of it.

    Without a head pitch the block has no heads axis, and a row is all that a token keeps.
    """
    phase, size = int(pattern["phase"] or 0), int(pattern["bytes"] or 1)
    tokens, row, pitch = (pattern[c] for c in ("block_tokens", "row_bytes", "token_pitch"))
    if tokens is None or row is None or pitch is None:
        return np.array([phase], np.int64), np.array([size], np.int64)
    heads = max(1, size // (tokens * row)) if pattern["head_pitch"] else 1
    token = np.arange(tokens, dtype=np.int64) * pitch
    head = np.arange(heads, dtype=np.int64) * (pattern["head_pitch"] or 0)
    at = (token[:, None] + head[None, :]).ravel() + phase
    return at, np.full(at.size, row, np.int64)
