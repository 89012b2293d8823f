"""Machine-code sweeps behind `intervals` and `sampling`: one pass where NumPy needs ten.

Every sweep keeps the place of its last answer and gallops on from there, so points in time order
cost a few steps each and points in any order a binary search. The callers say what the arrays
mean; here starts of rows ascend, and unions are sorted and disjoint.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.jit import compiled

__all__ = [
    "BEFORE_ALL",
    "ascends",
    "cells_of",
    "covered",
    "crossed",
    "merged",
    "reached_before",
]

Int64: TypeAlias = NDArray[np.int64]

BEFORE_ALL = -(1 << 63)
"""When a lane had finished the rows before its first."""
_RO = "ro(int64[::1])"


@compiled()
def _last_until(times: Int64, t: int, hint: int) -> int:
    """Index of the last of ascending `times` that is <= t, -1 without; near `hint` it is quick."""
    low, high = -1, times.size
    if high == 0:
        return low
    if hint >= 0 and times[hint] > t:
        high, step = hint, 1
        while high - step >= 0 and times[high - step] > t:
            high -= step
            step *= 2
        low = max(high - step, -1)
    elif hint >= 0:
        low, step = hint, 1
        while low + step < times.size and times[low + step] <= t:
            low += step
            step *= 2
        high = min(low + step, times.size)
    while high - low > 1:
        middle = (low + high) // 2
        if times[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@compiled(f"boolean({_RO})")
def ascends(times: Int64) -> bool:
    """Whether no value is smaller than the one before.

    Args:
        times: int64[n], ns.
    """
    for i in range(1, times.size):  # noqa: SIM110 - `all` of a generator does not compile
        if times[i] < times[i - 1]:
            return False
    return True


@compiled(f"Tuple((int64[::1], int64[::1]))({_RO}, {_RO})")
def merged(s: Int64, e: Int64) -> tuple[Int64, Int64]:
    """Union of rows whose starts ascend; empty rows are left out.

    Args:
        s: int64[n], ns, ascending.
        e: int64[n], ns.

    Returns:
        Starts and ends of the union, ns.
    """
    starts, ends = np.empty(s.size, np.int64), np.empty(s.size, np.int64)
    n = 0
    for i in range(s.size):
        if e[i] > s[i]:
            if n and s[i] <= ends[n - 1]:
                ends[n - 1] = max(ends[n - 1], e[i])
            else:
                starts[n], ends[n] = s[i], e[i]
                n += 1
    return starts[:n].copy(), ends[:n].copy()


@compiled(f"Tuple((int64[::1], int64[::1]))({_RO}, {_RO}, {_RO}, {_RO})")
def crossed(us: Int64, ue: Int64, vs: Int64, ve: Int64) -> tuple[Int64, Int64]:
    """Time covered by both of two unions, in two passes: count, then fill.

    Args:
        us: int64[n], ns, starts of the first union.
        ue: int64[n], ns, its ends.
        vs: int64[m], ns, starts of the second union.
        ve: int64[m], ns, its ends.

    Returns:
        Starts and ends of the shared stretches, ns.
    """
    n, first = 0, 0
    for i in range(us.size):
        while first < vs.size and ve[first] <= us[i]:
            first += 1
        k = first
        while k < vs.size and vs[k] < ue[i]:
            n += 1
            k += 1
        # All but the last of these end inside the member, and before the next begins.
        first = max(first, k - 1)
    starts, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    n, first = 0, 0
    for i in range(us.size):
        while first < vs.size and ve[first] <= us[i]:
            first += 1
        k = first
        while k < vs.size and vs[k] < ue[i]:
            starts[n], ends[n] = max(us[i], vs[k]), min(ue[i], ve[k])
            n += 1
            k += 1
        first = max(first, k - 1)
    return starts, ends


@compiled(f"int64[::1]({_RO}, {_RO}, {_RO}, {_RO})")
def covered(s: Int64, e: Int64, us: Int64, ue: Int64) -> Int64:
    """Time of each row that a union covers.

    Args:
        s: int64[n], ns.
        e: int64[n], ns.
        us: int64[m], ns, starts of a union.
        ue: int64[m], ns, its ends.

    Returns:
        int64[n], ns; 0 for rows with ``e <= s``.
    """
    found = np.zeros(s.size, np.int64)
    if us.size == 0:
        return found
    before = np.zeros(us.size, np.int64)
    for i in range(1, us.size):
        before[i] = before[i - 1] + ue[i - 1] - us[i - 1]
    place = 0
    for i in range(s.size):
        if e[i] > s[i]:
            place = _last_until(us, s[i], max(place, 0))
            until = 0
            if place >= 0:
                until = before[place] + min(s[i], ue[place]) - us[place]
            last = _last_until(us, e[i], max(place, 0))
            if last >= 0:
                found[i] = before[last] + min(e[i], ue[last]) - us[last] - until
    return found


@compiled(f"int64[::1]({_RO}, ro(int32[::1]), int64)")
def reached_before(e: Int64, lane: NDArray[np.int32], n_lanes: int) -> Int64:
    """Latest end of the rows of the same lane that come before each row.

    Args:
        e: int64[n], ns.
        lane: int32[n], lane of each row, 0 up to `n_lanes`.
        n_lanes: Number of lanes.

    Returns:
        int64[n], ns; `BEFORE_ALL` for the first row of a lane.
    """
    reached = np.full(n_lanes, BEFORE_ALL, np.int64)
    found = np.empty(e.size, np.int64)
    for i in range(e.size):
        found[i] = reached[lane[i]]
        reached[lane[i]] = max(reached[lane[i]], e[i])
    return found


@compiled(f"int64[:, ::1]({_RO}, {_RO}, {_RO}, {_RO})")
def cells_of(start: Int64, end: Int64, s: Int64, e: Int64) -> Int64:
    """Which cells lie fully inside each window, and which share time with it.

    Args:
        start: int64[n], ns, starts of disjoint cells, ascending.
        end: int64[n], ns, their ends.
        s: int64[m], ns, starts of windows.
        e: int64[m], ns, their ends.

    Returns:
        int64[4, m]: first cell that lies inside and their number, first cell that overlaps and
        their number.
    """
    found = np.empty((4, s.size), np.int64)
    begun, ended = 0, 0
    for i in range(s.size):
        begun = _last_until(start, s[i] - 1, max(begun, 0))
        ended = _last_until(end, s[i], max(ended, 0))
        found[0, i], found[2, i] = begun + 1, ended + 1
        found[1, i] = max(_last_until(end, e[i], max(ended, 0)) - begun, 0)
        found[3, i] = max(_last_until(start, e[i] - 1, max(begun, 0)) - ended, 0)
    return found
