"""Which cause each piece of an idle gap has, by what the launching thread was doing.

A gap is cut where the call that launched its next operation begins and ends: before that the host
had not asked for the work, inside it the host was busy handing it over, after it the device had it.
Intervals of the thread in which the profiler, a module load, an allocation or the building of a
graph was going on are cut out first; see `divide` for the rest.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.jit import SMALL, compiled
from tracekit.numerics.sweeps import BEFORE_ALL

__all__ = ["CAUSES", "PLACES", "Busy", "Launched", "Parts", "Waiting", "cause", "divide"]

Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]

CAUSES = (
    *("unknown", "graph_internal", "profiler", "module_load", "allocation", "graph_build"),
    *("sync", "host_gap", "host_blocked", "launch_rate", "graph_launch", "copy_staging"),
    *("launch_latency", "event_wait", "dispatch", "queued_late"),
)
"""Every cause of idle time; its place is its code."""
_UNKNOWN, _INTERNAL = 0, 1
_SYNC, _HOST_GAP, _BLOCKED, _RATE, _GRAPH, _STAGING, _LATENCY, _EVENT, _DISPATCH, _LATE = range(
    6, 16
)
PLACES = ("host", "call", "after")
"""Before, inside and after the launching call."""
_HOST, _CALL, _AFTER = range(3)
KNOWN, REPLAY, GRAPH_LAUNCH, STAGED, WAITED = 1, 2, 4, 8, 16
"""Bits of `Launched.traits`."""
THINK_NS = 100_000
"""Longest time between two launches that still counts as launching without a pause."""
DISPATCH_NS = 10_000
"""Longest time from the end of a launch call to the start of the work that is ordinary."""


class Launched(NamedTuple):
    """How the operation that ends each gap was launched.

    Attributes:
        start: int64[k], ns, start of its call.
        end: int64[k], ns, end of its call.
        previous: int64[k], ns, end of the enqueuing call before it on its thread; `BEFORE_ALL`
            without one.
        thread: int32[k], its thread.
        traits: uint8[k], bits: its call is known; it and the operation before the gap are of one
            graph replay; the call launches a graph; it is a copy from or to pageable memory; its
            stream was made to wait for an event since that stream's operation before.
    """

    start: Int64
    end: Int64
    previous: Int64
    thread: Int32
    traits: UInt8


class Waiting(NamedTuple):
    """Intervals in which threads wait for the device.

    Attributes:
        first: int64[threads + 1], where the intervals of each thread begin.
        start: int64[n], ns, ascending within a thread.
        reach: int64[n], ns, latest end of the thread's intervals up to this one.
    """

    first: Int64
    start: Int64
    reach: Int64


class Busy(NamedTuple):
    """Disjoint intervals in which threads were held up by something with a cause of its own.

    Attributes:
        first: int64[threads + 1], where the intervals of each thread begin.
        start: int64[n], ns, ascending within a thread.
        end: int64[n], ns.
        cause: uint8[n], code of the cause. ``host_blocked`` counts only where the thread had no
            launch to finish and no wait for the device to return from.
    """

    first: Int64
    start: Int64
    end: Int64
    cause: UInt8


class Parts(NamedTuple):
    """Pieces of gaps; those of one gap tile it, in order of time but for what was cut out.

    Attributes:
        gap: int32[n].
        start: int64[n], ns.
        end: int64[n], ns.
        cause: uint8[n], place in `CAUSES`.
        place: uint8[n], place in `PLACES`.
        by: int32[n], interval of `Waiting` (of a sync, or of host work after one) or of `Busy` (of
            the causes that it states); -1 for others.
    """

    gap: Int32
    start: Int64
    end: Int64
    cause: UInt8
    place: UInt8
    by: Int32


def cause(name: str) -> int:
    """Return the code of a cause."""
    return CAUSES.index(name)


def divide(start: Int64, end: Int64, launched: Launched, waiting: Waiting, busy: Busy) -> Parts:
    """Give every nanosecond of some gaps exactly one cause.

    Args:
        start: int64[k], ns.
        end: int64[k], ns, after `start`.
        launched: How the operation that ends each gap was launched.
        waiting: When threads wait for the device.
        busy: When threads were held up otherwise.

    Returns:
        The parts, those of one gap together, gaps in order. Before the launching call: what `busy`
        covers has its cause. Up to the end of a wait that had begun when the gap did, it is
        ``sync``; behind that ``sync`` too if the call comes at most `THINK_NS` after, else
        ``host_gap``. Without such a wait it is ``launch_rate`` if the thread's enqueuing call
        before ended at most `THINK_NS` earlier, else ``host_gap``. This is the gap's lead, which
        the call itself and up to `DISPATCH_NS` behind it share.
    """
    found = _divide(
        *(np.ascontiguousarray(c, np.int64) for c in (start, end)), *launched, *waiting, *busy
    )
    return Parts(*found)


@compiled()
def _last_at(times: Int64, low: int, high: int, t: int) -> int:
    """Index of the last of ``times[low:high]`` that is <= t; `low` - 1 without."""
    low -= 1
    while high - low > 1:
        middle = (low + high) // 2
        if times[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@compiled()
def _bases(
    base: Int64, g: Int64, call: Int64, previous: int, traits: int, blocked: int, until: int
) -> int:
    """Write start, end, cause and place of the gap's pieces as if nothing was cut out of them."""
    n, lead = 0, _LATENCY
    if call[0] > g[0]:
        since, lead = max(until, g[0]), _HOST_GAP
        if blocked >= 0:
            if call[0] - until <= THINK_NS:
                lead = _SYNC
            base[n, 0], base[n, 1], base[n, 2] = g[0], min(until, call[0], g[1]), _SYNC
            base[n, 3], n = _HOST, n + 1
        elif previous != BEFORE_ALL and call[0] - previous <= THINK_NS:
            lead = _RATE
        base[n, 0], base[n, 1], base[n, 2] = since, min(call[0], g[1]), lead
        base[n, 3], n = _HOST, n + 1
    inside = lead
    if traits & GRAPH_LAUNCH:
        inside = _GRAPH
    elif traits & STAGED:
        inside = _STAGING
    base[n, 0], base[n, 1], base[n, 2] = max(g[0], call[0]), min(call[1], g[1]), inside
    base[n, 3], n = _CALL, n + 1
    start = max(g[0], call[1])
    if g[1] - start <= DISPATCH_NS and call[1] > g[0]:
        after = lead
    elif traits & WAITED:
        after = _EVENT
    else:
        after = _DISPATCH if g[1] - start <= DISPATCH_NS else _LATE
    base[n, 0], base[n, 1], base[n, 2], base[n, 3] = start, g[1], after, _AFTER
    return n + 1


