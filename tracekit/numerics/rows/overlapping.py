"""Rows of one GPU against windows: which share time, how much, and what followed just after.

The rows ascend in their start and have two small codes, queue and kind, as in `shares`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import intervals, sweeps
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.jit import accelerated, compiled

__all__ = [
    "INSIDE",
    "NEVER",
    "OUTSIDE",
    "Followers",
    "counted",
    "followed",
    "overlapping_rows",
    "reaching_over",
    "sides",
    "waited_since",
]

Bool: TypeAlias = NDArray[np.bool_]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]
UInt32: TypeAlias = NDArray[np.uint32]

NEVER = np.iinfo(np.int64).max
_RO = "ro(int64[::1])"
_CODES = "ro(uint32[::1]), ro(uint8[::1])"
OUTSIDE, INSIDE = 1, 2
"""Sides of a row that lies clearly on one."""


class Followers(NamedTuple):
    """Work of one GPU that may have waited for something.

    Attributes:
        start: int64[n], ns, ascending.
        end: int64[n], ns.
        queue: uint32[n].
        kind: uint8[n].
        chosen: bool[number of queues, number of kinds], which rows count.
        stream_of: int32[number of queues].
        launch: int64[n], ns, when each row was launched; the smallest int64 where unknown.
    """

    start: Int64
    end: Int64
    queue: UInt32
    kind: UInt8
    chosen: Bool
    stream_of: Int32
    launch: Int64


@compiled(f"int64[:, ::1]({_CODES}, int64, int64)")
def _counted(queue: UInt32, kind: UInt8, n_queues: int, n_kinds: int) -> Int64:
    count = np.zeros((n_queues, n_kinds), np.int64)
    for i in range(queue.size):
        count[queue[i], kind[i]] += 1
    return count


@accelerated(_counted)
def counted(queue: UInt32, kind: UInt8, n_queues: int, n_kinds: int) -> Int64:
    """Count rows by queue and kind.

    Args:
        queue: uint32[n], below `n_queues`.
        kind: uint8[n], below `n_kinds`.
        n_queues: Number of queues.
        n_kinds: Number of kinds.

    Returns:
        int64[n_queues, n_kinds].
    """
    pair = queue.astype(np.int64) * n_kinds + kind
    count: Int64 = np.bincount(pair, minlength=n_queues * n_kinds).astype(np.int64)
    return count.reshape(n_queues, n_kinds)


@compiled(f"int64[::1]({_RO}, {_RO}, {_CODES}, ro(boolean[:, ::1]), {_RO}, {_RO})")
def _overlapping_rows(
    s: Int64, e: Int64, queue: UInt32, kind: UInt8, chosen: Bool, us: Int64, ue: Int64
) -> Int64:
    found, n, at = np.empty(1024, np.int64), 0, 0
    if us.size == 0:
        return found[:0].copy()
    for i in range(s.size):
        if e[i] <= us[at]:
            continue
        while at < us.size and ue[at] <= s[i]:
            at += 1
        if at == us.size:
            break
        if us[at] < e[i] and s[i] < e[i] and chosen[queue[i], kind[i]]:
            if n == found.size:
                found = np.append(found, np.empty(n, np.int64))
            found[n] = i
            n += 1
    return found[:n].copy()


def _rows_beside_swept(
    s: Int64, e: Int64, queue: UInt32, kind: UInt8, chosen: Bool, windows: Intervals
) -> Int64:
    return _overlapping_rows(s, e, queue, kind, np.ascontiguousarray(chosen), *windows)


@accelerated(_rows_beside_swept)
def overlapping_rows(
    s: Int64, e: Int64, queue: UInt32, kind: UInt8, chosen: Bool, windows: Intervals
) -> Int64:
    """Return the chosen rows that share time with a union.

    Args:
        s: int64[n], ns, ascending.
        e: int64[n], ns.
        queue: uint32[n].
        kind: uint8[n].
        chosen: bool[number of queues, number of kinds].
        windows: A union.

    Returns:
        int64[k], rows in ascending order.
    """
    own = np.flatnonzero(chosen[queue, kind])
    return own[intervals.overlap_ns(s[own], e[own], *windows) > 0]


@compiled(
    f"int64[::1]({_RO}, {_RO}, {_CODES}, ro(boolean[:, ::1]), ro(int32[::1]), {_RO}, {_RO},"
    " int64, int64)"
)
def _waited(
    s: Int64,
    e: Int64,
    queue: UInt32,
    kind: UInt8,
    chosen: Bool,
    stream_of: Int32,
    launch: Int64,
    ends: Int64,
    early_ns: int,
    late_ns: int,
) -> Int64:
    """`waited_since` of ascending ends in one pass: each stream keeps the end it answers next."""
    found = np.full(ends.size, NEVER)
    n_streams = 0
    for queue_number in range(stream_of.size):
        n_streams = max(n_streams, stream_of[queue_number] + 1)
    answered = np.zeros(n_streams, np.int64)
    reached = np.full(n_streams, sweeps.BEFORE_ALL, np.int64)
    for i in range(s.size):
        if chosen[queue[i], kind[i]]:
            own = stream_of[queue[i]]
            at = answered[own]
            while at < ends.size and ends[at] - early_ns <= s[i]:
                since = max(reached[own], launch[i])
                if s[i] - ends[at] <= late_ns and since < ends[at]:
                    found[at] = min(found[at], since)
                at += 1
            answered[own] = at
            reached[own] = max(reached[own], e[i])
    return found


def _waited_swept(work: Followers, ends: Int64, early_ns: int, late_ns: int) -> Int64:
    order = np.argsort(ends, kind="stable")
    found = np.empty(ends.size, np.int64)
    contiguous = work._replace(chosen=np.ascontiguousarray(work.chosen))
    found[order] = _waited(*contiguous, ends[order], early_ns, late_ns)
    return found


@accelerated(_waited_swept)
def waited_since(work: Followers, ends: Int64, early_ns: int, late_ns: int) -> Int64:
    """Return since when something had waited that began just after each of some ends.

    The first work of a stream from an end on waited for it when it began no later than `late_ns`
    after it, and, since before the end, had been launched and its stream had finished all else.

    Args:
        work: What may have waited.
        ends: int64[m], ns, in any order.
        early_ns: Work may begin so long before an end and count as after it.
        late_ns: Longest time from an end to what waited for it.

    Returns:
        int64[m], ns, the earliest over the streams; `NEVER` where nothing waited.
    """
    found = np.full(ends.size, NEVER)
    rows = np.flatnonzero(work.chosen[work.queue, work.kind])
    stream = work.stream_of[work.queue[rows]]
    for number in np.unique(stream):
        own = rows[stream == number]
        begins, reached = work.start[own], np.maximum.accumulate(work.end[own])
        at = np.searchsorted(begins, ends - early_ns)
        there = np.minimum(at, own.size - 1)
        free = np.where(at > 0, reached[np.maximum(at - 1, 0)], sweeps.BEFORE_ALL)
        since = np.maximum(free, work.launch[own[there]])
        waited = (at < own.size) & (begins[there] - ends <= late_ns) & (since < ends)
        found = np.minimum(found, np.where(waited, since, NEVER))
    return found


@compiled(
    f"Tuple((uint8[::1], int64[:, ::1]))({_RO}, {_RO}, {_RO}, ro(uint32[::1]), int64, float64,"
    " float64)"
)
def _sides(
    s: Int64, e: Int64, covered_ns: Int64, names: UInt32, n_names: int, most: float, least: float
) -> tuple[UInt8, Int64]:
    side, count = np.zeros(s.size, np.uint8), np.zeros((n_names, 2), np.int64)
    for i in range(s.size):
        if covered_ns[i] >= 0:
            share = covered_ns[i] / max(e[i] - s[i], 1)
            if share >= least:
                side[i] = INSIDE
                count[names[i], 1] += 1
            elif share <= most:
                side[i] = OUTSIDE
                count[names[i], 0] += 1
    return side, count


def _sides_swept(
    length_ns: Intervals,
    covered_ns: Int64,
    names: UInt32,
    n_names: int,
    shares: tuple[float, float],
) -> tuple[UInt8, Int64]:
    return _sides(*length_ns, covered_ns, names, n_names, *shares)


@accelerated(_sides_swept)
def sides(
    length_ns: Intervals,
    covered_ns: Int64,
    names: UInt32,
    n_names: int,
    shares: tuple[float, float],
) -> tuple[UInt8, Int64]:
    """Return whether rows lie clearly outside or clearly inside of windows, and how many by name.

    Args:
        length_ns: Starts and ends of the rows, int64[n] each, ns.
        covered_ns: int64[n], how much of each row windows cover; negative for rows left out.
        names: uint32[n], below `n_names`.
        n_names: Number of names.
        shares: Share of a row up to which it is `OUTSIDE`, and that from which on it is `INSIDE`.

    Returns:
        ``(side, count)``: uint8[n], 0 where neither; int64[n_names, 2], rows outside and inside.
    """
    s, e = length_ns
    share = covered_ns / np.maximum(e - s, 1)
    inside, outside = share >= shares[1], (share <= shares[0]) & (covered_ns >= 0)
    side = np.where(inside, INSIDE, np.where(outside, OUTSIDE, 0)).astype(np.uint8)
    count = [np.bincount(names[side == k], minlength=n_names) for k in (OUTSIDE, INSIDE)]
    return side, np.stack(count, axis=1).astype(np.int64)


Flags: TypeAlias = NDArray[np.bool_]


@compiled(
    "Tuple((int64[::1], int64[::1]))(ro(uint32[::1]), ro(uint8[::1]),"
    " ro(boolean[::1]), ro(boolean[::1]), int64)"
)
def _followed_swept(
    queue: UInt32, kind: UInt8, is_wanted: Flags, is_link: Flags, n_queues: int
) -> tuple[Int64, Int64]:
    """`followed` in two passes: count, then fill."""
    free = np.zeros(n_queues + 1, np.int64)
    for i in range(queue.size):
        if is_wanted[kind[i]]:
            free[queue[i] + 1] += 1
    for k in range(n_queues):
        free[k + 1] += free[k]
    at, then = np.empty(free[n_queues], np.int64), np.full(free[n_queues], -1, np.int64)
    waits = np.full(n_queues, -1, np.int64)
    for i in range(queue.size):
        if is_link[kind[i]]:
            own = queue[i]
            if waits[own] >= 0:
                then[waits[own]] = i
                waits[own] = -1
            if is_wanted[kind[i]]:
                at[free[own]] = i
                waits[own] = free[own]
                free[own] += 1
    return at, then


@accelerated(_followed_swept)
def followed(
    queue: UInt32, kind: UInt8, is_wanted: Flags, is_link: Flags, n_queues: int
) -> tuple[Int64, Int64]:
    """Find the rows of some kinds, and what follows each in its queue.

    Args:
        queue: uint32[n], below `n_queues`.
        kind: uint8[n].
        is_wanted: bool[number of kinds], what is looked for.
        is_link: bool[number of kinds], what may follow; all that is wanted may.
        n_queues: Number of queues.

    Returns:
        int64[k], the wanted rows, queue by queue and in order; int64[k], the next row of the same
        queue that may follow, -1 for none.
    """
    del n_queues  # the queues that occur are enough here
    rows = np.flatnonzero(is_link.take(kind))
    rows = rows[np.argsort(queue[rows], kind="stable")]
    place = np.flatnonzero(is_wanted.take(kind[rows]))
    at = rows[place]
    then = np.append(rows, -1)[place + 1]
    return at, np.where(queue[then] == queue[at], then, -1)


@compiled(f"Tuple((int64, int64))({_RO}, {_RO}, ro(uint32[::1]), int64)")
def _reaching_over(s: Int64, e: Int64, queue: UInt32, n_queues: int) -> tuple[int, int]:
    """`reaching_over` in one pass: each queue keeps its last two rows."""
    last, before = np.full(n_queues, -1, np.int64), np.full(n_queues, -1, np.int64)
    n, time = 0, 0
    for i in range(s.size):
        q = queue[i]
        if before[q] >= 0 and e[before[q]] > s[i]:
            n += 1
            time += e[before[q]] - s[last[q]]
        before[q], last[q] = last[q], i
    return n, time


@accelerated(_reaching_over)
def reaching_over(s: Int64, e: Int64, queue: UInt32, n_queues: int) -> tuple[int, int]:
    """Count the rows that last beyond the beginning of the one after the next in their queue.

    Args:
        s: int64[n], ns, ascending within each queue.
        e: int64[n], ns.
        queue: uint32[n].
        n_queues: Number of queues.

    Returns:
        How many, and for how long they last beyond the beginning of their next one, summed, ns.
    """
    n, time = 0, 0
    for one in range(n_queues):
        start, end = s[queue == one], e[queue == one]
        over = np.flatnonzero(end[:-2] > start[2:])
        n, time = n + over.size, time + int((end[over] - start[over + 1]).sum())
    return n, time
