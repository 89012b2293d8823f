"""Ratios of medians with bootstrap intervals, their weighted roll-up, and percentiles.

The draws come from a fixed seed: the same data give the same interval, digit for digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64: TypeAlias = NDArray[np.float64]
Int64: TypeAlias = NDArray[np.int64]

DRAWS = 2000
"""Resamples of a bootstrap."""
MIN_EACH = 5
"""Observations a side that an interval needs."""
_INTERVAL_PCT = (2.5, 97.5)


class Estimate(NamedTuple):
    """A ratio and its 95% bootstrap interval.

    Attributes:
        value: The ratio, or nan.
        lo: Lower end, or nan.
        hi: Upper end, or nan.
    """

    value: float
    lo: float
    hi: float


@dataclass(frozen=True)
class MedianRatios:
    """Slowdown of g groups, each against its baseline.

    Attributes:
        ratio: float64[g], median of the group over median of its baseline; nan if one is empty.
        n: int64[g], observations of the group.
        known: bool[g], whether both sides have the 5 observations that an interval needs.
        draws: float64[2000, g], the ratio in every draw; groups with one baseline share its draws.
    """

    ratio: Float64
    n: Int64
    known: NDArray[np.bool_]
    draws: Float64

    def estimate(self, group: int) -> Estimate:
        """Ratio of one group.

        Args:
            group: Its index.

        Returns:
            The ratio; its interval only where `known`.
        """
        ends = _ends(self.draws[:, group]) if self.known[group] else (np.nan, np.nan)
        return Estimate(float(self.ratio[group]), *ends)

    def rollup(self, groups: ArrayLike | None = None) -> Estimate:
        """Geometric mean over groups, weighted by their observations, as one ratio.

        The mean is taken again inside every draw, so the interval knows that groups share a
        baseline.

        Args:
            groups: int64[k], indices; None takes all. Groups that are not `known` are left out.

        Returns:
            The mean and its interval; nan without a known group.
        """
        chosen = np.arange(self.n.size) if groups is None else np.asarray(groups, np.int64)
        chosen = chosen[self.known[chosen]]
        if chosen.size == 0:
            return Estimate(np.nan, np.nan, np.nan)
        weight = self.n[chosen] / self.n[chosen].sum()
        value = np.exp(np.log(self.ratio[chosen]) @ weight)
        return Estimate(float(value), *_ends(np.exp(np.log(self.draws[:, chosen]) @ weight)))


def median_draws(values: Float64, rng: np.random.Generator) -> Float64:
    """Return the medians of 2000 resamples, without drawing the resamples.

    A resample's k-th smallest value is the value at the place of the k-th smallest of n uniform
    numbers, and that is distributed as Beta(k, n - k + 1); the next one above it is the smallest of
    the n - k that are left.

    Args:
        values: float64[n].
        rng: Source of the draws.

    Returns:
        float64[2000]; nan without values or where one is nan.

    Source: order statistics of uniform samples, David and Nagaraja (2003), section 2.1.
    """
    n = values.size
    if n == 0 or np.isnan(values).any():
        return np.full(DRAWS, np.nan)
    ordered = np.sort(values)
    k = (n + 1) // 2
    low = rng.beta(k, n - k + 1, DRAWS)
    lower: Float64 = ordered[_places(low, n)]
    if n % 2:
        return lower
    high = low + (1 - low) * rng.beta(1, n - k, DRAWS)
    return (lower + ordered[_places(high, n)]) / 2


def _places(uniform: Float64, n: int) -> Int64:
    # A number next to 1 times n may round to n.
    return np.minimum((uniform * n).astype(np.int64), n - 1)


def median_ratios(
    baselines: Sequence[ArrayLike], groups: Sequence[ArrayLike], baseline_of: ArrayLike
) -> MedianRatios:
    """Bootstrap the ratio of medians of groups to their baselines.

    Baselines are drawn first, in the order given, then groups.

    Args:
        baselines: b arrays of float64, positive durations in any unit.
        groups: g arrays of float64, in the same unit.
        baseline_of: int64[g], index of each group's baseline.

    Returns:
        Ratios and draws. Fewer than 5 observations on a side still give the ratio.

    Source: percentile bootstrap, after Efron and Tibshirani (1993).
    """
    rng = np.random.default_rng(0)
    below = [np.asarray(values, np.float64) for values in baselines]
    above = [np.asarray(values, np.float64) for values in groups]
    of = np.asarray(baseline_of, np.int64)
    below_draws = [median_draws(values, rng) for values in below]
    draws = [median_draws(a, rng) / below_draws[b] for a, b in zip(above, of, strict=True)]
    pairs = [(a, below[b]) for a, b in zip(above, of, strict=True)]
    return MedianRatios(
        ratio=np.array([_median(a) / _median(b) for a, b in pairs], np.float64),
        n=np.array([a.size for a in above], np.int64),
        known=np.array([min(a.size, b.size) >= MIN_EACH for a, b in pairs], np.bool_),
        draws=np.stack(draws, axis=1) if draws else np.zeros((DRAWS, 0)),
    )


def median_ratio(baseline: ArrayLike, group: ArrayLike) -> Estimate:
    """Ratio of two medians with its interval: `median_ratios` of one group.

    Args:
        baseline: float64[n], positive durations.
        group: float64[m], durations in the same unit.

    Returns:
        The ratio; its interval if both have 5 observations.
    """
    below, above = np.asarray(baseline, np.float64), np.asarray(group, np.float64)
    if min(below.size, above.size) < MIN_EACH:
        return Estimate(_median(above) / _median(below), np.nan, np.nan)
    return median_ratios([below], [above], [0]).estimate(0)


def lost(baseline: ArrayLike, group: ArrayLike) -> float:
    """Time by which observations exceed the baseline's median, summed; faster ones count 0.

    Args:
        baseline: float64[n], durations.
        group: float64[m], durations in the same unit.

    Returns:
        In that unit; nan without a baseline.
    """
    excess = np.asarray(group, np.float64) - _median(np.asarray(baseline, np.float64))
    return float(np.maximum(excess, 0).sum())


class Percentile(NamedTuple):
    """A percentile and whether the data support it.

    Attributes:
        value: In the unit of the data; nan without data.
        insufficient_n: True below 20 values for P95, 100 for P99.
    """

    value: float
    insufficient_n: bool


def percentile(values: ArrayLike, pct: float) -> Percentile:
    """Percentile by linear interpolation.

    Args:
        values: float64[n], all finite.
        pct: 0..100. Above 50 it needs as many values as leave one beyond it, 100 / (100 - pct).

    Returns:
        The value, also where it is flagged.

    Source: Hyndman and Fan (1996), type 7.
    """
    data = np.asarray(values, np.float64)
    if data.size == 0:
        return Percentile(np.nan, True)
    enough = pct <= 50 or data.size * (100 - pct) >= 100
    return Percentile(float(np.percentile(data, pct)), not enough)


def _median(values: Float64) -> float:
    return float(np.median(values)) if values.size else np.nan


def _ends(draws: Float64) -> tuple[float, float]:
    lo, hi = np.percentile(draws, _INTERVAL_PCT)
    return float(lo), float(hi)
