"""From samples over time to steady levels of load."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Level", "Levels", "Samples", "coarser", "levels_of"]

_SAME_LEVEL = 0.05
_SHORTEST = 3
"""Samples of a plateau at least; what is shorter lies between two."""
_CUT = 12.0
"""Squared deviations of noise that a cut must gain."""
_FLOOR = 0.005
_SMOOTH = 5
_FALL = 0.8
_TREND = 1.5
_HALVES_FROM = 4
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Samples:
    """Series on one clock; NaN where a series has no value.

    Attributes:
        time_s: float64[n], increasing.
        qps: float64[n], requests completed a second.
        latency_s: float64[n].
        util_frac: float64[n], DRAM activity 0..1; all NaN if there is none.
        kv_frac: float64[n], share of the KV cache in use; all NaN if there is none.
    """

    time_s: Floats
    qps: Floats
    latency_s: Floats
    util_frac: Floats
    kv_frac: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One steady level of load.

    Attributes:
        qps: Mean rate.
        latency_s: Mean latency.
        util_frac: Mean DRAM activity, 0..1; None if there is none.
        kv_frac: Mean share of the KV cache in use; None if there is none.
        n: Samples.
    """

    qps: float
    latency_s: float
    util_frac: float | None
    kv_frac: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What a series says about load.

    Attributes:
        levels: Steady levels by rising rate.
        n_samples: Samples given.
        n_incomplete: Samples without a rate or a latency, or at no load.
        n_transitions: Samples during which the rate changed.
        unsteady_qps: Rates of levels that were left out because latency kept rising in them: more
            came in than was completed.
        rises: Whether the load only ever rose; a backlog of a higher level then inflates no other.
    """

    levels: tuple[Level, ...]
    n_samples: int
    n_incomplete: int
    n_transitions: int
    unsteady_qps: tuple[float, ...] = field(default=())
    rises: bool


def levels_of(samples: Samples) -> Levels:
    """Return the steady levels of load in `samples`.

    The series is cut into plateaus. What lies between two, where a rate over a window mixes both,
    is left out. Plateaus within 5 % of each other are one level. Where most samples lie on no
    plateau, each counts on its own: a table of load tests, or load that rises all the time.
    """
    usable = np.isfinite(samples.qps) & np.isfinite(samples.latency_s)
    usable &= (samples.qps > 0) & (samples.latency_s > 0)
    at = np.flatnonzero(usable)
    plateau = _plateaus(samples.qps[at])
    steady = plateau >= 0
    kept = at[steady]
    q, latency = samples.qps[kept], samples.latency_s[kept]
    numbers = _numbered(q, plateau[steady])
    found, unsteady = [], []
    for number in range(int(numbers.max()) + 1 if len(numbers) else 0):
        inside = numbers == number
        if _keeps_rising(latency[inside]):
            unsteady.append(float(q[inside].mean()))
            continue
        found.append(
            Level(
                qps=float(q[inside].mean()),
                latency_s=float(latency[inside].mean()),
                util_frac=_mean(samples.util_frac[kept][inside]),
                kv_frac=_mean(samples.kv_frac[kept][inside]),
                n=int(inside.sum()),
            )
        )
    return Levels(
        levels=tuple(found),
        n_samples=len(samples.qps),
        n_incomplete=int((~usable).sum()),
        n_transitions=int((~steady).sum()),
        unsteady_qps=tuple(unsteady),
        rises=_rises(samples.qps[at]),
    )


def _plateaus(q: Floats) -> npt.NDArray[np.int64]:
    """Number of the plateau that each sample lies on, in time; -1 between plateaus.

    The series is cut where that lowers its squared distance from piecewise constant by more than
    noise would. Square roots make the scatter of counted arrivals the same at every rate.
    """
    root = np.sqrt(q)
    least = _CUT * max(_noise(q), _FLOOR * float(np.median(root))) ** 2 if len(q) else 0.0
    numbers, number, pieces = np.full(len(q), -1, dtype=np.int64), 0, [(0, len(q))]
    while pieces:
        start, end = pieces.pop()
        cut = _best_cut(root[start:end], least)
        if cut is not None:
            pieces += [(start + cut, end), (start, start + cut)]
        elif end - start >= _SHORTEST:
            numbers[start:end] = number
            number += 1
    # Without plateaus, as in a table with a row a load test, every sample is one.
    return numbers if (numbers >= 0).sum() > len(q) / 2 else np.arange(len(q), dtype=np.int64)


def _noise(q: Floats) -> float:
    """Scatter of neighbouring samples, as that of square roots.

    From second differences, which steps of a regular ladder leave at zero: of the rates where steps
    are equal, of their logarithms where ratios are. Their lower quartile, because with plateaus of
    three samples two thirds of them hold a step.
    """
    if len(q) < _SHORTEST:
        return 0.0
    each = (np.abs(np.diff(q, 2)) / q[1:-1], np.abs(np.diff(np.log(q), 2)))
    relative = min(float(np.percentile(differences, 25)) for differences in each)
    # Of a normal distribution the lower quartile of the magnitude is 0.3186 of its scatter, and a
    # second difference scatters by the root of six.
    return relative / (0.3186 * math.sqrt(6)) * float(np.median(np.sqrt(q))) / 2


def _best_cut(values: Floats, least: float) -> int | None:
    """Where to cut a piece in two; None where no cut gains more than `least`."""
    n = len(values)
    if n < 2:
        return None
    left = np.arange(1, n)
    sums = np.cumsum(values)[:-1]
    apart = sums / left - (values.sum() - sums) / (n - left)
    gain = left * (n - left) / n * apart**2
    best = int(np.argmax(gain))
    return best + 1 if gain[best] > least else None


def _rises(q: Floats) -> bool:
    """Whether the rate, smoothed over five samples, never falls far below what it was before."""
    smooth = q
    if len(q) >= 2 * _SMOOTH:
        smooth = np.median(np.lib.stride_tricks.sliding_window_view(q, _SMOOTH), axis=1)
    return bool(np.all(smooth >= _FALL * np.maximum.accumulate(smooth))) if len(q) else True


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _numbered(q: Floats, plateau: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number of the level that each sample belongs to, by rising rate.

    Plateaus of nearly one mean rate are one level, whenever they were. Samples are not sorted by
    their own rate: those that chance made high would seem to be a busier level.
    """
    names, member = np.unique(plateau, return_inverse=True)
    if not len(names):
        return np.zeros(0, dtype=np.int64)
    means = np.bincount(member, weights=q) / np.bincount(member)
    numbers = np.zeros(len(names), dtype=np.int64)
    number, first = -1, -np.inf
    for place in np.argsort(means, kind="stable"):
        if means[place] > first * (1 + _SAME_LEVEL) or number < 0:
            number, first = number + 1, means[place]
        numbers[place] = number
    return numbers[member]