@compiled()
def _put(
    times: Int64,
    codes: UInt8,
    of: Int32,
    n: int,
    fill: bool,  # noqa: FBT001 - Numba knows no keywords
    start: int,
    end: int,
    what: int,
    place: int,
    gap: int,
    by: int,
) -> int:
    """Write one part unless it is empty or only counted; the number of parts so far."""
    if end <= start:
        return n
    if fill:
        times[0, n], times[1, n] = start, end
        codes[0, n], codes[1, n] = what, place
        of[0, n], of[1, n] = gap, by
    return n + 1


@compiled(
    "Tuple((int32[::1], int64[::1], int64[::1], uint8[::1], uint8[::1], int32[::1]))("
    "ro(int64[::1]), ro(int64[::1]), ro(int64[::1]), ro(int64[::1]), ro(int64[::1]),"
    " ro(int32[::1]), ro(uint8[::1]), ro(int64[::1]), ro(int64[::1]), ro(int64[::1]),"
    " ro(int64[::1]), ro(int64[::1]), ro(int64[::1]), ro(uint8[::1]))",
    interpret_below=SMALL,
)
def _divide(
    g0: Int64,
    g1: Int64,
    l0: Int64,
    l1: Int64,
    previous: Int64,
    thread: Int32,
    traits: UInt8,
    wait_first: Int64,
    wait_start: Int64,
    wait_reach: Int64,
    busy_first: Int64,
    busy_start: Int64,
    busy_end: Int64,
    busy_cause: UInt8,
) -> tuple[Int32, Int64, Int64, UInt8, UInt8, Int32]:
    """`divide` in two passes: count, then fill."""
    times, codes = np.empty((2, 0), np.int64), np.empty((2, 0), np.uint8)
    of = np.empty((2, 0), np.int32)
    base = np.empty((4, 4), np.int64)
    g, call = np.empty(2, np.int64), np.empty(2, np.int64)
    for fill in (False, True):
        n = 0
        for i in range(g0.size):
            if not traits[i] & KNOWN or traits[i] & REPLAY:
                whole = _INTERNAL if traits[i] & KNOWN else _UNKNOWN
                n = _put(times, codes, of, n, fill, g0[i], g1[i], whole, _HOST, i, -1)
                continue
            own = thread[i]
            wait = _last_at(wait_start, wait_first[own], wait_first[own + 1], g0[i])
            if wait < wait_first[own] or wait_reach[wait] <= g0[i]:
                wait = -1
            g[0], g[1], call[0], call[1] = g0[i], g1[i], l0[i], l1[i]
            until = wait_reach[wait] if wait >= 0 else BEFORE_ALL
            k = _bases(base, g, call, previous[i], traits[i], wait, until)
            low, high = busy_first[own], busy_first[own + 1]
            first = max(_last_at(busy_start, low, high, g0[i]), low)
            for b in range(k):
                since, to, what, place = base[b, 0], base[b, 1], base[b, 2], base[b, 3]
                other = first if place != _AFTER else high
                while other < high and busy_start[other] < to:
                    is_os = busy_cause[other] == _BLOCKED
                    if busy_end[other] > since and not (is_os and (place != _HOST or wait >= 0)):
                        n = _put(
                            *(times, codes, of, n, fill, since, busy_start[other]),
                            *(what, place, i, wait),
                        )
                        start, end = max(since, busy_start[other]), min(to, busy_end[other])
                        n = _put(
                            *(times, codes, of, n, fill, start, end),
                            *(busy_cause[other], place, i, other),
                        )
                        since = max(since, end)
                    other += 1
                n = _put(times, codes, of, n, fill, since, to, what, place, i, wait)
        if not fill:
            times, codes = np.empty((2, n), np.int64), np.empty((2, n), np.uint8)
            of = np.empty((2, n), np.int32)
    return of[0].copy(), times[0].copy(), times[1].copy(), codes[0].copy(), codes[1].copy(), (
        of[1].copy()
    )
