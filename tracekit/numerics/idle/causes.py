"""Which cause each piece of an idle gap has, by what the launching thread was doing.

A gap is cut where the call that launched its next operation begins and ends: before that the host
had not requested the work, inside it the host was busy handing it over, after it the device had it.
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
_HOST = PLACES.index("host")
_CALL_PIECE, _AFTER_PIECE = 2, 3
"""Of the four pieces of a gap: host work up to the end of a wait, the rest of it, call, after."""
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
    """Disjoint intervals in which threads were blocked by something with a cause of its own.

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
        busy: When threads were blocked otherwise.

    Returns:
        The parts, those of one gap together, gaps in order. Before the launching call: what `busy`
        covers has its cause. Up to the end of a wait that had begun when the gap did, it is
        ``sync``; behind that ``sync`` too if the call comes at most `THINK_NS` after, else
        ``host_gap``. Without such a wait it is ``launch_rate`` if the thread's enqueuing call
        before ended at most `THINK_NS` earlier, else ``host_gap``. This is the gap's lead, which
        the call itself and up to `DISPATCH_NS` behind it share.
    """
    g0, g1 = (np.ascontiguousarray(c, np.int64) for c in (start, end))
    found = _divide(g0, g1, *launched, *waiting, *busy[:3], busy.cause)
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
    g0: int, g1: int, l0: int, l1: int, previous: int, traits: int, until: int
) -> tuple[tuple[int, int, int, int, int], tuple[int, int, int, int]]:
    """Borders and causes of a gap's pieces as if nothing was cut out of them.

    The pieces are: up to the end of a wait, the rest before the call, the call, and after it.
    """
    lead = _LATENCY
    if l0 > g0:
        if until > g0:
            lead = _SYNC if l0 - until <= THINK_NS else _HOST_GAP
        elif previous != BEFORE_ALL and l0 - previous <= THINK_NS:
            lead = _RATE
        else:
            lead = _HOST_GAP
    inside = lead
    if traits & GRAPH_LAUNCH:
        inside = _GRAPH
    elif traits & STAGED:
        inside = _STAGING
    host, call = min(max(l0, g0), g1), min(max(l1, g0), g1)
    if g1 - max(g0, l1) <= DISPATCH_NS and l1 > g0:
        after = lead
    elif traits & WAITED:
        after = _EVENT
    else:
        after = _DISPATCH if g1 - max(g0, l1) <= DISPATCH_NS else _LATE
    return (g0, min(max(until, g0), host), host, call, g1), (_SYNC, lead, inside, after)


@compiled()
def _room(g0: Int64, g1: Int64, thread: Int32, first: Int64, start: Int64) -> int:
    """At least as many parts as there can be."""
    n = 4 * g0.size
    if start.size:
        for i in range(g0.size):
            low, high = first[thread[i]], first[thread[i] + 1]
            k = max(_last_at(start, low, high, g0[i]), low)
            while k < high and start[k] < g1[i]:
                n += 2
                k += 1
    return n


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
    """`divide` in one pass; memory that is not written to is never taken."""
    room = _room(g0, g1, thread, busy_first, busy_start)
    gap, by = np.empty(room, np.int32), np.empty(room, np.int32)
    starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
    names, places = np.empty(room, np.uint8), np.empty(room, np.uint8)
    n = 0
    for i in range(g0.size):
        if not traits[i] & KNOWN or traits[i] & REPLAY:
            gap[n], starts[n], ends[n], by[n] = i, g0[i], g1[i], -1
            names[n], places[n] = _INTERNAL if traits[i] & KNOWN else _UNKNOWN, _HOST
            n += 1
            continue
        own = thread[i]
        wait = _last_at(wait_start, wait_first[own], wait_first[own + 1], g0[i])
        if wait < wait_first[own] or wait_reach[wait] <= g0[i]:
            wait = -1
        until = wait_reach[wait] if wait >= 0 else BEFORE_ALL
        edges, what = _bases(g0[i], g1[i], l0[i], l1[i], previous[i], traits[i], until)
        high = busy_first[own + 1]
        first = max(_last_at(busy_start, busy_first[own], high, g0[i]), busy_first[own])
        for b in range(4):
            since, to = edges[b], edges[b + 1]
            other = first if b < _AFTER_PIECE else high
            while since < to:
                # The next interval of the thread that counts here, or the end of the piece.
                while other < high and (
                    busy_end[other] <= since
                    or (busy_cause[other] == _BLOCKED and (b >= _CALL_PIECE or wait >= 0))
                ):
                    other += 1
                inside = other < high and busy_start[other] <= since
                stop = to
                if other < high:
                    stop = min(to, busy_end[other] if inside else busy_start[other])
                gap[n], starts[n], ends[n] = i, since, stop
                names[n] = busy_cause[other] if inside else what[b]
                by[n] = other if inside else wait
                places[n] = max(b - 1, _HOST)
                n += 1
                since = stop
    return gap[:n], starts[:n], ends[:n], names[:n], places[:n], by[:n]
