"""How the time of windows divides over kinds of work: one pass over the rows of a GPU.

A row has two small codes, its queue and its kind, and a table says by both which lane it belongs
to, so that choosing rows makes no array as long as they are.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import intervals
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.jit import accelerated, compiled
from tracekit.numerics.sweeps import BEFORE_ALL

__all__ = ["by_kind", "by_lane", "finished_before", "idle", "union_of"]

Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]
UInt32: TypeAlias = NDArray[np.uint32]

_RO = "ro(int64[::1])"
_CODES = "ro(uint32[::1]), ro(uint8[::1])"


@compiled(f"Tuple((int64[::1], int64[::1]))({_RO}, {_RO}, {_CODES}, ro(boolean[:, ::1]))")
def _merged(
    s: Int64, e: Int64, queue: UInt32, kind: UInt8, chosen: NDArray[np.bool_]
) -> tuple[Int64, Int64]:
    """`union_of` in two passes: count, then fill."""
    n, reached = 0, BEFORE_ALL
    for i in range(s.size):
        if e[i] > s[i] and chosen[queue[i], kind[i]]:
            n += n == 0 or s[i] > reached
            reached = max(reached, e[i])
    starts, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for i in range(s.size):
        if e[i] > s[i] and chosen[queue[i], kind[i]]:
            if n == 0 or s[i] > ends[n - 1]:
                starts[n], ends[n] = s[i], e[i]
                n += 1
            else:
                ends[n - 1] = max(ends[n - 1], e[i])
    return starts, ends


def _union_swept(
    s: Int64, e: Int64, queue: UInt32, kind: UInt8, chosen: NDArray[np.bool_]
) -> Intervals:
    return _merged(s, e, queue, kind, np.ascontiguousarray(chosen))


@accelerated(_union_swept)
def union_of(
    s: Int64, e: Int64, queue: UInt32, kind: UInt8, chosen: NDArray[np.bool_]
) -> Intervals:
    """Merge the chosen rows.

    Args:
        s: int64[n], ns, ascending.
        e: int64[n], ns.
        queue: uint32[n].
        kind: uint8[n].
        chosen: bool[number of queues, number of kinds].

    Returns:
        The union.
    """
    own = chosen[queue, kind]
    return intervals.union(s[own], e[own])


@compiled(f"Tuple((int64[::1], int64[::1]))({_RO}, {_RO}, ro(uint8[::1]), int64)")
def _by_kind(s: Int64, e: Int64, kind: UInt8, n_kinds: int) -> tuple[Int64, Int64]:
    """`by_kind` in one pass."""
    count, time = np.zeros(n_kinds, np.int64), np.zeros(n_kinds, np.int64)
    for i in range(s.size):
        count[kind[i]] += 1
        time[kind[i]] += e[i] - s[i]
    return count, time


@accelerated(_by_kind)
def by_kind(s: Int64, e: Int64, kind: UInt8, n_kinds: int) -> tuple[Int64, Int64]:
    """How many rows are of each kind, and how long they are together.

    Args:
        s: int64[n], ns.
        e: int64[n], ns.
        kind: uint8[n], below `n_kinds`.
        n_kinds: Number of kinds.

    Returns:
        int64[n_kinds] each, a count and ns.
    """
    time = np.zeros(n_kinds, np.int64)
    np.add.at(time, kind, e - s)
    return np.bincount(kind, minlength=n_kinds).astype(np.int64, copy=False), time


@compiled(
    f"int64[:, ::1]({_RO}, {_RO}, {_CODES}, ro(int32[:, ::1]), int64, {_RO}, {_RO})",
)
def _swept(
    s: Int64,
    e: Int64,
    queue: UInt32,
    kind: UInt8,
    lane_of: Int32,
    n_lanes: int,
    times: Int64,
    order: Int64,
) -> Int64:
    """`by_lane`; at each edge of a window, what lanes covered until then is taken or given."""
    m = times.size // 2
    found = np.zeros((n_lanes + 1, m), np.int64)
    # Of each lane, and of all together: time covered before the member that is open, and that.
    done = np.zeros(n_lanes + 1, np.int64)
    begun = np.zeros(n_lanes + 1, np.int64)
    reached = np.zeros(n_lanes + 1, np.int64)
    i = 0
    for edge in order:
        t = times[edge]
        while i < s.size and s[i] < t:
            lane = lane_of[queue[i], kind[i]]
            if lane >= 0 and e[i] > s[i]:
                for own in (np.int64(lane), np.int64(n_lanes)):
                    if reached[own] > begun[own] and s[i] <= reached[own]:
                        reached[own] = max(reached[own], e[i])
                    else:
                        done[own] += reached[own] - begun[own]
                        begun[own], reached[own] = s[i], e[i]
            i += 1
        for k in range(n_lanes + 1):
            until = done[k]
            if reached[k] > begun[k]:
                until += min(t, reached[k]) - begun[k]
            if edge < m:
                found[k, edge] -= until
            else:
                found[k, edge - m] += until
    return found


def _by_lane_swept(
    s: Int64, e: Int64, queue: UInt32, kind: UInt8, lane_of: Int32, windows: Intervals
) -> Int64:
    starts, ends = (np.asarray(w, np.int64) for w in windows)
    n_lanes = int(lane_of.max(initial=-1)) + 1
    times = np.concatenate((starts, np.maximum(starts, ends)))
    order = np.argsort(times, kind="stable")
    return _swept(s, e, queue, kind, np.ascontiguousarray(lane_of), n_lanes, times, order)


@accelerated(_by_lane_swept)
def by_lane(
    s: Int64,
    e: Int64,
    queue: UInt32,
    kind: UInt8,
    lane_of: Int32,
    windows: Intervals,
) -> Int64:
    """Time of each window that the rows of each lane cover.

    Args:
        s: int64[n], ns, ascending.
        e: int64[n], ns.
        queue: uint32[n].
        kind: uint8[n].
        lane_of: int32[number of queues, number of kinds], lanes numbered from 0, negative for none.
        windows: Starts and ends, int64[m] each, ns; windows may overlap, in any order.

    Returns:
        int64[number of lanes + 1, m], ns; the last row is what the rows of all lanes cover
        together. 0 for windows with ``end <= start``.
    """
    starts, ends = (np.asarray(w, np.int64) for w in windows)
    n_lanes = int(lane_of.max(initial=-1)) + 1
    lane = lane_of[queue, kind]
    own = [lane == k for k in range(n_lanes)] + [lane >= 0]
    unions = [intervals.union(s[rows], e[rows]) for rows in own]
    return np.stack([intervals.overlap_ns(starts, ends, *union) for union in unions])


@compiled(f"int64[::1]({_RO}, ro(uint32[::1]), ro(int32[::1]), int64, {_RO})")
def _finished(e: Int64, queue: UInt32, stream_of: Int32, n_streams: int, rows: Int64) -> Int64:
    """`finished_before` in one pass up to the last of the rows."""
    reached = np.full(n_streams, BEFORE_ALL, np.int64)
    found = np.empty(rows.size, np.int64)
    i = 0
    for k in range(rows.size):
        while i < rows[k]:
            reached[stream_of[queue[i]]] = max(reached[stream_of[queue[i]]], e[i])
            i += 1
        found[k] = reached[stream_of[queue[i]]]
    return found


def _finished_swept(e: Int64, queue: UInt32, stream_of: Int32, rows: Int64) -> Int64:
    n_streams = int(stream_of.max(initial=-1)) + 1
    return _finished(e, queue, stream_of, n_streams, np.ascontiguousarray(rows))


@accelerated(_finished_swept)
def finished_before(e: Int64, queue: UInt32, stream_of: Int32, rows: Int64) -> Int64:
    """When the stream of some rows had finished everything that comes before them.

    Args:
        e: int64[n], ns, ends of all rows in order.
        queue: uint32[n].
        stream_of: int32[number of queues].
        rows: int64[m], ascending.

    Returns:
        int64[m], ns; `sweeps.BEFORE_ALL` for the first row of a stream.
    """
    n_streams = int(stream_of.max(initial=-1)) + 1
    return intervals.reached_before(e, stream_of[queue], n_streams)[rows]


@compiled(
    f"Tuple((int64[:, ::1], int64[:, ::1]))({_RO}, {_RO}, ro(uint32[::1]), {_RO}, ro(boolean[::1]))"
)
def _idle(
    s: Int64, e: Int64, queue: UInt32, launch: Int64, chosen: NDArray[np.bool_]
) -> tuple[Int64, Int64]:
    """`idle` in two passes: count, then fill; gaps are in order and apart from each other."""
    n_late, n_idle, reached = 0, 0, BEFORE_ALL
    for i in range(s.size):
        if chosen[queue[i]]:
            if reached != BEFORE_ALL and s[i] > reached:
                n_late += launch[i] > reached
                n_idle += launch[i] < s[i]
            reached = max(reached, e[i])
    late, waiting = np.empty((2, n_late), np.int64), np.empty((2, n_idle), np.int64)
    n_late, n_idle, reached = 0, 0, BEFORE_ALL
    for i in range(s.size):
        if chosen[queue[i]]:
            if reached != BEFORE_ALL and s[i] > reached:
                until = min(max(launch[i], reached), s[i])
                if until > reached:
                    late[0, n_late], late[1, n_late] = reached, until
                    n_late += 1
                if until < s[i]:
                    waiting[0, n_idle], waiting[1, n_idle] = until, s[i]
                    n_idle += 1
            reached = max(reached, e[i])
    return late, waiting


def _idle_swept(
    s: Int64, e: Int64, queue: UInt32, launch: Int64, chosen: NDArray[np.bool_]
) -> tuple[Intervals, Intervals]:
    late, waiting = _idle(s, e, queue, launch, np.ascontiguousarray(chosen))
    return (late[0], late[1]), (waiting[0], waiting[1])


@accelerated(_idle_swept)
def idle(
    s: Int64, e: Int64, queue: UInt32, launch: Int64, chosen: NDArray[np.bool_]
) -> tuple[Intervals, Intervals]:
    """Divide the gaps between the chosen rows at the launch of the row that ends each.

    Args:
        s: int64[n], ns, ascending.
        e: int64[n], ns.
        queue: uint32[n].
        launch: int64[n], ns, when each row was launched; the smallest int64 where unknown.
        chosen: bool[number of queues].

    Returns:
        The time in which nothing ran for lack of a launch, and that in which something had been
        launched; a union each.
    """
    own = chosen[queue]
    starts, reached = s[own], np.maximum.accumulate(e[own])
    since = np.concatenate((starts[:1], reached[:-1]))
    until = np.clip(launch[own], since, np.maximum(starts, since))
    return intervals.union(since, until), intervals.union(until, starts)
