"""From samples over time to steady levels of load."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Level", "Levels", "Samples", "coarser", "levels_of"]

_SAME_LEVEL = 0.05
_STEADY = 0.02
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

    Samples within 5 % of each other are one level. One that differs by more than 2 % from the one
    before it is a transition, in which a rate over a window mixes two levels, unless most samples
    differ by that much: then the load is not made of levels.
    """
    usable = np.isfinite(samples.qps) & np.isfinite(samples.latency_s)
    usable &= (samples.qps > 0) & (samples.latency_s > 0)
    steady = _steady(samples.qps[usable])
    kept = np.flatnonzero(usable)[steady]
    q, latency = samples.qps[kept], samples.latency_s[kept]
    numbers = _numbered(q)
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
        rises=bool(np.all(np.diff(numbers) >= 0)),
    )


def _steady(q: Floats) -> npt.NDArray[np.bool_]:
    """Which samples are no transition between levels."""
    steady = np.ones(len(q), dtype=np.bool_)
    if len(q) > 1:
        steady[1:] = np.abs(np.diff(q)) <= _STEADY * q[:-1]
        steady[0] = steady[1]
        # Random arrivals scatter by more than that; and few levels of one sample each, as in a
        # table of load tests, are levels all the same.
        if steady.sum() <= len(q) / 2:
            steady[:] = True
    return steady


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _numbered(q: Floats) -> npt.NDArray[np.int64]:
    """Number of the level that each sample belongs to, by rising rate."""
    order = np.argsort(q, kind="stable")
    numbers = np.zeros(len(q), dtype=np.int64)
    number, first = -1, -np.inf
    for place in order:
        if q[place] > first * (1 + _SAME_LEVEL) or number < 0:
            number, first = number + 1, q[place]
        numbers[place] = number
    return numbers


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
