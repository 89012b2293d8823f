"""Association between two columns, with its uncertainty, and nothing claimed from too little.

Rows in which a value is not finite are left out. Every estimate is nan with fewer than three
rows or without variation, and so is an interval that the rows left do not support.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64: TypeAlias = NDArray[np.float64]

Z95 = 1.959964
EXACT_UP_TO = 8
PERMUTATIONS = 9999
# Two correlations closer than this count as equal when permutations are counted.
TIE = 1e-12
# Above this a variable is its covariate, and a partial correlation means nothing.
COLLINEAR = 0.999999
_THEIL_SEN_ROWS = 1000
"""All their pairs of rows are half a million: 10 ms."""
_CELLS_AT_ONCE = 1 << 21


class Correlation(NamedTuple):
    """A correlation coefficient and its 95% interval.

    Attributes:
        n: Rows used.
        r: The coefficient, -1..1, or nan.
        lo: Lower end of the interval, or nan.
        hi: Upper end of the interval, or nan.
    """

    n: int
    r: float
    lo: float
    hi: float


def pearson(x: ArrayLike, y: ArrayLike, n_eff: float | None = None) -> Correlation:
    """Linear correlation with Fisher's interval.

    Args:
        x: float64[n].
        y: float64[n].
        n_eff: Effective number of rows for serial data (see `effective_n`); None: n.

    Returns:
        The coefficient; its interval from n = 4.

    Source: R. A. Fisher, z transformation, standard error ``1 / sqrt(n - 3)``.
    """
    x, y = _complete(x, y)
    rows = x.size if n_eff is None else n_eff
    return _interval(x.size, _pearson(x, y), 1.0, rows - 3)


def spearman(x: ArrayLike, y: ArrayLike, n_eff: float | None = None) -> Correlation:
    """Rank correlation (average ranks for ties) with the interval of Bonett and Wright.

    Args:
        x: float64[n].
        y: float64[n].
        n_eff: Effective number of rows for serial data; None: n.

    Returns:
        The coefficient; its interval from n = 4.

    Source: Bonett and Wright (2000), standard error ``sqrt((1 + rho**2 / 2) / (n - 3))``.
    """
    x, y = _complete(x, y)
    rho = _pearson(average_ranks(x), average_ranks(y))
    rows = x.size if n_eff is None else n_eff
    return _interval(x.size, rho, float(np.sqrt(1 + rho**2 / 2)), rows - 3)


def partial(x: ArrayLike, y: ArrayLike, z: ArrayLike) -> Correlation:
    """Correlation of x and y with the linear effect of z taken out of both.

    Args:
        x: float64[n].
        y: float64[n].
        z: float64[n], the covariate.

    Returns:
        The coefficient, nan if x or y is all but a multiple of z; its interval from n = 5.
    """
    x, y, z = _complete(x, y, z)
    r_xy, r_xz, r_yz = _pearson(x, y), _pearson(x, z), _pearson(y, z)
    if not max(abs(r_xz), abs(r_yz)) <= COLLINEAR:
        return Correlation(x.size, np.nan, np.nan, np.nan)
    r = (r_xy - r_xz * r_yz) / np.sqrt((1 - r_xz**2) * (1 - r_yz**2))
    return _interval(x.size, float(np.clip(r, -1, 1)), 1.0, x.size - 4)


def permutation_p(x: ArrayLike, y: ArrayLike) -> float:
    """Two-sided p value of the correlation by permuting y; pass ranks to test Spearman's.

    All permutations are counted up to n = 8, 9,999 drawn ones (a fixed seed) beyond.

    Args:
        x: float64[n].
        y: float64[n].

    Returns:
        0..1, or nan.
    """
    x, y = _complete(x, y)
    observed = abs(_pearson(x, y))
    if np.isnan(observed):
        return np.nan
    if x.size <= EXACT_UP_TO:
        shuffled = np.array(list(itertools.permutations(y)))
        return float(np.mean(_reach(x, shuffled, observed)))
    rng = np.random.default_rng(0)
    rows = max(1, _CELLS_AT_ONCE // y.size)
    reached = 0
    for begin in range(0, PERMUTATIONS, rows):
        draws = np.tile(y, (min(rows, PERMUTATIONS - begin), 1))
        reached += int(_reach(x, rng.permuted(draws, axis=1), observed).sum())
    return (1 + reached) / (1 + PERMUTATIONS)


def circular_shift_p(x: ArrayLike, y: ArrayLike) -> float:
    """Two-sided p value for serial data: y is rotated, so its own memory is kept.

    Args:
        x: float64[n], in order of time, all finite.
        y: float64[n], likewise.

    Returns:
        Share of the n rotations (the identity included) that correlate as much, or nan.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    observed = abs(_pearson(x, y))
    if np.isnan(observed):
        return np.nan
    u, v = _unit(x), _unit(y)
    rotated = np.correlate(np.concatenate((v, v[:-1])), u, "valid")
    return float(np.mean(np.abs(rotated) >= observed - TIE))


