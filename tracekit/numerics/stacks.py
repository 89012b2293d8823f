"""Nested ranges: who contains whom, and which range was innermost at an instant.

Ranges of one group (a thread's ranges in one domain) form a stack. The innermost range at an
instant is the one with the latest start among those still open, also when a later one has already
ended (a backward as-of join gets that wrong) and when ranges cross instead of nesting. Equal
starts: the shorter range is the inner one, of equal ranges the later row.

One sweep in time order serves all groups: each group's stack is a linked list through the ranges
themselves, so depth costs no memory and no recursion. O((n + m) log(n + m)) for the sorts.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics.jit import SMALL, compiled
from tracekit.numerics.labels import codes, distinct

Int64: TypeAlias = NDArray[np.int64]


def nest(starts: ArrayLike, ends: ArrayLike, groups: ArrayLike) -> tuple[Int64, Int64]:
    """Parent and depth of every range.

    Args:
        starts: int64[n], ns, in any order.
        ends: int64[n], ns; for a range that never closed give the end of the capture.
        groups: int64[n], any label of the stack that a range belongs to.

    Returns:
        ``(parent, depth)``, both int64[n]: row of the innermost range open at this one's start
        or -1, and the number of its ancestors. Crossing ranges are no error; a parent may then
        end before its child.
    """
    s, e, g = _columns(starts, ends, groups)
    labels = distinct(g)
    return _nest(s, e, codes(labels, g), _outer_first(s, e), labels.size)


def innermost(
    range_start: ArrayLike,
    range_end: ArrayLike,
    range_group: ArrayLike,
    point_time: ArrayLike,
    point_group: ArrayLike,
) -> Int64:
    """The innermost range of its group around each point.

    Args:
        range_start: int64[n], ns, in any order.
        range_end: int64[n], ns.
        range_group: int64[n], any label.
        point_time: int64[m], ns, in any order.
        point_group: int64[m], labels of the same kind.

    Returns:
        int64[m], row of the latest range with ``start <= time < end``, -1 if there is none.
    """
    s, e, g = _columns(range_start, range_end, range_group)
    times, point_groups, _ = _columns(point_time, point_group, point_group)
    labels = distinct(g)
    order, point_order = _outer_first(s, e), _ascending(times)
    code, place = codes(labels, g), codes(labels, point_groups)
    return _innermost(s, e, code, order, times, place, point_order, labels.size)


def _columns(*columns: ArrayLike) -> tuple[Int64, ...]:
    return tuple(np.ascontiguousarray(column, np.int64) for column in columns)


def _outer_first(s: Int64, e: Int64) -> Int64:
    """Rows by start; of equal starts the longest first."""
    later = s[1:] > s[:-1]
    shorter = (s[1:] == s[:-1]) & (e[1:] <= e[:-1])
    if (later | shorter).all():
        return np.arange(s.size)
    return np.lexsort((-e, s)).astype(np.int64, copy=False)


def _ascending(times: Int64) -> Int64:
    if (times[1:] >= times[:-1]).all():
        return np.arange(times.size)
    return np.argsort(times).astype(np.int64, copy=False)


@compiled(
    "Tuple((int64[::1], int64[::1]))" + "(" + "ro(int64[::1]), " * 4 + "int64)",
    interpret_below=SMALL,
)
def _nest(s: Int64, e: Int64, code: Int64, order: Int64, n_groups: int) -> tuple[Int64, Int64]:
    top = np.full(n_groups, -1, np.int64)
    parent = np.empty(s.size, np.int64)
    depth = np.empty(s.size, np.int64)
    for row in order:
        above = top[code[row]]
        while above >= 0 and e[above] <= s[row]:
            above = parent[above]
        parent[row] = above
        depth[row] = depth[above] + 1 if above >= 0 else 0
        top[code[row]] = row
    return parent, depth


@compiled("int64[::1](" + "ro(int64[::1]), " * 7 + "int64)", interpret_below=SMALL)
def _innermost(
    s: Int64,
    e: Int64,
    code: Int64,
    order: Int64,
    times: Int64,
    place: Int64,
    point_order: Int64,
    n_groups: int,
) -> Int64:
    top = np.full(n_groups, -1, np.int64)
    below = np.empty(s.size, np.int64)
    found = np.full(times.size, -1, np.int64)
    opened = 0
    for point in point_order:
        now = times[point]
        while opened < order.size and s[order[opened]] <= now:
            row = order[opened]
            above = top[code[row]]
            while above >= 0 and e[above] <= s[row]:
                above = below[above]
            below[row] = above
            top[code[row]] = row
            opened += 1
        if place[point] >= 0:
            above = top[place[point]]
            while above >= 0 and e[above] <= now:
                above = below[above]
            top[place[point]] = above
            found[point] = above
    return found
