"""Interval algebra: unions, intersections, overlaps and who shared the time with whom.

A *union* is a pair of int64 arrays ``(starts, ends)`` in ns, sorted, disjoint, not touching and
without empty members; `union` makes one of any rows, every other function keeps the property.
All are sorts, prefix sums and binary searches: O((n + m) log(n + m)).
"""

from __future__ import annotations

import itertools
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics import sweeps

Ns: TypeAlias = NDArray[np.int64]
Intervals: TypeAlias = tuple[Ns, Ns]


def union(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    """Merge rows that overlap or touch; rows with ``end <= start`` are dropped.

    Args:
        starts: int64[n], ns, in any order.
        ends: int64[n], ns.

    Returns:
        The union, at most n members.
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    if sweeps.worth(s.size):
        return _union_swept(s, e)
    keep = e > s
    if not keep.all():
        s, e = s[keep], e[keep]
    if (s[1:] < s[:-1]).any():
        order = np.argsort(s)
        s, e = s[order], e[order]
    return _merge_sorted(s, e, 0)


def _union_swept(s: Ns, e: Ns) -> Intervals:
    s, e = np.ascontiguousarray(s), np.ascontiguousarray(e)
    if not sweeps.ascends(s):
        order = np.argsort(s, kind="stable")
        s, e = s[order], e[order]
    return sweeps.merged(s, e)


def union_lanes(
    starts: ArrayLike, ends: ArrayLike, lanes: ArrayLike, n_lanes: int
) -> list[Intervals]:
    """Merge the rows of each lane.

    Args:
        starts: int64[n], ns, ascending.
        ends: int64[n], ns.
        lanes: int32[n], lane of each row, negative for none.
        n_lanes: Number of lanes.

    Returns:
        A union a lane.
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    lane = np.asarray(lanes, np.int32)
    if not sweeps.worth(s.size):
        return [union(s[lane == k], e[lane == k]) for k in range(n_lanes)]
    return _lanes_swept(s, e, lane, n_lanes)


def _lanes_swept(s: Ns, e: Ns, lane: NDArray[np.int32], n_lanes: int) -> list[Intervals]:
    s, e, lane = np.ascontiguousarray(s), np.ascontiguousarray(e), np.ascontiguousarray(lane)
    us, ue, first = sweeps.merged_lanes(s, e, lane, n_lanes)
    parts = itertools.pairwise(first.tolist())
    return [(us[begin:end], ue[begin:end]) for begin, end in parts]


def reached_before(ends: ArrayLike, lanes: ArrayLike, n_lanes: int) -> Ns:
    """Latest end of the rows of the same lane that come before each row.

    Args:
        ends: int64[n], ns.
        lanes: int32[n], lane of each row, 0 up to `n_lanes`.
        n_lanes: Number of lanes.

    Returns:
        int64[n], ns; `sweeps.BEFORE_ALL` for the first row of a lane.
    """
    e, lane = np.ascontiguousarray(ends, np.int64), np.ascontiguousarray(lanes, np.int32)
    if sweeps.worth(e.size):
        return sweeps.reached_before(e, lane, n_lanes)
    found = np.full(e.size, sweeps.BEFORE_ALL, np.int64)
    for k in range(n_lanes):
        own = np.flatnonzero(lane == k)
        found[own[1:]] = np.maximum.accumulate(e[own])[:-1]
    return found


def merge_windows(us: ArrayLike, ue: ArrayLike, gap_ns: int) -> Intervals:
    """Join the members of a union that are at most ``gap_ns`` apart.

    Args:
        us: int64[n], ns, starts of a union.
        ue: int64[n], ns, its ends.
        gap_ns: Longest gap that is closed; 0 changes nothing.

    Returns:
        The joined union.
    """
    return _merge_sorted(np.asarray(us, np.int64), np.asarray(ue, np.int64), gap_ns)


def _merge_sorted(s: Ns, e: Ns, gap_ns: int) -> Intervals:
    if s.size == 0:
        return s[:0], e[:0]
    latest = np.maximum.accumulate(e)
    opens = np.concatenate(([True], s[1:] - latest[:-1] > gap_ns))
    closes = np.concatenate((opens[1:], [True]))
    return s[opens], latest[closes]


def total_ns(us: ArrayLike, ue: ArrayLike) -> int:
    """Time covered by a union.

    Args:
        us: int64[n], ns, starts of a union.
        ue: int64[n], ns, its ends.

    Returns:
        ns; 0 for an empty union.
    """
    return int(np.sum(np.asarray(ue, np.int64) - np.asarray(us, np.int64)))


def intersect(us: ArrayLike, ue: ArrayLike, vs: ArrayLike, ve: ArrayLike) -> Intervals:
    """The time covered by both of two unions.

    Args:
        us: int64[n], ns, starts of the first union.
        ue: int64[n], ns, its ends.
        vs: int64[m], ns, starts of the second union.
        ve: int64[m], ns, its ends.

    Returns:
        A union of at most n + m - 1 members.
    """
    us, ue = np.asarray(us, np.int64), np.asarray(ue, np.int64)
    vs, ve = np.asarray(vs, np.int64), np.asarray(ve, np.int64)
    first = np.searchsorted(ve, us, side="right")
    count = np.searchsorted(vs, ue, side="left") - first
    mine = np.repeat(np.arange(us.size), count)
    within = np.arange(mine.size) - np.repeat(np.cumsum(count) - count, count)
    theirs = first[mine] + within
    return np.maximum(us[mine], vs[theirs]), np.minimum(ue[mine], ve[theirs])


def subtract(us: ArrayLike, ue: ArrayLike, vs: ArrayLike, ve: ArrayLike) -> Intervals:
    """The time covered by the first union and not by the second.

    Args:
        us: int64[n], ns, starts of the first union.
        ue: int64[n], ns, its ends.
        vs: int64[m], ns, starts of the second union.
        ve: int64[m], ns, its ends.

    Returns:
        A union of at most n + m members.
    """
    us, ue = np.asarray(us, np.int64), np.asarray(ue, np.int64)
    if us.size == 0:
        return us, ue
    vs, ve = intersect(vs, ve, us[:1], ue[-1:])
    return intersect(us, ue, np.concatenate((us[:1], ve)), np.concatenate((vs, ue[-1:])))


def overlap_ns(starts: ArrayLike, ends: ArrayLike, us: ArrayLike, ue: ArrayLike) -> Ns:
    """Time of each row that a union covers; rows may overlap one another.

    Args:
        starts: int64[n], ns.
        ends: int64[n], ns.
        us: int64[m], ns, starts of a union.
        ue: int64[m], ns, its ends.

    Returns:
        int64[n], ns; 0 for rows with ``end <= start``.
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    us, ue = np.asarray(us, np.int64), np.asarray(ue, np.int64)
    if us.size == 0:
        return np.zeros(s.size, np.int64)
    if sweeps.worth(s.size + us.size):
        return sweeps.covered(*(np.ascontiguousarray(a) for a in (s, e, us, ue)))
    covered: Ns = np.maximum(_covered_until(e, us, ue) - _covered_until(s, us, ue), 0)
    return covered


def _covered_until(t: Ns, us: Ns, ue: Ns) -> Ns:
    """Time that a non-empty union covers before each t."""
    before = np.cumsum(ue - us) - (ue - us)
    last = np.searchsorted(us, t, side="right") - 1
    inside = np.minimum(t, ue[last]) - us[last]
    return np.where(last < 0, 0, before[last] + inside)


def max_concurrency(starts: ArrayLike, ends: ArrayLike) -> int:
    """The largest number of rows active at one instant.

    Args:
        starts: int64[n], ns.
        ends: int64[n], ns; rows with ``end <= start`` are never active.

    Returns:
        A count; 0 without rows.
    """
    _, active = _activity(np.asarray(starts, np.int64), np.asarray(ends, np.int64), None)
    return int(active.max(initial=0))


def assign_excess(
    starts: ArrayLike,
    ends: ArrayLike,
    excess_ns: ArrayLike,
    corun_starts: ArrayLike,
    corun_ends: ArrayLike,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Spread the excess time of slowed rows over the rows that ran beside them.

    The excess of a row goes to each co-running row k in proportion to the integral of
    ``1 / active(t)`` over their common time, ``active`` being the number of co-running rows.

    Args:
        starts: int64[n], ns, starts of the slowed rows.
        ends: int64[n], ns, their ends.
        excess_ns: float64[n], ns, how much longer each took than expected.
        corun_starts: int64[m], ns, starts of the rows that may be answerable.
        corun_ends: int64[m], ns, their ends.

    Returns:
        ``(assigned, weight)``, both float64[m] in ns: the excess given to each co-running row, and
        the integral by which it was weighed, summed over the slowed rows. The excess of a row
        with no company is given to nobody.
    """
    return Company(corun_starts, corun_ends).assign(starts, ends, excess_ns)


class Company:
    """Rows that may be answerable for lost time, to whom excess can be assigned several times."""

    def __init__(self, starts: ArrayLike, ends: ArrayLike) -> None:
        """Sort the moments at which rows begin and end, once.

        Args:
            starts: int64[m], ns.
            ends: int64[m], ns.
        """
        self._starts = np.ascontiguousarray(starts, np.int64)
        self._ends = np.ascontiguousarray(ends, np.int64)
        self._union = union(self._starts, self._ends)
        self._times, self._active = _activity(self._starts, self._ends, None)
        self._places: tuple[Ns, Ns] | None = None

    def assign(
        self, starts: ArrayLike, ends: ArrayLike, excess_ns: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Spread the excess of slowed rows; arguments and result as of `assign_excess`."""
        s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        shared = overlap_ns(s, e, *self._union)
        excess = np.asarray(excess_ns, np.float64)
        density = np.divide(excess, shared, out=np.zeros(s.size), where=shared > 0)
        return self._spread(_activity(s, e, density)), self._spread(_activity(s, e, None))

    def _spread(self, weight: tuple[Ns, NDArray[np.float64]]) -> NDArray[np.float64]:
        if not sweeps.worth(self._times.size + weight[0].size):
            return _spread(self._starts, self._ends, self._times, self._active, weight)
        return self._spread_swept(weight)

    def _spread_swept(self, weight: tuple[Ns, NDArray[np.float64]]) -> NDArray[np.float64]:
        if self._times.size == 0:
            return np.zeros(self._starts.size)
        if self._places is None:
            begin = np.searchsorted(self._times, self._starts)
            end = np.searchsorted(self._times, np.maximum(self._starts, self._ends))
            last = self._times.size - 1
            self._places = np.minimum(begin, last), np.minimum(end, last)
        until = sweeps.shared_until(self._times, self._active, *weight)
        begin, end = self._places
        return np.where(self._ends > self._starts, until[end] - until[begin], 0.0)


def _activity(s: Ns, e: Ns, weight: NDArray[np.float64] | None) -> tuple[Ns, NDArray[np.float64]]:
    """A step function: at ``times[i]`` the summed weight of active rows becomes ``level[i]``.

    Rows are counted exactly (as integers) when there is no weight, so a level of zero is zero.
    """
    keep = e > s
    each = np.ones(s.size, np.int64) if weight is None else weight
    s, e, each = s[keep], e[keep], each[keep]
    times = np.concatenate((s, e))
    order = np.argsort(times)
    times, level = times[order], np.cumsum(np.concatenate((each, -each))[order])
    settled = np.ones(times.size, np.bool_)
    settled[:-1] = times[1:] != times[:-1]
    return times[settled], level[settled].astype(np.float64)


def _spread(
    ks: Ns,
    ke: Ns,
    company: Ns,
    active: NDArray[np.float64],
    weight: tuple[Ns, NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Integral of ``weight(t) / active(t)`` over each row ``[ks, ke)``; 0 for empty rows."""
    if company.size == 0:
        return np.zeros(ks.size)
    times = np.sort(np.concatenate((company, weight[0])))
    rate = _level_at(times, *weight)
    sharers = _level_at(times, company, active)
    rate = np.divide(rate, sharers, out=np.zeros(times.size), where=sharers > 0)
    until = np.concatenate(([0.0], np.cumsum(rate[:-1] * np.diff(times))))
    places = np.searchsorted(times, (ks, np.maximum(ks, ke)))
    begin, end = until[np.minimum(places, times.size - 1)]
    return np.where(ke > ks, end - begin, 0.0)


def _level_at(t: Ns, times: Ns, level: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate(([0.0], level))[np.searchsorted(times, t, side="right")]
