"""Counters sampled over time: which interval a sample covers, and means over windows.

A sample of GPU metrics covers the time up to the next sample (*leading* edge; measured on H200
traces at 20 and 100 kHz). A mean of the samples whose timestamps fall into a window is therefore
wrong at both ends of it; everything here weighs each sample by the time that its cell shares with
the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.intervals import Intervals, merge_windows, overlap_ns
from tracekit.numerics.jit import accelerated, compiled

__all__ = ["integrals"]

Int64: TypeAlias = NDArray[np.int64]
Float64: TypeAlias = NDArray[np.float64]
Edge: TypeAlias = Literal["leading", "trailing"]

LOST_AFTER_PERIODS = 3
MIN_COVERAGE = 0.5
MIN_EDGE_SAMPLES = 50
# Sums below this are exact in int64 and in no danger of overflow.
_EXACT_BELOW = 2.0**62


class Cells(NamedTuple):
    """The intervals that the samples of one metric cover, ascending and disjoint.

    Attributes:
        start: int64[n], ns.
        end: int64[n], ns.
        value: float64[n] or int64[n], in the metric's unit.
        period_ns: Median distance of the samples (0 with fewer than two).
    """

    start: Int64
    end: Int64
    value: Float64 | Int64
    period_ns: int

    def keep(self, valid: ArrayLike) -> Cells:
        """Without the cells that are not valid: their time becomes uncovered.

        Args:
            valid: bool[n].

        Returns:
            The valid cells, unchanged in extent.
        """
        mask = np.asarray(valid, np.bool_)
        return Cells(self.start[mask], self.end[mask], self.value[mask], self.period_ns)

    def with_value(self, value: ArrayLike) -> Cells:
        """The same cells for another quantity, for example ``cells.value >= 80``.

        Args:
            value: number or bool [n].

        Returns:
            Cells of that quantity.
        """
        new = np.asarray(value)
        if new.dtype.kind in "iub":
            return self._replace(value=new.astype(np.int64, copy=False))
        return self._replace(value=new.astype(np.float64, copy=False))


@dataclass(frozen=True)
class Means:
    """Time-weighted means of one metric over m windows.

    Attributes:
        integral: float64[m], sum of value times covered ns.
        covered_ns: int64[m], time of the window for which there is a sample.
        length_ns: int64[m], length of the window.
        period_ns: Sampling period.
    """

    integral: Float64
    covered_ns: Int64
    length_ns: Int64
    period_ns: int

    @property
    def coverage(self) -> Float64:
        """float64[m], covered share of the window, 0..1; nan for an empty window."""
        return _ratio(self.covered_ns, self.length_ns)

    @property
    def mean(self) -> Float64:
        """float64[m], in the metric's unit; nan where less than half the window is covered."""
        known = self.coverage >= MIN_COVERAGE
        return np.where(known, _ratio(self.integral, self.covered_ns), np.nan)

    @property
    def subsample(self) -> NDArray[np.bool_]:
        """bool[m], true where the window is shorter than the sampling period."""
        short: NDArray[np.bool_] = self.length_ns < self.period_ns
        return short

    def pooled(self) -> Means:
        """All windows as one (m = 1); right for a union, whose members do not overlap."""
        return Means(
            np.array([self.integral.sum()]),
            np.array([self.covered_ns.sum()]),
            np.array([self.length_ns.sum()]),
            self.period_ns,
        )


def cells(timestamps: ArrayLike, values: ArrayLike, edge: Edge = "leading") -> Cells:
    """Give every sample of a metric the interval that it covers.

    Pass **all** samples and drop invalid ones afterwards with `Cells.keep`: a dropped sample must
    leave a hole, not lengthen its neighbour. A distance of more than three periods means lost
    samples; the cell next to it is one period long, and so is the one at the open end.

    Args:
        timestamps: int64[n], ns, in any order.
        values: int64[n] or float64[n].
        edge: Whether a sample covers the time after it (leading) or before it (trailing).

    Returns:
        n cells, ascending.
    """
    times, value = np.asarray(timestamps, np.int64), np.asarray(values)
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        times, value = times[order], value[order]
    return extents(times, edge).with_value(value)


