"""Nested ranges: who contains whom, and which range was innermost at an instant.

Ranges of one group (a thread's ranges in one domain) form a stack. The innermost range at an
instant is the one with the latest start among those still open, also when a later one has already
ended (a backward as-of join gets that wrong) and when ranges cross instead of nesting. Equal
starts: the shorter range is the inner one, of equal ranges the later row.

One sweep in time order serves all groups: each group's stack is a linked list through the ranges
themselves, so depth costs no memory and no recursion. O((n + m) log(n + m)) for the sorts.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics.jit import SMALL, accelerated, compiled
from tracekit.numerics.numbering import codes, distinct

Int64: TypeAlias = NDArray[np.int64]
Int32: TypeAlias = NDArray[np.int32]


def outer_first(starts: ArrayLike, ends: ArrayLike) -> Int32:
    """Rows by start; of equal starts the longest first.

    The other functions are quickest on rows in this order.

    Args:
        starts: int64[n], ns.
        ends: int64[n], ns.

    Returns:
        int32[n], rows; equal ranges stay in their order.
    """
    s, e = _columns(starts, ends)
    order = _ascending(s)
    tied = _neighbours(s, e, order, False)
    rows = order[tied]
    order[tied] = rows[np.lexsort((-e[rows], s[rows]))]
    return order


def alike(starts: ArrayLike, ends: ArrayLike, order: ArrayLike) -> Int32:
    """Ranges of which another one has both times.

    Args:
        starts: int64[n], ns, in any order.
        ends: int64[n], ns.
        order: From `outer_first`.

    Returns:
        int32[k], rows, in that order.
    """
    s, e = _columns(starts, ends)
    rows = np.ascontiguousarray(order, np.int32)
    found: Int32 = rows[_neighbours(s, e, rows, True)]
    return found


def nest(
    starts: ArrayLike,
    ends: ArrayLike,
    groups: ArrayLike,
    n_groups: int | None = None,
    order: Int32 | None = None,
) -> tuple[Int32, Int32]:
    """Parent and depth of every range.

    Args:
        starts: int64[n], ns, in any order.
        ends: int64[n], ns; for a range that never closed give the end of the capture.
        groups: int64[n], any label of the stack that a range belongs to.
        n_groups: Given, the labels are numbers below it.
        order: From `outer_first`, where that is known already.

    Returns:
        ``(parent, depth)``, both int32[n]: row of the innermost range open at this one's start
        or -1, and the number of its ancestors. Crossing ranges are no error; a parent may then
        end before its child.
    """
    s, e = _columns(starts, ends)
    n, code = _numbered(n_groups, groups)
    return _nest(s, e, code, outer_first(s, e) if order is None else order, n)


def inherited(
    starts: ArrayLike,
    ends: ArrayLike,
    groups: ArrayLike,
    n_groups: int,
    outermost: ArrayLike,
    nearest: ArrayLike,
) -> tuple[Int32, Int32]:
    """What ranges have of the ranges around them, or of their own.

    Args:
        starts: int64[n], ns, in any order.
        ends: int64[n], ns.
        groups: int32[n], number of the stack that a range belongs to.
        n_groups: Number of stacks.
        outermost: int32[n], a value of which a range takes that of its outermost ancestor that has
            one; negative for none.
        nearest: int32[n], a value that goes before those of its ancestors, the nearest first.

    Returns:
        Both, int32[n], -1 where neither a range nor an ancestor has one.
    """
    s, e = _columns(starts, ends)
    order = outer_first(s, e)
    parent, _ = _nest(s, e, np.ascontiguousarray(groups, np.int32), order, n_groups)
    outer, near = (np.ascontiguousarray(v, np.int32) for v in (outermost, nearest))
    return _inherited(order, parent, outer, near)


def innermost(
    range_start: ArrayLike,
    range_end: ArrayLike,
    range_group: ArrayLike,
    point_time: ArrayLike,
    point_group: ArrayLike,
    *,
    n_groups: int | None = None,
    group_of: ArrayLike | None = None,
    points: ArrayLike | None = None,
) -> Int32:
    """The innermost range of its group around each point.

    Args:
        range_start: int64[n], ns, in any order.
        range_end: int64[n], ns.
        range_group: int64[n], any label.
        point_time: int64[m], ns, in any order.
        point_group: int64[m], labels of the same kind.
        n_groups: Given, the labels are numbers below it; a negative one of a point is of no group.
        group_of: int32[k], given with `n_groups`: the groups of labels, which `point_group`
            (uint32[m]) then holds.
        points: int32[j], rows of the points that are wanted; None for all.

    Returns:
        int32[m], row of the latest range with ``start <= time < end``, -1 if there is none.
    """
    s, e, times = _columns(range_start, range_end, point_time)
    if group_of is None:
        n, code, place = _numbered(n_groups, range_group, point_group)
        label = np.where((place >= 0) & (place < n), place, n).astype(np.uint32)
        groups = np.append(np.arange(n, dtype=np.int32), np.int32(-1))
    else:
        n, code, groups = _numbered(n_groups, range_group, group_of)
        label = np.ascontiguousarray(point_group, np.uint32)
    order = _ascending(times, points)
    return _innermost(s, e, code, outer_first(s, e), times, label, groups, order, n)


def _columns(*columns: ArrayLike) -> tuple[Int64, ...]:
    return tuple(np.ascontiguousarray(column, np.int64) for column in columns)


def _numbered(n_groups: int | None, *groups: ArrayLike) -> tuple[Any, ...]:
    """Number of groups, and of each row its group; -1 for one that the first column lacks."""
    if n_groups is not None:
        return n_groups, *(np.ascontiguousarray(column, np.int32) for column in groups)
    columns = _columns(*groups)
    labels = distinct(columns[0])
    return labels.size, *(codes(labels, column).astype(np.int32) for column in columns)


@compiled("int64[::1](ro(int64[::1]), ro(int64[::1]), ro(int32[::1]), boolean)")
def _neighbours_swept(s: Int64, e: Int64, order: Int32, by_end: bool) -> Int64:
    """`_neighbours` in two passes: count, then fill."""
    found = np.empty(0, np.int64)
    for fill in (False, True):
        n, before = 0, False
        for i in range(order.size):
            after = False
            if i + 1 < order.size:
                row, other = order[i], order[i + 1]
                after = s[row] == s[other] and (not by_end or e[row] == e[other])
            if before or after:
                if fill:
                    found[n] = i
                n += 1
            before = after
        if not fill:
            found = np.empty(n, np.int64)
    return found


@accelerated(_neighbours_swept)
def _neighbours(s: Int64, e: Int64, order: Int32, by_end: bool) -> Int64:
    """Places in an order by start of rows that begin (and end) when the next or last one does."""
    starts, ends = s[order], e[order]
    same = starts[1:] == starts[:-1]
    if by_end:
        same &= ends[1:] == ends[:-1]
    return np.flatnonzero(np.append(same, False) | np.append(False, same))


def _ascends(times: Int64) -> bool:
    return bool((times[1:] >= times[:-1]).all())


def _ascending(times: Int64, rows: ArrayLike | None = None) -> Int32:
    """Put rows, all if None, in order of time."""
    chosen = None if rows is None else np.ascontiguousarray(rows, np.int32)
    own = times if chosen is None else times[chosen]
    if _ascends(own):
        return np.arange(own.size, dtype=np.int32) if chosen is None else chosen
    # Events are recorded nearly in order, which a merging sort makes use of.
    order = np.argsort(own, kind="stable").astype(np.int32)
    return order if chosen is None else chosen[order]


@compiled(
    "Tuple((int32[::1], int32[::1]))"
    "(ro(int64[::1]), ro(int64[::1]), ro(int32[::1]), ro(int32[::1]), int64)",
    interpret_below=SMALL,
)
def _nest(s: Int64, e: Int64, code: Int32, order: Int32, n_groups: int) -> tuple[Int32, Int32]:
    top = np.full(n_groups, -1, np.int32)
    parent = np.empty(s.size, np.int32)
    depth = np.empty(s.size, np.int32)
    for row in order:
        above = top[code[row]]
        while above >= 0 and e[above] <= s[row]:
            above = parent[above]
        parent[row] = above
        depth[row] = depth[above] + 1 if above >= 0 else 0
        top[code[row]] = row
    return parent, depth


@compiled(
    "Tuple((int32[::1], int32[::1]))(" + ", ".join(["ro(int32[::1])"] * 4) + ")",
    interpret_below=SMALL,
)
def _inherited(order: Int32, parent: Int32, outer: Int32, near: Int32) -> tuple[Int32, Int32]:
    outermost = np.empty(order.size, np.int32)
    nearest = np.empty(order.size, np.int32)
    for row in order:
        above = parent[row]
        from_above = outermost[above] if above >= 0 else -1
        outermost[row] = from_above if from_above >= 0 else max(outer[row], -1)
        if near[row] >= 0:
            nearest[row] = near[row]
        else:
            nearest[row] = nearest[above] if above >= 0 else -1
    return outermost, nearest


@compiled(
    "int32[::1](ro(int64[::1]), ro(int64[::1]), ro(int32[::1]), ro(int32[::1]),"
    " ro(int64[::1]), ro(uint32[::1]), ro(int32[::1]), ro(int32[::1]), int64)",
    interpret_below=SMALL,
)
def _innermost(
    s: Int64,
    e: Int64,
    code: Int32,
    order: Int32,
    times: Int64,
    label: NDArray[np.uint32],
    group_of: Int32,
    point_order: Int32,
    n_groups: int,
) -> Int32:
    top = np.full(n_groups, -1, np.int32)
    below = np.empty(s.size, np.int32)
    found = np.full(times.size, -1, np.int32)
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
        group = group_of[label[point]]
        if group >= 0:
            above = top[group]
            while above >= 0 and e[above] <= now:
                above = below[above]
            top[group] = above
            found[point] = above
    return found
