"""What sampled counters say about windows: their mean, its error, and how much is covered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import sampling
from tracekit.numerics.intervals import Intervals

__all__ = ["Counter", "Level", "level_over", "mean_over", "means_over"]


@dataclass(frozen=True)
class Counter:
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


@dataclass(frozen=True)
class Level:
    """A time-weighted mean over a set of windows.

    Attributes:
        mean_frac: Share of peak, 0..1; None when less than half of the windows is covered.
        lo_frac: Lower end of its 95 % interval over windows; None with fewer than two windows.
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
    starts, ends = windows
    if not counters or starts.size == 0:
        return None
    means = [sampling.over_windows(c.cells, starts, ends) for c in counters]
    pooled = [m.pooled() for m in means]
    coverage = min(float(p.coverage[0]) for p in pooled)
    length = ends - starts
    subsample = bool(np.median(length) < means[0].period_ns)
    if coverage < sampling.MIN_COVERAGE:
        return Level(None, None, None, coverage, starts.size, subsample)
    mean = sum(float(p.mean[0]) for p in pooled)
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


def mean_over(counters: Sequence[Counter], windows: Intervals) -> tuple[float | None, float] | None:
    """Return the mean and the coverage of `level_over`, which is dearer.

    Args:
        counters: From `total`, `dram` or `link`.
        windows: A union.

    Returns:
        ``(mean_frac, coverage_frac)`` of the level; None without counters or windows.
    """
    starts, ends = windows
    if not counters or starts.size == 0:
        return None
    pooled = [sampling.over_windows(c.cells, starts, ends).pooled() for c in counters]
    coverage = min(float(p.coverage[0]) for p in pooled)
    known = coverage >= sampling.MIN_COVERAGE
    return sum(float(p.mean[0]) for p in pooled) if known else None, coverage


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
