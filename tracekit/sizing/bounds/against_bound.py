"""A measured step next to its bound, with what the difference is made of."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.sizing.bounds.roofline import Phase

__all__ = ["CLOSE_FRAC", "AgainstBound", "against_bound"]

CLOSE_FRAC = 0.15
"""A measured value that differs by no more counts as predicted."""
_BELOW_FRAC = 0.03
"""What a measurement may lie below its bound by error of the clock and the counters."""
_COARSE_FRAC = 0.05
"""DRAM activity below which rounding of the counter to whole percent matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstBound:
    """One measured step next to its bound.

    Attributes:
        time_ratio: Measured over predicted time; None if there is no prediction.
        bytes_ratio: Measured over predicted bytes; None if they were not measured.
        bandwidth_frac: Measured bandwidth over the one that the prediction took; None likewise.
        verdict: ``as predicted``, ``slower``, ``implausible`` or ``unknown``.
        reasons: What the difference is made of.
    """

    time_ratio: float | None
    bytes_ratio: float | None
    bandwidth_frac: float | None
    verdict: str
    reasons: tuple[str, ...]


def against_bound(
    bound: Phase, time_s: float, dram_bytes: float | None, dram_bytes_per_s: float
) -> AgainstBound:
    """Return how a measured step compares with its bound.

    Args:
        bound: The prediction.
        time_s: Measured time of the step, seconds.
        dram_bytes: Measured DRAM traffic of the step; None if unknown.
        dram_bytes_per_s: Bandwidth that the prediction took, bytes/s.
    """
    ratio = None if bound.time_s is None else time_s / bound.time_s
    moved = None if dram_bytes is None else dram_bytes / bound.bytes
    busy = None if dram_bytes is None else dram_bytes / time_s / dram_bytes_per_s
    if ratio is None:
        return AgainstBound(
            time_ratio=None,
            bytes_ratio=moved,
            bandwidth_frac=busy,
            verdict="unknown",
            reasons=("the bound is not known",),
        )
    if ratio < 1 - _BELOW_FRAC:
        verdict = "implausible"
        reasons = ["faster than its bound: model, load, formats or GPU differ from what ran"]
    elif ratio <= 1 + CLOSE_FRAC:
        verdict, reasons = "as predicted", []
    else:
        verdict, reasons = "slower", _reasons(bound, moved, busy)
    return AgainstBound(
        time_ratio=ratio,
        bytes_ratio=moved,
        bandwidth_frac=busy,
        verdict=verdict,
        reasons=tuple(reasons),
    )


def _reasons(bound: Phase, moved: float | None, busy: float | None) -> list[str]:
    if moved is None or busy is None:
        return ["DRAM traffic was not measured, so the cause is not known"]
    reasons = []
    if busy < _COARSE_FRAC and abs(moved - 1) > CLOSE_FRAC:
        text = f"bytes are uncertain: the counter states whole percent, and the mean is {busy:.1%}"
        reasons.append(text)
    elif moved > 1 + CLOSE_FRAC:
        reasons.append(f"{moved:.2f} times the bytes: activations, copies or unfused kernels")
    elif moved < 1 - CLOSE_FRAC:
        reasons.append(f"only {moved:.2f} of the bytes: the cache holds some, or less was read")
    if bound.bound == "memory" and busy < 1 - CLOSE_FRAC:
        text = "launch gaps, small kernels or communication"
        reasons.append(f"{busy:.0%} of the bandwidth: {text}")
    if bound.bound == "compute":
        reasons.append("the tensor cores do not reach their peak rate, or idle between kernels")
    return reasons