def extents(times: Int64, edge: Edge = "leading") -> Cells:
    """Return `cells` of samples without values: counters sampled at one time share them.

    Args:
        times: int64[n], ns, ascending.
        edge: As for `cells`.

    Returns:
        n cells of value 0.
    """
    steps = np.diff(times)
    period = int(np.median(steps)) if steps.size else 0
    if steps.size and steps.max() > LOST_AFTER_PERIODS * period:
        steps = np.where(steps > LOST_AFTER_PERIODS * period, period, steps)
    start, end = times, times
    if edge == "leading":
        end = times + np.append(steps, period)[: times.size]
    else:
        start = times - np.insert(steps, 0, period)[: times.size]
    return Cells(start, end, np.broadcast_to(np.int64(0), times.shape), period)


def over_windows(samples: Cells, starts: ArrayLike, ends: ArrayLike) -> Means:
    """Time-weighted mean in each of many windows; windows may overlap.

    Prefix sums and binary searches: O((n + m) log n). Integer values are summed exactly.

    Args:
        samples: The cells of one metric.
        starts: int64[m], ns.
        ends: int64[m], ns.

    Returns:
        Means of size m. ``over_windows(c, *union).pooled()`` is the mean over a window set.
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    integral, known = _integrals(samples, s, e)
    return Means(
        integral.astype(np.float64, copy=False),
        known.astype(np.int64, copy=False),
        np.maximum(e - s, 0),
        samples.period_ns,
    )


def inside_windows(samples: Cells, starts: ArrayLike, ends: ArrayLike) -> tuple[Means, Int64]:
    """Means over the cells that lie fully inside each window.

    For a metric that must not mix with what ran before or after, such as a kernel's hit rate.

    Args:
        samples: The cells of one metric.
        starts: int64[m], ns.
        ends: int64[m], ns.

    Returns:
        ``(means, count)``: means over the stretch from the first to the last such cell, and
        int64[m], the number of cells. Where it is 0 the mean is nan and `over_windows` may serve.
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    first = np.searchsorted(samples.start, s, side="left")
    stop = np.maximum(np.searchsorted(samples.end, e, side="right"), first)
    count: Int64 = (stop - first).astype(np.int64)
    if samples.start.size == 0:
        return over_windows(samples, s, s), count
    last = samples.start.size - 1
    begin = np.where(count > 0, samples.start[np.minimum(first, last)], s)
    finish = np.where(count > 0, samples.end[np.clip(stop - 1, 0, last)], s)
    return over_windows(samples, begin, finish), count


class CellsOf(NamedTuple):
    """Which cells count for each of m windows.

    Attributes:
        first_inside: int64[m], first cell that lies fully inside.
        inside: int64[m], how many do.
        first_over: int64[m], first cell that shares time with the window.
        over: int64[m], how many do.
    """

    first_inside: Int64
    inside: Int64
    first_over: Int64
    over: Int64


def cells_of(samples: Cells, starts: ArrayLike, ends: ArrayLike) -> CellsOf:
    """Number the cells inside and over each window.

    Args:
        samples: The cells of one metric.
        starts: int64[m], ns.
        ends: int64[m], ns.

    Returns:
        Places among `samples` and counts.
    """
    s, e = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
    start, end = (np.ascontiguousarray(c, np.int64) for c in samples[:2])
    return _cells_of(start, end, s, e)


def _cells_of_swept(start: Int64, end: Int64, s: Int64, e: Int64) -> CellsOf:
    return CellsOf(*sweeps.cells_of(start, end, s, e))


