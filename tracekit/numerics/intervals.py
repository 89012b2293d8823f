"""Interval algebra: unions, intersections, overlaps and how many were active.

A *union* is a pair of int64 arrays ``(starts, ends)`` in ns, sorted, disjoint, not touching and
without empty members; `union` makes one of any rows, every other function keeps the property.
All are sorts, prefix sums and binary searches: O((n + m) log(n + m)).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import accelerated

Ns: TypeAlias = NDArray[np.int64]
Intervals: TypeAlias = tuple[Ns, Ns]


def _union_swept(s: Ns, e: Ns) -> Intervals:
    s, e = np.ascontiguousarray(s), np.ascontiguousarray(e)
    if not sweeps.ascends(s):
        order = np.argsort(s, kind="stable")
        s, e = s[order], e[order]
    return sweeps.merged(s, e)


def union(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    """Merge rows that overlap or touch; rows with ``end <= start`` are dropped.

    Args:
        starts: int64[n], ns, in any order.
        ends: int64[n], ns.

    Returns:
        The union, at most n members.
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    return _union(s, e)


@accelerated(_union_swept)
def _union(s: Ns, e: Ns) -> Intervals:
    keep = e > s
    if not keep.all():
        s, e = s[keep], e[keep]
    if (s[1:] < s[:-1]).any():
        order = np.argsort(s)
        s, e = s[order], e[order]
    return _merge_sorted(s, e, 0)


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
    return _reached_before(e, lane, n_lanes)


@accelerated(sweeps.reached_before)
def _reached_before(e: Ns, lane: NDArray[np.int32], n_lanes: int) -> Ns:
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
    columns = (np.ascontiguousarray(column, np.int64) for column in (us, ue, vs, ve))
    return _intersect(*columns)


@accelerated(sweeps.crossed)
def _intersect(us: Ns, ue: Ns, vs: Ns, ve: Ns) -> Intervals:
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
    vs, ve = np.asarray(vs, np.int64), np.asarray(ve, np.int64)
    inside = slice(
        np.searchsorted(ve, us[0], side="right"), np.searchsorted(vs, ue[-1], side="left")
    )
    vs, ve = np.maximum(vs[inside], us[0]), np.minimum(ve[inside], ue[-1])
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
    columns = (np.ascontiguousarray(column, np.int64) for column in (starts, ends, us, ue))
    return _overlap_ns(*columns)


@accelerated(sweeps.covered)
def _overlap_ns(s: Ns, e: Ns, us: Ns, ue: Ns) -> Ns:
    if us.size == 0:
        return np.zeros(s.size, np.int64)
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
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    _, active = steps(s, e, np.ones(s.size, np.int64))
    return int(active.max(initial=0))


def steps(s: Ns, e: Ns, *weights: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Summed weights of the rows that are active: step functions of time.

    Args:
        s: int64[n], ns, starts.
        e: int64[n], ns, ends; rows with ``end <= start`` are never active.
        weights: int64[n] or float64[n] each; integers are summed exactly, so a level of zero is
            zero.

    Returns:
        Distinct times in ns, ascending, and the level of each weight from each of them on.
    """
    keep = e > s
    times = np.concatenate((s[keep], e[keep]))
    order = np.argsort(times)
    times = times[order]
    settled = np.ones(times.size, np.bool_)
    settled[:-1] = times[1:] != times[:-1]
    levels = (np.cumsum(np.concatenate((w[keep], -w[keep]))[order])[settled] for w in weights)
    return times[settled], *levels
