"""Idle gaps of a device: maximal intervals in which no row is active."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.jit import SMALL, compiled

__all__ = ["Gaps", "before_in_queue", "gaps"]

Int64: TypeAlias = NDArray[np.int64]
UInt32: TypeAlias = NDArray[np.uint32]


class Gaps(NamedTuple):
    """Maximal intervals between rows in which none is active.

    Attributes:
        start: int64[k], ns, ascending.
        end: int64[k], ns.
        before: int64[k], row with the latest end before the gap.
        after: int64[k], row that starts when the gap ends; of several, the one of smallest `tie`.
    """

    start: Int64
    end: Int64
    before: Int64
    after: Int64


def gaps(start: Int64, end: Int64, tie: UInt32) -> Gaps:
    """Return the gaps between rows, between the first start and the last end.

    Args:
        start: int64[n], ns, ascending.
        end: int64[n], ns; rows with ``end <= start`` are never active.
        tie: uint32[n], decides which of the rows that start at once ends a gap.
    """
    s, e = (np.ascontiguousarray(c, np.int64) for c in (start, end))
    return Gaps(*_gaps(s, e, np.ascontiguousarray(tie, np.uint32)))


@compiled()
def _first_of(s: Int64, e: Int64, tie: UInt32, row: int) -> int:
    """Of the rows from `row` on that start with it, the one of smallest `tie`."""
    best, other = row, row + 1
    while other < s.size and s[other] == s[row]:
        if e[other] > s[other] and tie[other] < tie[best]:
            best = other
        other += 1
    return best


@compiled(
    "Tuple((int64[::1], int64[::1], int64[::1], int64[::1]))"
    "(ro(int64[::1]), ro(int64[::1]), ro(uint32[::1]))",
    interpret_below=SMALL,
)
def _gaps(s: Int64, e: Int64, tie: UInt32) -> tuple[Int64, Int64, Int64, Int64]:
    """`gaps` in two passes: count, then fill."""
    start, end = np.empty(0, np.int64), np.empty(0, np.int64)
    before, after = np.empty(0, np.int64), np.empty(0, np.int64)
    for fill in (False, True):
        n, last = 0, -1
        for i in range(s.size):
            if e[i] <= s[i]:
                continue
            if last >= 0 and s[i] > e[last]:
                if fill:
                    start[n], end[n] = e[last], s[i]
                    before[n], after[n] = last, _first_of(s, e, tie, i)
                n += 1
            if last < 0 or e[i] > e[last]:
                last = i
        if not fill:
            start, end = np.empty(n, np.int64), np.empty(n, np.int64)
            before, after = np.empty(n, np.int64), np.empty(n, np.int64)
    return start, end, before, after


def before_in_queue(queue: UInt32, n_queues: int, rows: UInt32) -> Int64:
    """Find the row before each of some rows in its queue.

    Args:
        queue: uint32[n], below `n_queues`.
        n_queues: Number of queues.
        rows: uint32[k], ascending.

    Returns:
        int64[k], -1 for the first row of a queue.
    """
    return _before(np.ascontiguousarray(queue), n_queues, np.ascontiguousarray(rows))


@compiled("int64[::1](ro(uint32[::1]), int64, ro(uint32[::1]))", interpret_below=SMALL)
def _before(queue: UInt32, n_queues: int, rows: UInt32) -> Int64:
    last, found = np.full(n_queues, -1, np.int64), np.full(rows.size, -1, np.int64)
    k = 0
    for i in range(queue.size):
        while k < rows.size and rows[k] == i:
            found[k] = last[queue[i]]
            k += 1
        last[queue[i]] = i
    return found