@accelerated(_cells_of_swept)
def _cells_of(start: Int64, end: Int64, s: Int64, e: Int64) -> CellsOf:
    first = np.searchsorted(start, s, side="left")
    inside = np.maximum(np.searchsorted(end, e, side="right") - first, 0)
    over_first = np.searchsorted(end, s, side="right")
    over = np.maximum(np.searchsorted(start, e, side="left") - over_first, 0)
    return CellsOf(first, inside, over_first, over)


def runs(samples: Cells, wanted: ArrayLike, min_periods: int = 2) -> Intervals:
    """Stretches of consecutive cells that satisfy a condition.

    Args:
        samples: The cells.
        wanted: bool[n].
        min_periods: Shorter stretches are dropped; in sampling periods.

    Returns:
        A union (see `tracekit.numerics.intervals`).
    """
    chosen = samples.keep(wanted)
    filled = chosen.end > chosen.start
    starts, ends = merge_windows(chosen.start[filled], chosen.end[filled], 0)
    long_enough = ends - starts >= min_periods * samples.period_ns
    return starts[long_enough], ends[long_enough]


class EdgeFit(NamedTuple):
    """How well a metric follows device activity under either reading of its timestamps.

    Attributes:
        leading_r: Pearson correlation with the busy share of leading cells, or nan.
        trailing_r: The same for trailing cells.
    """

    leading_r: float
    trailing_r: float

    @property
    def trailing_is_better(self) -> bool:
        """Whether trailing fits better; False when unknown."""
        return self.trailing_r > self.leading_r


def edge_fit(timestamps: ArrayLike, values: ArrayLike, us: ArrayLike, ue: ArrayLike) -> EdgeFit:
    """Correlate a metric with device activity under both edges.

    Args:
        timestamps: int64[n], ns.
        values: float64[n], a metric that should follow activity, such as GR Active.
        us: int64[m], ns, starts of the union of device activity.
        ue: int64[m], ns, its ends.

    Returns:
        Both correlations; nan with fewer than 50 samples or without variation.
    """
    found = []
    for edge in ("leading", "trailing"):
        samples = cells(timestamps, values, edge)
        samples = samples.keep(samples.end > samples.start)
        busy = overlap_ns(samples.start, samples.end, us, ue) / (samples.end - samples.start)
        varies = samples.value.size >= MIN_EDGE_SAMPLES and np.ptp(samples.value) and np.ptp(busy)
        found.append(float(np.corrcoef(samples.value, busy)[0, 1]) if varies else np.nan)
    return EdgeFit(*found)


def _integrals_swept(samples: Cells, s: Int64, e: Int64) -> tuple[Float64 | Int64, Float64 | Int64]:
    value = samples.value
    if value.size and value.dtype.kind != "f":
        length = float((samples.end - samples.start).sum())
        if float(np.abs(value).max()) * length >= _EXACT_BELOW:
            value = value.astype(np.float64)
    start, end = (np.ascontiguousarray(c) for c in samples[:2])
    s, e = np.ascontiguousarray(s), np.ascontiguousarray(e)
    return integrals(start, end, np.ascontiguousarray(value), s, e)


@accelerated(_integrals_swept)
def _integrals(samples: Cells, s: Int64, e: Int64) -> tuple[Float64 | Int64, Float64 | Int64]:
    integral = _integral_between(samples, samples.value, s, e)
    return integral, _integral_between(samples, np.ones(samples.start.size, np.int64), s, e)


def _integral_between(
    samples: Cells, value: Float64 | Int64, s: Int64, e: Int64
) -> Float64 | Int64:
    """Integral of a value over the covered part of each ``[s, e)``; 0 for empty windows."""
    if samples.start.size == 0:
        return np.zeros(s.size, np.int64)
    length = samples.end - samples.start
    if float(np.abs(value).max()) * float(length.sum()) >= _EXACT_BELOW:
        value = value.astype(np.float64)
    whole = value * length
    before = np.cumsum(whole) - whole

    def until(t: Int64) -> Float64 | Int64:
        last = np.searchsorted(samples.start, t, side="right") - 1
        part = np.minimum(t, samples.end[last]) - samples.start[last]
        return np.where(last < 0, 0, before[last] + value[last] * part)

    return np.where(e > s, until(e) - until(s), 0)


