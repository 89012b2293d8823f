"""Host calls of every thread in order of time: who waits until when, and what came before."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.jit import SMALL, compiled

__all__ = [
    "BEGINS_CAPTURE",
    "BLOCKS",
    "ENDS_CAPTURE",
    "ENQUEUES",
    "GRAPHS",
    "HAS_WORK",
    "LAUNCHES",
    "PAIRS",
    "WAITS",
    "Blocking",
    "host_waits",
]

Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt16: TypeAlias = NDArray[np.uint16]
UInt32: TypeAlias = NDArray[np.uint32]

ENQUEUES, WAITS, BLOCKS, PAIRS = 1, 2, 4, 8
BEGINS_CAPTURE, ENDS_CAPTURE, LAUNCHES, HAS_WORK, GRAPHS = 16, 32, 64, 128, 256
"""Bits of a call: it enqueues work; returns when earlier work is done; returns when its own copy is
done; is a copy that a wait directly behind it is one with; begins or ends a stream capture;
launches something; work of it was recorded; it launches a graph."""
PAIR_NS = 100_000
"""A wait at most so long behind a copy is one wait with it."""


class Blocking(NamedTuple):
    """What a pass over all calls finds.

    Attributes:
        thread: int32[k], thread of each blocking interval, ascending.
        start: int64[k], ns, ascending within a thread.
        reach: int64[k], ns, latest end of the thread's intervals up to this one.
        wait: int32[k], call whose end is `reach`.
        copy: int32[k], copy with which it is one interval, -1 without one.
        previous: int32[n], the enqueuing call before each call on its thread, or -1.
        n_without_work: Launches, not of a capture, of which no work was recorded.
        n_launches: Launches that were not of a capture.
        n_graphs_without_work: Part of `n_without_work` that launch graphs.
    """

    thread: Int32
    start: Int64
    reach: Int64
    wait: Int32
    copy: Int32
    previous: Int32
    n_without_work: int
    n_launches: int
    n_graphs_without_work: int


def host_waits(start: Int64, end: Int64, thread: UInt32, bits: UInt16, n_threads: int) -> Blocking:
    """Return when threads wait for the device, and the enqueuing call before each call.

    A copy to the host (or one from pageable memory) with a wait of its thread at most `PAIR_NS`
    behind it is one interval from the copy's start to the wait's end, unless the thread enqueued
    something in between.

    Args:
        start: int64[n], ns, in any order.
        end: int64[n], ns.
        thread: uint32[n], below `n_threads`.
        bits: uint16[n], what each call does; see `ENQUEUES`.
        n_threads: Number of threads.
    """
    s, e = (np.ascontiguousarray(c, np.int64) for c in (start, end))
    own, kind = np.ascontiguousarray(thread, np.uint32), np.ascontiguousarray(bits, np.uint16)
    order = np.empty(0, np.int32)
    if not _in_order(s, own, n_threads):
        order = np.argsort(s, kind="stable").astype(np.int32)
    times, calls, previous, counts = _host_waits(s, e, own, kind, n_threads, order)
    by_thread = np.lexsort((times[0], calls[0]))
    of, begun, until, wait, copy = (c[by_thread] for c in (calls[0], *times, *calls[1:]))
    reach, last = _reach(of, until)
    return Blocking(of, begun, reach, wait[last], copy[last], previous, *map(int, counts))


def _reach(thread: Int32, until: Int64) -> tuple[Int64, Int64]:
    """Latest end within the thread up to each interval, and the interval that it is of."""
    last = np.arange(until.size)
    for first in np.flatnonzero(np.append(True, thread[1:] != thread[:-1])) if until.size else ():
        beyond = np.searchsorted(thread, thread[first], side="right")
        own = until[first:beyond]
        top = np.maximum.accumulate(own)
        is_new = np.append(True, own[1:] > top[:-1])
        last[first:beyond] = first + np.maximum.accumulate(np.where(is_new, np.arange(own.size), 0))
    return until[last], last


@compiled("boolean(ro(int64[::1]), ro(uint32[::1]), int64)", interpret_below=SMALL)
def _in_order(s: Int64, thread: UInt32, n_threads: int) -> bool:
    """Whether the calls of each thread are in order of time."""
    last = np.full(n_threads, -(1 << 62), np.int64)
    for i in range(s.size):
        if s[i] < last[thread[i]]:
            return False
        last[thread[i]] = s[i]
    return True


@compiled(
    "Tuple((int64[:, ::1], int32[:, ::1], int32[::1], int64[::1]))(ro(int64[::1]), ro(int64[::1]),"
    " ro(uint32[::1]), ro(uint16[::1]), int64, ro(int32[::1]))",
    interpret_below=SMALL,
)
def _host_waits(
    s: Int64, e: Int64, thread: UInt32, bits: UInt16, n_threads: int, order: Int32
) -> tuple[Int64, Int32, Int32, Int64]:
    n = 0
    for i in range(s.size):
        n += (bits[i] & (WAITS | BLOCKS)) != 0
    times, calls = np.empty((2, n), np.int64), np.empty((3, n), np.int32)
    previous, counts = np.empty(s.size, np.int32), np.zeros(3, np.int64)
    before = np.full(n_threads, -1, np.int32)
    pending = np.full(n_threads, -1, np.int32)
    captures = np.zeros(n_threads, np.int32)
    n = 0
    for place in range(s.size):
        i = order[place] if order.size else place
        own, kind = thread[i], bits[i]
        previous[i] = before[own]
        if kind & (WAITS | BLOCKS):
            copy = pending[own] if kind & WAITS else -1
            if copy >= 0 and s[i] - e[copy] > PAIR_NS:
                copy = -1
            times[0, n], times[1, n] = s[copy] if copy >= 0 else s[i], e[i]
            calls[0, n], calls[1, n], calls[2, n] = own, i, copy
            n += 1
        if kind & (ENQUEUES | WAITS | PAIRS):
            pending[own] = i if kind & PAIRS else -1
        if kind & ENQUEUES:
            before[own] = i
        captures[own] += (kind & BEGINS_CAPTURE) != 0
        if kind & ENDS_CAPTURE:
            captures[own] = max(captures[own] - 1, 0)
        if kind & LAUNCHES and captures[own] == 0:
            lost = (kind & HAS_WORK) == 0
            counts[0] += lost
            counts[1] += 1
            counts[2] += lost and (kind & GRAPHS) != 0
    return times, calls, previous, counts
