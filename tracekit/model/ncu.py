"""What Nsight Compute's counters say about the L2, and which kernels of a timeline they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

__all__ = ["Misses", "join_timeline", "miss_share"]

_TEX = "lts__t_sectors_srcunit_tex"
_READ = "lts__t_sectors_op_read"
_ALL = "lts__t_sectors"
_HIT_RATE = "lts__t_sector_hit_rate.pct"
_NAME_ENDS = r"^(?:void\s+)?([\w:~]+)"
_SHAPE = [f"{kind}_{axis}" for kind in ("grid", "block") for axis in "xyz"]


class Misses(NamedTuple):
    """Share of L2 look-ups that missed.

    Attributes:
        share: 0..1; None when no counter tells.
        source: Counters that it rests on.
        inconsistent: Whether counted misses exceed look-ups, so that another way was taken.
    """

    share: float | None
    source: str
    inconsistent: bool


def miss_share(sums: Mapping[str, float | None]) -> Misses:
    """Return the L2 miss share of one kernel or of a group.

    Args:
        sums: Counter to its sum over the group (a ratio of sums, never a mean of ratios); the hit
            rate in percent, which is only used where sectors do not tell.
    """
    inconsistent = False
    for unit in (_TEX, _READ, _ALL):
        sectors = sums.get(f"{unit}.sum")
        miss, hit = (sums.get(f"{unit}_lookup_{what}.sum") for what in ("miss", "hit"))
        if not sectors:
            continue
        if miss is not None and miss <= sectors:
            return Misses(miss / sectors, f"{unit}_lookup_miss", inconsistent)
        inconsistent = inconsistent or miss is not None
        if hit is not None and hit <= sectors:
            return Misses(1 - hit / sectors, f"{unit}_lookup_hit", inconsistent)
    rate = sums.get(_HIT_RATE)
    if rate is not None:
        return Misses(1 - rate / 100, _HIT_RATE, inconsistent)
    return Misses(None, "", inconsistent)


def join_timeline(timeline: pl.DataFrame, profiled: pl.DataFrame) -> pl.DataFrame:
    """Say which kernels of a timeline were profiled, by name, grid and block.

    Args:
        timeline: Frame with name String, grid_x .. block_z Int32 and time_ns Int64, a row a kernel
            execution or a group of them.
        profiled: Frame with name and grid_x .. block_z, a row a profiled kernel.

    Returns:
        One row a kernel: name (template arguments and return type left out), grid_x .. block_z,
        n_timeline, time_ns, n_profiled and status ("matched", "not profiled", "only in ncu"),
        longest first. What was not profiled is unknown, not without misses.
    """
    bare = pl.col("name").str.extract(_NAME_ENDS, 1)
    key = ["name", *_SHAPE]
    ran = (
        timeline.with_columns(bare)
        .group_by(key)
        .agg(pl.len().cast(pl.Int64).alias("n_timeline"), pl.col("time_ns").sum())
    )
    seen = (
        profiled.with_columns(bare).group_by(key).agg(pl.len().cast(pl.Int64).alias("n_profiled"))
    )
    both = ran.join(seen, on=key, how="full", coalesce=True, nulls_equal=True)
    status = (
        pl.when(pl.col("n_profiled").is_null())
        .then(pl.lit("not profiled"))
        .when(pl.col("n_timeline").is_null())
        .then(pl.lit("only in ncu"))
        .otherwise(pl.lit("matched"))
    )
    counts = pl.col("n_timeline", "n_profiled", "time_ns").fill_null(0)
    both = both.with_columns(status.alias("status"), counts)
    return both.sort(["time_ns", *key], descending=[True, *[False] * len(key)])
