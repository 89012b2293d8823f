"""Rows of few kinds, put in order of their kind: counted and moved, never compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import compiled

__all__ = ["by_kind", "ordered"]

Int64: TypeAlias = NDArray[np.int64]
_ROWS_PER_STEP = 10
"""NumPy sorts small kinds by counting, too."""


def by_kind(
    kinds: NDArray[np.uint32], times: Int64, values: Int64, n_kinds: int
) -> tuple[Int64, Int64, Int64]:
    """Sort pairs of a time and a value by kind and time.

    Args:
        kinds: uint32[n], below `n_kinds`.
        times: int64[n], ns; usually ascending within each kind already, which makes it cheap.
        values: int64[n].
        n_kinds: Number of kinds.

    Returns:
        ``(count, times, values)``: int64[n_kinds], pairs of each kind, and int64[n] twice. Pairs
        that agree in kind and time keep their order.
    """
    count: Int64 = np.bincount(kinds, minlength=n_kinds).astype(np.int64)
    if not sweeps.worth(kinds.size // _ROWS_PER_STEP):
        order = _ordered(kinds, times, count)
        return count, times[order], values[order]
    moved, carried = np.empty_like(times), np.empty_like(values)
    next_place = np.cumsum(count) - count
    if not move(kinds, times, values, next_place, moved, carried):
        order = np.lexsort((times, kinds))
        np.take(times, order, out=moved)
        np.take(values, order, out=carried)
    return count, moved, carried


def ordered(kinds: NDArray[np.uint32], keys: Sequence[Int64]) -> Int64 | None:
    """Order rows by kind and then by keys.

    Args:
        kinds: uint32[n], few distinct ones.
        keys: int64[n] each, the first one counting most; they usually ascend within each kind
            already, which makes it cheap.

    Returns:
        int64[n], rows in order, or None where they are in order already. Rows that agree in all
        keep their order.
    """
    if not _falls(kinds, keys):
        return None
    small = kinds.astype(np.min_scalar_type(int(kinds.max())))
    order = np.argsort(small, kind="stable")
    if _falls(kinds[order], [key[order] for key in keys]):
        by: list[NDArray[Any]] = [*reversed(keys), kinds]
        order = np.lexsort(by)
    return order


def _falls(kinds: NDArray[np.uint32], keys: Sequence[Int64]) -> bool:
    """Whether any row comes before the one that stands before it."""
    falls, tied = kinds[1:] < kinds[:-1], kinds[1:] == kinds[:-1]
    for key in keys:
        falls |= tied & (key[1:] < key[:-1])
        tied &= key[1:] == key[:-1]
    return bool(falls.any())


def _ordered(kinds: NDArray[np.uint32], times: Int64, count: Int64) -> Int64:
    order = np.argsort(kinds.astype(np.min_scalar_type(count.size)), kind="stable")
    falls = times[order[1:]] < times[order[:-1]]
    between = np.cumsum(count)
    falls[between[(between > 0) & (between < times.size)] - 1] = False
    return np.lexsort((times, kinds)) if falls.any() else order


@compiled(
    "boolean(ro(uint32[::1]), ro(int64[::1]), ro(int64[::1]), int64[::1], int64[::1], int64[::1])"
)
def move(
    kinds: NDArray[np.uint32],
    times: Int64,
    values: Int64,
    next_place: Int64,
    moved: Int64,
    carried: Int64,
) -> bool:
    """Move pairs to where those of their kind begin, in the order in which they come.

    Args:
        kinds: uint32[n].
        times: int64[n].
        values: int64[n].
        next_place: int64[kinds]: where the next pair of each kind goes; advanced.
        moved: int64[n], receives the times.
        carried: int64[n], receives the values.

    Returns:
        Whether the times of each kind came in ascending order; the result is useless otherwise.
    """
    last = np.full(next_place.size, np.iinfo(np.int64).min)
    ascending = True
    for i in range(kinds.size):
        kind = kinds[i]
        place = next_place[kind]
        moved[place], carried[place] = times[i], values[i]
        ascending &= last[kind] <= times[i]
        last[kind] = times[i]
        next_place[kind] = place + 1
    return ascending