def holm(p: ArrayLike) -> Float64:
    """Adjust the p values of several tests for their number.

    Args:
        p: float64[k]; nan marks a test that was not made and does not count.

    Returns:
        float64[k], adjusted, at most 1.

    Source: S. Holm (1979), step-down procedure.
    """
    values = np.asarray(p, np.float64)
    made = np.flatnonzero(~np.isnan(values))
    order = made[np.argsort(values[made], kind="stable")]
    factors = np.arange(order.size, 0, -1)
    adjusted = np.full(values.size, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1)
    return adjusted


def lag1(x: ArrayLike) -> float:
    """Autocorrelation of a series with itself one step later.

    Args:
        x: float64[n], in order of time.

    Returns:
        -1..1, or nan.
    """
    values = np.asarray(x, np.float64)
    if values.size < 3 or np.ptp(values) == 0:
        return np.nan
    d = values - values.mean()
    return float(d[1:] @ d[:-1] / (d @ d))


def effective_n(n: int, lag1_x: float, lag1_y: float) -> float:
    """Number of independent rows that a pair of serial columns is worth.

    Args:
        n: Rows.
        lag1_x: Lag-1 autocorrelation of x.
        lag1_y: Lag-1 autocorrelation of y.

    Returns:
        ``n (1 - ab) / (1 + ab)``, at most n.

    Source: Bartlett (1935), Bretherton et al. (1999).
    """
    product = lag1_x * lag1_y
    return float(n * min(1.0, (1 - product) / (1 + product)))


def theil_sen(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Median of the slopes through all pairs of rows, and the matching intercept.

    Args:
        x: float64[n].
        y: float64[n]; beyond 1,000 rows evenly spaced ones by x stand for all.

    Returns:
        ``(slope, intercept)`` in units of y per x and of y; nan without two distinct x.
    """
    x, y = _complete(x, y)
    if x.size > _THEIL_SEN_ROWS:
        chosen = np.linspace(0, x.size - 1, _THEIL_SEN_ROWS).astype(np.int64)
        rows = np.lexsort((y, x))[chosen]
        x, y = x[rows], y[rows]
    slope = _median_slope(x, y)
    return slope, float(np.median(y - slope * x)) if np.isfinite(slope) else np.nan


def top_minus_bottom(x: ArrayLike, y: ArrayLike) -> float:
    """Mean y of the third of rows with the largest x, minus that of the smallest.

    Rows tied at the cut enter by their mean, so that their order does not matter.

    Args:
        x: float64[n].
        y: float64[n].

    Returns:
        In the unit of y; nan with fewer than three rows.
    """
    x, y = _complete(x, y)
    if x.size < 3:
        return np.nan
    k = max(1, x.size // 3)
    return _mean_of_smallest(-x, y, k) - _mean_of_smallest(x, y, k)


def average_ranks(x: ArrayLike) -> Float64:
    """Ranks from 1, tied values sharing the mean of theirs.

    Args:
        x: float64[n].

    Returns:
        float64[n].
    """
    _, place, count = np.unique(np.asarray(x), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: Float64 = ((last - count + 1 + last) / 2)[place]
    return ranks


def _complete(*columns: ArrayLike) -> tuple[Float64, ...]:
    arrays = [np.asarray(column, np.float64) for column in columns]
    finite = np.logical_and.reduce([np.isfinite(array) for array in arrays])
    return tuple(array[finite] for array in arrays)


def _median_slope(x: Float64, y: Float64) -> float:
    first, second = np.triu_indices(x.size, 1)
    run = x[second] - x[first]
    differ = run != 0
    slopes = (y[second] - y[first])[differ] / run[differ]
    return float(np.median(slopes)) if slopes.size else np.nan


def _unit(x: Float64) -> Float64:
    """Deviations from the mean, along the last axis, scaled to length 1."""
    d = x - x.mean(axis=-1, keepdims=True)
    unit: Float64 = d / np.sqrt((d * d).sum(axis=-1, keepdims=True))
    return unit


def _pearson(x: Float64, y: Float64) -> float:
    if x.size < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.nan
    return float(np.clip(_unit(x) @ _unit(y), -1, 1))


def _reach(x: Float64, shuffled: Float64, observed: float) -> NDArray[np.bool_]:
    reached: NDArray[np.bool_] = np.abs(_unit(shuffled) @ _unit(x)) >= observed - TIE
    return reached


def _interval(n: int, r: float, spread: float, freedom: float) -> Correlation:
    if np.isnan(r) or freedom <= 0:
        return Correlation(n, r, np.nan, np.nan)
    if abs(r) == 1:
        return Correlation(n, r, r, r)
    half = Z95 * spread / np.sqrt(freedom)
    centre = np.arctanh(r)
    return Correlation(n, r, float(np.tanh(centre - half)), float(np.tanh(centre + half)))


def _mean_of_smallest(x: Float64, y: Float64, k: int) -> float:
    cut = np.partition(x, k - 1)[k - 1]
    inside = y[x < cut]
    return float((inside.sum() + (k - inside.size) * y[x == cut].mean()) / k)
