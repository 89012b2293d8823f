"""Two clocks that saw the same events: their offset, its error, and which event is which.

The last moments of a collective are nearly simultaneous on all its ranks, so their differences
between two ranks give the offset of the clocks (median) and its error (MAD). When one rank
recorded more collectives than the other, the right correspondence is the one whose differences
scatter least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Shift", "best_shift", "mad", "offset"]

_CELLS = 1 << 22
"""Most differences that are looked at when many correspondences are possible."""
_CLEARLY = 2.0
"""The runner-up must scatter this many times more than the best."""


@dataclass(frozen=True)
class Shift:
    """Which event of the longer sequence the first event of the shorter one is.

    Attributes:
        start: Index in the longer sequence.
        mad: Scatter of the differences there, ns.
    """

    start: int
    mad: float


def mad(values: ArrayLike) -> float:
    """Median absolute deviation from the median.

    Args:
        values: float64[n] or int64[n], n >= 1.

    Returns:
        Same unit as `values`.
    """
    array = np.asarray(values)
    return float(np.median(np.abs(array - np.median(array))))


def offset(reference_ns: ArrayLike, other_ns: ArrayLike) -> tuple[float, float]:
    """Offset of one clock to another from events that both saw.

    Args:
        reference_ns: int64[n], ns, times on the reference clock.
        other_ns: int64[n], ns, times of the same events on the other clock.

    Returns:
        ``(offset, mad)`` in ns: what to subtract from the other clock, and its scatter.
    """
    differences = np.asarray(other_ns, np.int64) - np.asarray(reference_ns, np.int64)
    return float(np.median(differences)), mad(differences)


def best_shift(longer_ns: ArrayLike, shorter_ns: ArrayLike) -> Shift | None:
    """Find the stretch of one sequence of events that the other one recorded.

    Args:
        longer_ns: int64[n], ns, ascending.
        shorter_ns: int64[m], ns, ascending, 1 <= m <= n; its clock may be offset by any amount.

    Returns:
        The correspondence whose time differences have the smallest MAD; None when another one is
        about as good (evenly spaced events look alike wherever one starts).
    """
    longer, shorter = np.asarray(longer_ns, np.int64), np.asarray(shorter_ns, np.int64)
    candidates = longer.size - shorter.size + 1
    windows = np.lib.stride_tricks.sliding_window_view(longer, shorter.size)
    looked_at = _spread_over(shorter.size, max(16, _CELLS // candidates))
    scatter = np.array(
        [mad(shorter[looked_at] - windows[start, looked_at]) for start in range(candidates)]
    )
    best = int(np.argmin(scatter))
    rest = np.delete(scatter, best)
    if rest.size and not rest.min() > _CLEARLY * scatter[best]:
        return None
    return Shift(best, float(scatter[best]))


def _spread_over(size: int, most: int) -> NDArray[np.int64]:
    """At most `most` indices, evenly over ``range(size)``."""
    if size <= most:
        return np.arange(size)
    return np.linspace(0, size - 1, most).astype(np.int64)
