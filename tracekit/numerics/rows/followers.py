"""What comes next in a queue: rows of many queues, in time order, taken queue by queue."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import compiled

__all__ = ["followed"]

Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]
UInt32: TypeAlias = NDArray[np.uint32]
Flags: TypeAlias = NDArray[np.bool_]


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
    if sweeps.worth(queue.size):
        return _followed_swept(queue, kind, is_wanted, is_link, n_queues)
    rows = np.flatnonzero(is_link.take(kind))
    rows = rows[np.argsort(queue[rows], kind="stable")]
    place = np.flatnonzero(is_wanted.take(kind[rows]))
    at = rows[place]
    then = np.append(rows, -1)[place + 1]
    return at, np.where(queue[then] == queue[at], then, -1)


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
