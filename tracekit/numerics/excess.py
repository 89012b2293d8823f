"""Attributes lost time to the rows that overlap a slowed one, by their share."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics.intervals import overlap_ns, steps, union
from tracekit.numerics.jit import accelerated, compiled

__all__ = ["assign_excess"]

Float64: TypeAlias = NDArray[np.float64]
Int64: TypeAlias = NDArray[np.int64]

_RO = "ro(int64[::1])"


def assign_excess(
    starts: ArrayLike,
    ends: ArrayLike,
    excess_ns: ArrayLike,
    corun_starts: ArrayLike,
    corun_ends: ArrayLike,
) -> tuple[Float64, Float64]:
    """Spread the excess time of slowed rows over the rows that overlap them.

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
        that nothing overlaps is attributed to nothing.
    """
    s, e = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    ks, ke = np.asarray(corun_starts, np.int64), np.asarray(corun_ends, np.int64)
    # Others change nothing: where no slowed row is, there is nothing to spread.
    overlapping = np.flatnonzero(overlap_ns(ks, ke, *union(s, e)) > 0)
    given, weight = np.zeros((2, ks.size))
    given[overlapping], weight[overlapping] = _assigned(
        s, e, np.asarray(excess_ns, np.float64), ks[overlapping], ke[overlapping]
    )
    return given, weight


def _assigned(s: Int64, e: Int64, excess: Float64, ks: Int64, ke: Int64) -> tuple[Float64, Float64]:
    shared = overlap_ns(s, e, *union(ks, ke))
    density = np.divide(excess, shared, out=np.zeros(s.size), where=shared > 0)
    at, lost, slowed = steps(s, e, density, np.ones(s.size, np.int64))
    level = np.stack((lost, slowed.astype(np.float64)))
    given, weight = _spread(ks, ke, at, level)
    return given, weight


@compiled(f"float64[:, ::1]({_RO}, {_RO}, {_RO}, {_RO}, ro(float64[:, ::1]))")
def _divided(s: Int64, e: Int64, by_end: Int64, at: Int64, level: Float64) -> Float64:
    """Integrals of two step functions over the number of active rows, while each row was active.

    Args:
        s: int64[n], ns, ascending.
        e: int64[n], ns, later than the starts.
        by_end: int64[n], rows by ascending end.
        at: int64[m], ns, ascending and distinct.
        level: float64[2, m], level of the functions from each of these times on; 0 before.

    Returns:
        float64[2, n], ns.
    """
    n, m = s.size, at.size
    found = np.empty((2, n))
    first, second, rate_1, rate_2 = 0.0, 0.0, 0.0, 0.0
    begun, ended, j, now = 0, 0, 0, np.int64(0)
    while ended < n:
        t = e[by_end[ended]]
        if begun < n:
            t = min(t, s[begun])
        while j < m and at[j] <= t:
            first += rate_1 * (at[j] - now)
            second += rate_2 * (at[j] - now)
            now, active = at[j], begun - ended
            rate_1 = level[0, j] / active if active > 0 else 0.0
            rate_2 = level[1, j] / active if active > 0 else 0.0
            j += 1
        first += rate_1 * (t - now)
        second += rate_2 * (t - now)
        now = t
        while begun < n and s[begun] == t:
            found[0, begun], found[1, begun] = first, second
            begun += 1
        while ended < n and e[by_end[ended]] == t:
            row = by_end[ended]
            found[0, row], found[1, row] = first - found[0, row], second - found[1, row]
            ended += 1
        active = begun - ended
        rate_1 = level[0, j - 1] / active if j > 0 and active > 0 else 0.0
        rate_2 = level[1, j - 1] / active if j > 0 and active > 0 else 0.0
    return found


def _swept(ks: Int64, ke: Int64, at: Int64, level: Float64) -> Float64:
    order = np.argsort(ks, kind="stable")
    s, e = ks[order], ke[order]
    found = np.empty((2, ks.size))
    found[:, order] = _divided(s, e, np.argsort(e, kind="stable"), at, level)
    return found


@accelerated(_swept)
def _spread(ks: Int64, ke: Int64, at: Int64, level: Float64) -> Float64:
    """Integral of ``level(t) / active(t)`` over each row; the form for few rows."""
    if ks.size == 0:
        return np.zeros((2, 0))
    bounds, active = steps(ks, ke, np.ones(ks.size, np.int64))
    times = np.sort(np.concatenate((bounds, at)))
    sharers = _level_at(times, bounds, active.astype(np.float64))
    begin, end = np.searchsorted(times, (ks, ke))
    found = np.empty((2, ks.size))
    for one, own in zip(found, level, strict=True):
        rate = _level_at(times, at, own)
        rate = np.divide(rate, sharers, out=np.zeros(times.size), where=sharers > 0)
        until = np.concatenate(([0.0], np.cumsum(rate[:-1] * np.diff(times))))
        one[:] = until[end] - until[begin]
    return found


def _level_at(t: Int64, times: Int64, level: Float64) -> Float64:
    return np.concatenate(([0.0], level))[np.searchsorted(times, t, side="right")]
