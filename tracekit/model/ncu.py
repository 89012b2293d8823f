"""What Nsight Compute's counters say about the L2, and which kernels of a timeline they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

__all__ = [
    "BARE_NAME",
    "CACHE_CAVEAT",
    "METRICS",
    "PROFILE",
    "RECAPTURE",
    "SHAPE",
    "STALLS",
    "Misses",
    "Stall",
    "join_timeline",
    "miss_share",
    "worst_stall",
]

STALLS = (
    "long_scoreboard",
    "short_scoreboard",
    "math_pipe_throttle",
    "lg_throttle",
    "mio_throttle",
    "gmma",
    "barrier",
    "wait",
)
"""Reasons for which a warp does not issue, as far as a reading of them is known."""

METRICS: dict[str, tuple[str, str]] = {
    "time_ns": ("gpu__time_duration.sum", "ns"),
    "dram_read_bytes": ("dram__bytes_read.sum", "bytes"),
    "l2_sectors": ("lts__t_sectors.sum", ""),
    "l2_hits": ("lts__t_sectors_lookup_hit.sum", ""),
    "l2_misses": ("lts__t_sectors_lookup_miss.sum", ""),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct", "%"),
    "l2_read_sectors": ("lts__t_sectors_op_read.sum", ""),
    "l2_read_hits": ("lts__t_sectors_op_read_lookup_hit.sum", ""),
    "l2_read_misses": ("lts__t_sectors_op_read_lookup_miss.sum", ""),
    "l2_tex_sectors": ("lts__t_sectors_srcunit_tex.sum", ""),
    "l2_tex_hits": ("lts__t_sectors_srcunit_tex_lookup_hit.sum", ""),
    "l2_tex_misses": ("lts__t_sectors_srcunit_tex_lookup_miss.sum", ""),
    "warps_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active", "%"),
    "most_warps_pct": ("sm__maximum_warps_per_active_cycle_pct", "%"),
    "tensor_pct": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%"),
    "alu_pct": ("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", "%"),
    "issue_active": ("smsp__issue_active.avg.per_cycle_active", ""),
    "warp_latency": ("smsp__average_warp_latency_per_inst_issued.ratio", ""),
    **{
        f"stall_{why}": (f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio", "")
        for why in STALLS
    },
}
"""Column of the catalog table ``ncu_kernels`` to the counter it holds and its unit."""


RECAPTURE = "--cache-control none --clock-control none --replay-mode application"
"""Options of ncu under which cache numbers are those of the run."""
CACHE_CAVEAT = (
    "The file does not say how caches were treated: by default ncu empties them before every pass"
    f" and locks the clocks, so hit rates and durations are not those of the run ({RECAPTURE})."
)
PROFILE = (
    f"ncu {RECAPTURE} --nvtx --metrics gpu__time_duration.sum,"
    "dram__bytes_read.sum,lts__t_sectors.sum,lts__t_sector_hit_rate.pct,"
    "lts__t_sectors_srcunit_tex.sum,lts__t_sectors_srcunit_tex_lookup_miss.sum"
    " --csv --page raw --log-file kernels.csv YOUR_COMMAND"
)
"""Command that counts L2 misses per kernel into a file that is read here."""
_TEX = "lts__t_sectors_srcunit_tex"
_READ = "lts__t_sectors_op_read"
_ALL = "lts__t_sectors"
_HIT_RATE = "lts__t_sector_hit_rate.pct"
BARE_NAME = r"^(?:void\s+)?([\w:~]+)"
"""Finds a kernel's name without return type, template arguments and parameters."""
SHAPE = [f"{kind}_{axis}" for kind in ("grid", "block") for axis in "xyz"]
"""Columns of a launch shape."""
STALLED_ABOVE, BUSY_FROM = 0.3, 0.8
"""A reason is worth saying above this share of a warp's time, if schedulers issue less often."""


class Misses(NamedTuple):
    """Share of L2 look-ups that missed.

    Attributes:
        share: 0..1; None when no counter measures it.
        source: Counters that it rests on.
        inconsistent: Whether counted misses exceed look-ups, so that another way was taken.
        lookups: What `share` is a share of; 1 where only a rate was counted; None without `share`.
    """

    share: float | None
    source: str
    inconsistent: bool
    lookups: float | None = None


def miss_share(sums: Mapping[str, float | None]) -> Misses:
    """Return the L2 miss share of one kernel or of a group.

    Args:
        sums: Counter to its sum over the group (a ratio of sums, never a mean of ratios); the hit
            rate in percent, which is only used where sectors do not give it.
    """
    inconsistent = False
    for unit in (_TEX, _READ, _ALL):
        sectors = sums.get(f"{unit}.sum")
        miss, hit = (sums.get(f"{unit}_lookup_{what}.sum") for what in ("miss", "hit"))
        if not sectors:
            continue
        if miss is not None and miss <= sectors:
            return Misses(miss / sectors, f"{unit}_lookup_miss", inconsistent, sectors)
        inconsistent = inconsistent or miss is not None
        if hit is not None and hit <= sectors:
            return Misses(1 - hit / sectors, f"{unit}_lookup_hit", inconsistent, sectors)
    rate = sums.get(_HIT_RATE)
    if rate is not None and 0 <= rate <= 100:
        return Misses(1 - rate / 100, _HIT_RATE, inconsistent, sums.get(f"{_ALL}.sum") or 1.0)
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
    bare = pl.col("name").str.extract(BARE_NAME, 1)
    key = ["name", *SHAPE]
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


class Stall(NamedTuple):
    """What warps wait for most.

    Attributes:
        reason: One of `STALLS`, "" when none was counted.
        share: Of the time between two instructions of a warp, 0..1; None when not counted.
        flagged: Whether it is worth a line; None when unknown.
        reading: What it points at.
    """

    reason: str
    share: float | None
    flagged: bool | None
    reading: str


READINGS = {
    "long_scoreboard": "waiting for global memory",
    "short_scoreboard": "waiting for shared memory: staging of operands",
    "mio_throttle": "shared-memory instructions queue up: staging of operands",
    "lg_throttle": "too many narrow loads",
    "math_pipe_throttle": "an arithmetic pipe is full",
    "gmma": "waiting for results of tensor cores",
    "barrier": "warps of a block wait for each other",
    "wait": "fixed latency of dependent instructions",
}
CONVERSION = "conversion bound: the integer pipe is busier than the tensor cores"


def worst_stall(values: Mapping[str, float | None]) -> Stall:
    """Return the reason for which the warps of a kernel wait longest.

    Source: after Nsight Compute's rule on stall reasons, with its constants.

    Args:
        values: Columns of the catalog table ``ncu_kernels``: stall_* (warps stalled per issue),
            warp_latency, issue_active (0..1), alu_pct and tensor_pct.
    """
    latency = values.get("warp_latency")
    known = {why: v for why in STALLS if (v := values.get(f"stall_{why}")) is not None}
    if not known or not latency:
        return Stall("", None, None, "")
    reason = max(known, key=lambda why: known[why])
    share, issue = known[reason] / latency, values.get("issue_active")
    flagged = False if share <= STALLED_ABOVE else None if issue is None else issue < BUSY_FROM
    alu, tensor = values.get("alu_pct"), values.get("tensor_pct")
    converting = alu is not None and tensor is not None and alu > tensor
    reading = READINGS[reason]
    if reason == "math_pipe_throttle" and converting:
        reading = CONVERSION
    return Stall(reason, share, flagged, reading)