def _keeps_rising(latency: Floats) -> bool:
    if len(latency) < _HALVES_FROM:
        return False
    half = len(latency) // 2
    return bool(latency[-half:].mean() > _TREND * latency[:half].mean())


def coarser(
    time_s: npt.ArrayLike,
    values: npt.ArrayLike,
    other_time_s: npt.ArrayLike,
    other: npt.ArrayLike,
) -> tuple[Floats, Floats, Floats]:
    """Bring two series to the clock of the one with the longer interval.

    Args:
        time_s: Increasing times of the first series.
        values: Its values.
        other_time_s: Increasing times of the second.
        other: Its values.

    Returns:
        Times of the coarser series, and both series on it: the finer one as its mean since the
        coarser one's previous sample; NaN where it has none there.
    """
    one_t, two_t = np.asarray(time_s, float), np.asarray(other_time_s, float)
    one, two = np.asarray(values, float), np.asarray(other, float)
    if _interval(one_t) >= _interval(two_t):
        return one_t, one, _binned(one_t, two_t, two)
    return two_t, _binned(two_t, one_t, one), two


def _interval(time_s: Floats) -> float:
    return float(np.median(np.diff(time_s))) if len(time_s) > 1 else np.inf


def _binned(ends: Floats, time_s: Floats, values: Floats) -> Floats:
    width = _interval(ends)
    starts = np.concatenate([[-np.inf], ends[:-1]])
    starts = np.maximum(starts, ends - 1.5 * width) if np.isfinite(width) else starts
    means = np.full(len(ends), np.nan)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        inside = values[(time_s > start) & (time_s <= end) & np.isfinite(values)]
        if len(inside):
            means[i] = inside.mean()
    return means
