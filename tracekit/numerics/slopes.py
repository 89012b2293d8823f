"""The median slope through all pairs of points, of which there may be millions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import compiled

__all__ = ["median_slope"]

Float64: TypeAlias = NDArray[np.float64]
Int64: TypeAlias = NDArray[np.int64]

_LOOKED_AT = 20_000
_SPREAD_FRAC = 0.015
_MOST_KEPT_FRAC = 0.06
_PAIRS_PER_STEP = 10


def median_slope(x: Float64, y: Float64) -> float:
    """Median of the slopes through all pairs of points with two distinct x.

    Args:
        x: float64[n].
        y: float64[n].

    Returns:
        In units of y per x; nan without such a pair.
    """
    # In order of x, points that share one come together, and later points have a larger one.
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    above = np.searchsorted(x, x, side="right")
    n = int((x.size - above).sum())
    if n == 0:
        return np.nan
    middle = _middle_of_few(x, y, above, n) if sweeps.worth(n // _PAIRS_PER_STEP) else None
    if middle is None:
        return float(np.median(_slopes(x, y, above), overwrite_input=True))
    return float(np.mean(middle))


def _slopes(x: Float64, y: Float64, above: Int64) -> Float64:
    """The slopes of each point with the points above it."""
    slopes = np.empty(int((x.size - above).sum()))
    at = 0
    for row, first in enumerate(above):
        part = slopes[at : at + x.size - first]
        np.subtract(y[first:], y[row], out=part)
        part /= x[first:] - x[row]
        at += part.size
    return slopes


def _middle_of_few(x: Float64, y: Float64, above: Int64, n: int) -> Float64 | None:
    """The one or two middle slopes; None when those looked at first did not tell where they are.

    Some slopes tell between which values the middle lies; of all others it is enough to know on
    which side they are.
    """
    until = np.cumsum(x.size - above)
    chosen = np.random.default_rng(0).integers(0, n, _LOOKED_AT)
    row = np.searchsorted(until, chosen, side="right")
    other = x.size - (until[row] - chosen)
    some = np.sort((y[other] - y[row]) / (x[other] - x[row]))
    low, high = (some[int((0.5 + part) * some.size)] for part in (-_SPREAD_FRAC, _SPREAD_FRAC))
    kept = np.empty(int(_MOST_KEPT_FRAC * n))
    below, n_kept = _between(x, y, above, float(low), float(high), kept)
    first, last = (n - 1) // 2 - below, n // 2 - below
    if n_kept > kept.size or first < 0 or last >= n_kept:
        return None
    return np.partition(kept[:n_kept], (first, last))[first : last + 1]


@compiled(
    "UniTuple(int64, 2)(ro(float64[::1]), ro(float64[::1]), ro(int64[::1]), float64, float64,"
    " float64[::1])",
    error_model="numpy",
)
def _between(
    x: Float64, y: Float64, above: Int64, low: float, high: float, kept: Float64
) -> tuple[int, int]:
    """How many slopes lie below two values, and how many between: kept if they fit."""
    below, n = 0, 0
    slopes = np.empty(x.size)
    for row in range(x.size):
        # One thing at a time, so that each becomes vector code.
        right, up = x[above[row] :], y[above[row] :]
        for i in range(right.size):
            slopes[i] = (up[i] - y[row]) / (right[i] - x[row])
        inside = 0
        for i in range(right.size):
            below += slopes[i] < low
            inside += (slopes[i] >= low) & (slopes[i] <= high)
        if inside:
            for i in range(right.size):
                if low <= slopes[i] <= high:
                    if n < kept.size:
                        kept[n] = slopes[i]
                    n += 1
    return below, n
