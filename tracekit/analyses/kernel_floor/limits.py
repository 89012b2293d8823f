"""Which limit kernels run at: the rules, and what they rest on.

Source: a kernel can be no faster than its bytes over the memory bandwidth and its operations over
the arithmetic rate (the roofline bound); how near it is to either is sampled, not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["ACHIEVABLE_FRAC", "AT_LIMIT", "MIN_PURE", "Limit", "Verdict", "judged"]

AT_LIMIT, NEAR_LIMIT = 0.8, 0.6
SMALL_NS = 10_000
"""Kernels below this on fewer blocks than multiprocessors are bound by latency."""
MOSTLY = 0.5
MIN_PURE = 5
"""Fewer samples of a subject say nothing about it."""
ACHIEVABLE_FRAC = 0.94
"""Highest share of peak DRAM bandwidth measured: attention kernels on an H200, 93.0 % + 1.1 %."""


class Limit(StrEnum):
    """What bounds kernels."""

    DRAM = "at the DRAM limit"
    TENSOR = "at the tensor limit"
    NEAR_DRAM = "near the DRAM limit"
    NEAR_TENSOR = "near the tensor limit"
    LATENCY = "latency-bound"
    LOW_OCCUPANCY = "low occupancy"
    UNSATURATED = "unsaturated"
    COMMUNICATION = "communication"
    UNKNOWN = "unknown"


class Verdict(NamedTuple):
    """What is said of the kernels of one class or name.

    Attributes:
        limit: What bounds them.
        why: Why that is unknown, "" where it is not.
        bound_ns: Most that reaching the limit could save, ns; None when not known.
        speedup_most_frac: Near a limit, the most by which they could be faster; else None.
    """

    limit: Limit
    why: str = ""
    bound_ns: float | None = None
    speedup_most_frac: float | None = None


def judged(
    row: Mapping[str, Any], achievable_frac: float = ACHIEVABLE_FRAC, period_ns: int | None = None
) -> Verdict:
    """Return the verdict on kernels of one class or name.

    Args:
        row: Columns n_pure, dram_frac, tensor_frac, sms_active_frac (None when not known),
            median_ns, few_blocks_frac and time_ns of `tables.CLASSES`.
        achievable_frac: Share of peak DRAM bandwidth that kernels can reach.
        period_ns: Sampling period; None without samples.
    """
    enough = row["n_pure"] >= MIN_PURE
    dram, tensor, sms = (
        row[f"{name}_frac"] if enough else None for name in ("dram", "tensor", "sms_active")
    )
    used = max((u for u in (dram, tensor) if u is not None), default=0.0)
    if used >= NEAR_LIMIT:
        return _limited(row["time_ns"], used, achievable_frac, of_dram=used == dram)
    few = row["few_blocks_frac"]
    if row["median_ns"] < SMALL_NS and few is not None and few > MOSTLY:
        return Verdict(Limit.LATENCY)
    if not enough:
        return Verdict(Limit.UNKNOWN, _too_few(row, period_ns))
    missing = [w for w, u in (("DRAM", dram), ("tensor", tensor), ("SM", sms)) if u is None]
    if missing or sms is None:
        return Verdict(Limit.UNKNOWN, f"no samples of {' and '.join(missing)} activity")
    return Verdict(Limit.LOW_OCCUPANCY if sms < NEAR_LIMIT else Limit.UNSATURATED)


def _limited(time_ns: int, used: float, achievable_frac: float, *, of_dram: bool) -> Verdict:
    most = achievable_frac if of_dram else 1.0
    bound = max(0.0, time_ns * (1 - used / most))
    if used >= AT_LIMIT:
        return Verdict(Limit.DRAM if of_dram else Limit.TENSOR, bound_ns=bound)
    near = Limit.NEAR_DRAM if of_dram else Limit.NEAR_TENSOR
    return Verdict(near, bound_ns=bound, speedup_most_frac=1 / used - 1)


def _too_few(row: Mapping[str, Any], period_ns: int | None) -> str:
    if period_ns is None:
        return "no samples of DRAM and tensor activity"
    if row["median_ns"] < period_ns:
        return "kernels shorter than the sampling period"
    return f"fewer than {MIN_PURE} samples lie inside the kernels"