def _ratio(above: Float64 | Int64, below: Int64) -> Float64:
    ratio = np.full(below.size, np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio


_RO = "ro(int64[::1])"
_last_until = sweeps._last_until


@compiled()
def _integrals_in_order(
    start: Int64, end: Int64, value: NDArray[Any], s: Int64, e: Int64
) -> tuple[NDArray[Any], Int64]:
    """`integrals` of windows that follow each other: sums go along, nothing is kept by cell."""
    integral, known = np.zeros(s.size, value.dtype), np.zeros(s.size, np.int64)
    nothing = value.dtype.type(0)
    total, time, place = nothing, 0, -1
    whole, length = nothing, 0
    for i in range(s.size):
        if e[i] > s[i]:
            until, had = nothing, 0
            while place + 1 < start.size and start[place + 1] <= s[i]:
                place += 1
                part = value[place] * (end[place] - start[place])
                total += part
                time += end[place] - start[place]
                whole, length = total - part, time - (end[place] - start[place])
            if place >= 0:
                part_ns = min(s[i], end[place]) - start[place]
                until = whole + value[place] * part_ns
                had = length + part_ns
            while place + 1 < start.size and start[place + 1] <= e[i]:
                place += 1
                part = value[place] * (end[place] - start[place])
                total += part
                time += end[place] - start[place]
                whole, length = total - part, time - (end[place] - start[place])
            if place >= 0:
                part_ns = min(e[i], end[place]) - start[place]
                integral[i] = whole + value[place] * part_ns - until
                known[i] = length + part_ns - had
    return integral, known


@compiled(
    f"Tuple((int64[::1], int64[::1]))({_RO}, {_RO}, {_RO}, {_RO}, {_RO})",
    f"Tuple((float64[::1], int64[::1]))({_RO}, {_RO}, ro(float64[::1]), {_RO}, {_RO})",
)
def integrals(
    start: Int64, end: Int64, value: NDArray[Any], s: Int64, e: Int64
) -> tuple[NDArray[Any], Int64]:
    """Integral of a step function over each window, and how much of the window has a value.

    Args:
        start: int64[n], ns, starts of disjoint cells, ascending.
        end: int64[n], ns, their ends.
        value: int64[n] or float64[n], value in each cell.
        s: int64[m], ns, starts of windows.
        e: int64[m], ns, their ends.

    Returns:
        ``(integral, covered)``, both [m], in value times ns and in ns; 0 for empty windows.
    """
    in_order = True
    for i in range(s.size):
        in_order &= e[i] >= s[i] and (i == 0 or s[i] >= e[i - 1])
    if in_order:
        return _integrals_in_order(start, end, value, s, e)
    whole, length = np.empty_like(value), np.empty(start.size, np.int64)
    nothing = value.dtype.type(0)
    total, time = nothing, 0
    for i in range(start.size):
        part = value[i] * (end[i] - start[i])
        total += part
        time += end[i] - start[i]
        # What stood before a cell is the sum up to it less its own part: sums of floats come out
        # as NumPy's do.
        whole[i], length[i] = total - part, time - (end[i] - start[i])
    integral, known = np.zeros(s.size, value.dtype), np.zeros(s.size, np.int64)
    place = 0
    for i in range(s.size):
        if e[i] > s[i] and start.size:
            place = _last_until(start, s[i], max(place, 0))
            until, had = nothing, 0
            if place >= 0:
                part_ns = min(s[i], end[place]) - start[place]
                until = whole[place] + value[place] * part_ns
                had = length[place] + part_ns
            last = _last_until(start, e[i], max(place, 0))
            if last >= 0:
                part_ns = min(e[i], end[last]) - start[last]
                integral[i] = whole[last] + value[last] * part_ns - until
                known[i] = length[last] + part_ns - had
    return integral, known
