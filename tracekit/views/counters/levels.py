"""What sampled counters say about windows: their mean, its error, and how much is covered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.intervals import Intervals
from tracekit.numerics.samples import sampling

__all__ = [
    "Counter",
    "Level",
    "level_over",
    "levels_over",
    "mean_over",
    "mean_over_each",
    "means_over",
]


class Counter(NamedTuple):
    """One sampled percentage of one GPU as a share.

    Attributes:
        name: Exact name.
        cells: Valid cells; values are shares, 0..1.
        n_samples: Samples recorded.
        n_negative: Samples below zero, dropped.
        n_over: Samples above full scale, taken as full scale.
    """

    name: str
    cells: sampling.Cells
    n_samples: int
    n_negative: int
    n_over: int


class Level(NamedTuple):
    """A time-weighted mean over a set of windows.

    Attributes:
        mean_frac: Share of peak, 0..1; None when less than half of the windows is covered.
        lo_frac: Lower end of its 95% interval over windows; None with fewer than two windows.
        hi_frac: Upper end.
        coverage_frac: Covered share of the windows, 0..1.
        n_windows: Windows.
        subsample: Whether the median window is shorter than the sampling period.
    """

    mean_frac: float | None
    lo_frac: float | None
    hi_frac: float | None
    coverage_frac: float
    n_windows: int
    subsample: bool


def level_over(counters: Sequence[Counter], windows: Intervals) -> Level | None:
    """Return the summed time-weighted mean of some counters over a union of windows.

    Args:
        counters: From `total`, `dram` or `link`.
        windows: A union.

    Returns:
        The level; None without counters or windows. The interval is that of a ratio of sums over
        windows (linearised), so it says how much windows differ, not how well one was sampled.
    """
    return levels_over(counters, [windows])[0]


def levels_over(counters: Sequence[Counter], unions: Sequence[Intervals]) -> list[Level | None]:
    """Return `level_over` of many unions, for which the samples are gone through once.

    Args:
        counters: From `total`, `dram` or `link`.
        unions: Unions of windows.
    """
    each = zip(_over_each(counters, unions), unions, strict=True)
    return [_level(means, *windows) if means else None for means, windows in each]


def mean_over(counters: Sequence[Counter], windows: Intervals) -> tuple[float | None, float] | None:
    """Return the mean and the coverage of `level_over`, which is dearer.

    Args:
        counters: From `total`, `dram` or `link`.
        windows: A union.

    Returns:
        ``(mean_frac, coverage_frac)`` of the level; None without counters or windows.
    """
    return mean_over_each(counters, [windows])[0]


def mean_over_each(
    counters: Sequence[Counter], unions: Sequence[Intervals]
) -> list[tuple[float | None, float] | None]:
    """Return `mean_over` of many unions, for which the samples are gone through once.

    Args:
        counters: From `total`, `dram` or `link`.
        unions: Unions of windows.
    """
    each = (([m.pooled() for m in means]) for means in _over_each(counters, unions))
    return [(_mean(pooled), _coverage(pooled)) if pooled else None for pooled in each]


def _over_each(
    counters: Sequence[Counter], unions: Sequence[Intervals]
) -> list[list[sampling.Means]]:
    """Means of each counter in the windows of each union; none for a union without windows."""
    if not unions:
        return []
    starts, ends = unions[0]
    if len(unions) > 1:
        starts, ends = (np.concatenate(edges) for edges in zip(*unions, strict=True))
    found = [sampling.over_windows(c.cells, starts, ends) for c in counters]
    until = np.cumsum([union[0].size for union in unions])
    own = [slice(end - union[0].size, end) for union, end in zip(unions, until, strict=True)]
    return [[_part(m, part) for m in found] if part.stop > part.start else [] for part in own]


def _part(means: sampling.Means, own: slice) -> sampling.Means:
    return sampling.Means(
        means.integral[own], means.covered_ns[own], means.length_ns[own], means.period_ns
    )


def _level(
    means: Sequence[sampling.Means], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> Level:
    pooled = [m.pooled() for m in means]
    mean, coverage = _mean(pooled), _coverage(pooled)
    subsample = bool(np.median(ends - starts) < means[0].period_ns)
    if mean is None:
        return Level(None, None, None, coverage, starts.size, subsample)
    spread = sum((_deviations(m) for m in means), np.zeros(starts.size))
    half = 1.96 * float(np.sqrt(np.sum(spread**2))) if starts.size > 1 else None
    return Level(
        mean,
        None if half is None else max(0.0, mean - half),
        None if half is None else mean + half,
        coverage,
        starts.size,
        subsample,
    )


def _coverage(pooled: Sequence[sampling.Means]) -> float:
    return min(float(p.coverage[0]) for p in pooled)


def _mean(pooled: Sequence[sampling.Means]) -> float | None:
    """The sum of some means; None when less than half of the windows is covered."""
    known = _coverage(pooled) >= sampling.MIN_COVERAGE
    return sum(float(p.mean[0]) for p in pooled) if known else None


def means_over(
    counters: Sequence[Counter], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the summed mean of some counters in each of many windows.

    Args:
        counters: From `total`, `dram` or `link`.
        starts: int64[m], ns.
        ends: int64[m], ns.

    Returns:
        ``(mean, coverage)``, float64[m] each, 0..1; mean is nan where less than half a window is
        covered or there are no counters.
    """
    mean, coverage = np.full(starts.size, np.nan), np.zeros(starts.size)
    for index, one in enumerate(counters):
        found = sampling.over_windows(one.cells, starts, ends)
        mean = found.mean if index == 0 else mean + found.mean
        coverage = found.coverage if index == 0 else np.minimum(coverage, found.coverage)
    return mean, np.nan_to_num(coverage)


def _deviations(means: sampling.Means) -> NDArray[np.float64]:
    """Each window's share in the error of the pooled mean (linearised ratio estimator)."""
    covered = float(means.covered_ns.sum())
    overall = float(means.integral.sum()) / covered
    deviation: NDArray[np.float64] = (means.integral - overall * means.covered_ns) / covered
    return deviation
