"""Match rows by a pair of keys: a device row with the call that launched it.

Correlation ids are counted from one in every process, so the key is (process, id), and within a
process the ids are nearly dense: a table addressed by id answers in one memory access a row.
Sparse ids fall back to sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics.jit import SMALL, accelerated, compiled

__all__ = ["by_kind", "ordered"]

Int64: TypeAlias = NDArray[np.int64]
Int32: TypeAlias = NDArray[np.int32]
UInt32: TypeAlias = NDArray[np.uint32]
_Keys: TypeAlias = tuple[ArrayLike, ArrayLike, ArrayLike]
_KEYS = "ro(uint32[::1]), ro(int32[::1]), ro(uint32[::1])"

NO_ID = (1 << 32) - 1
"""Stands for an id that is not known."""

# A table may take this many cells for a row of b before sorting is the cheaper way.
_CELLS_PER_ROW = 8
_FREE_CELLS = 1 << 16


def match(keys_a: _Keys, keys_b: _Keys) -> Int32:
    """For each row of a, the first row of b with the same key.

    Args:
        keys_a: ``(place, process, id)``: uint32[n], where a row comes from (a queue, a thread);
            int32[places], the process of each place; uint32[n], the id. A negative process and
            `NO_ID` match nothing.
        keys_b: The same of b, in any order; its processes are numbered from 0.

    Returns:
        int32[n], row of b, or -1.
    """
    place_a, of_a, id_a = _contiguous(keys_a)
    place_b, of_b, id_b = _contiguous(keys_b)
    if id_b.size == 0:
        return np.full(id_a.size, -1, np.int32)
    low, high = _bounds(place_b, of_b, id_b, int(of_b.max()) + 1)
    width = np.maximum(high.astype(np.float64) - low + 1, 0)
    if width.sum() <= _CELLS_PER_ROW * id_b.size + _FREE_CELLS:
        return _match_dense(place_a, of_a, id_a, place_b, of_b, id_b, low, high)
    return _match_sorted(of_a.take(place_a), id_a, of_b.take(place_b), id_b)


def _contiguous(keys: _Keys) -> tuple[UInt32, Int32, UInt32]:
    place, process, ids = keys
    return (
        np.ascontiguousarray(place, np.uint32),
        np.ascontiguousarray(process, np.int32),
        np.ascontiguousarray(ids, np.uint32),
    )


def _match_sorted(code_a: Int32, id_a: UInt32, code_b: Int32, id_b: UInt32) -> Int32:
    ids = distinct(id_b.astype(np.int64))
    rank_a = codes(ids, id_a.astype(np.int64))
    known = (code_a >= 0) & (rank_a >= 0) & (id_a != NO_ID)
    key_b = code_b.astype(np.int64) * ids.size + np.searchsorted(ids, id_b)
    key_a = code_a.astype(np.int64) * ids.size + rank_a
    order = np.argsort(key_b, kind="stable")
    place = np.minimum(np.searchsorted(key_b[order], key_a), order.size - 1)
    row = order[place]
    return np.where(known & (key_b[row] == key_a), row, -1).astype(np.int32)


@compiled(f"Tuple((int64[::1], int64[::1]))({_KEYS}, int64)", interpret_below=SMALL)
def _bounds(place: UInt32, process: Int32, ids: UInt32, n_processes: int) -> tuple[Int64, Int64]:
    """Smallest and largest id, by process; an empty range without any."""
    low = np.full(n_processes, np.iinfo(np.int64).max, np.int64)
    high = np.full(n_processes, -1, np.int64)
    for i in range(ids.size):
        if ids[i] != NO_ID:
            own, found = process[place[i]], np.int64(ids[i])
            low[own] = min(low[own], found)
            high[own] = max(high[own], found)
    return low, high


@compiled(f"int32[::1]({_KEYS}, {_KEYS}, ro(int64[::1]), ro(int64[::1]))", interpret_below=SMALL)
def _match_dense(
    place_a: UInt32,
    of_a: Int32,
    id_a: UInt32,
    place_b: UInt32,
    of_b: Int32,
    id_b: UInt32,
    low: Int64,
    high: Int64,
) -> Int32:
    base = np.zeros(low.size, np.int64)
    cells = 0
    for process in range(low.size):
        base[process] = cells
        if high[process] >= 0:
            cells += high[process] - low[process] + 1
    table = np.full(cells, -1, np.int32)
    for row in range(id_b.size - 1, -1, -1):
        if id_b[row] != NO_ID:
            own = of_b[place_b[row]]
            table[base[own] + np.int64(id_b[row]) - low[own]] = row
    found = np.full(id_a.size, -1, np.int32)
    for row in range(id_a.size):
        own, wanted = of_a[place_a[row]], np.int64(id_a[row])
        # No id is as large as what stands for none.
        if 0 <= own < low.size and wanted >= low[own] and wanted <= high[own]:
            found[row] = table[base[own] + wanted - low[own]]
    return found


@compiled("int64[::1](uint32[::1], int64)")
def _renumber_swept(number: UInt32, cells: int) -> Int64:
    new = np.zeros(cells, np.uint32)
    for i in range(number.size):
        new[number[i]] = 1
    found = np.empty(cells, np.int64)
    n = 0
    for value in range(cells):
        if new[value]:
            found[n], new[value] = value, n
            n += 1
    for i in range(number.size):
        number[i] = new[number[i]]
    return found[:n].copy()


@accelerated(_renumber_swept)
def renumber(number: UInt32, cells: int) -> Int64:
    """Number what occurs from 0, in ascending order.

    Args:
        number: uint32[n], below `cells`; replaced by the new numbers.
        cells: How many values are possible: no more than a table may have rows.

    Returns:
        int64[k], the values that occur, ascending.
    """
    seen = np.zeros(cells, np.bool_)
    seen[number] = True
    found = np.flatnonzero(seen)
    new = np.zeros(cells, np.uint32)
    new[found] = np.arange(found.size, dtype=np.uint32)
    number[:] = new[number]
    return found


_SPREAD = 0x9E3779B97F4A7C1
"""Odd: spreads neighbouring values over a hash table."""


def distinct(values: Int64) -> Int64:
    """The sorted distinct values; 3 to 10 times faster than ``numpy.unique`` on trace columns.

    Args:
        values: int64[n]; equal values mostly come in runs, as rows of one process do.

    Returns:
        int64[k], ascending.
    """
    return _without_repeats(np.sort(_without_repeats(values)))


def codes(labels: Int64, values: Int64) -> Int64:
    """Position of each value among the labels.

    Args:
        labels: int64[k], ascending and distinct.
        values: int64[n].

    Returns:
        int64[n], -1 where the value is no label.
    """
    if labels.size == 0:
        return np.full(values.size, -1, np.int64)
    found = np.searchsorted(labels, values)
    found[found == labels.size] = 0
    found[labels[found] != values] = -1
    return found.astype(np.int64, copy=False)


@compiled("Tuple((int64[::1], int64[::1]))(ro(int64[::1]))")
def _first_seen(values: Int64) -> tuple[Int64, Int64]:
    """Number distinct values by their first row; a hash table that doubles when half full."""
    number, first = np.empty(values.size, np.int64), np.empty(64, np.int64)
    n, table = 0, np.full(256, -1, np.int64)
    for i in range(values.size):
        if i and values[i] == values[i - 1]:
            number[i] = number[i - 1]
            continue
        at = (values[i] * _SPREAD) & (table.size - 1)
        while table[at] >= 0 and values[first[table[at]]] != values[i]:
            at = (at + 1) & (table.size - 1)
        if table[at] < 0:
            if n == first.size:
                first = np.append(first, np.empty(n, np.int64))
            first[n], table[at] = i, n
            n += 1
        number[i] = table[at]
        if 2 * n > table.size:
            table = np.full(4 * table.size, -1, np.int64)
            for k in range(n):
                at = (values[first[k]] * _SPREAD) & (table.size - 1)
                while table[at] >= 0:
                    at = (at + 1) & (table.size - 1)
                table[at] = k
    return number, first[:n].copy()


def _numbered_swept(values: Int64) -> tuple[Int64, Int64]:
    seen, first = _first_seen(np.ascontiguousarray(values))
    order = np.argsort(values[first])
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[seen], first[order]


@accelerated(_numbered_swept)
def numbered(values: Int64) -> tuple[Int64, Int64]:
    """Number distinct values in ascending order.

    Args:
        values: int64[n], few distinct ones, in any order.

    Returns:
        ``(number, first)``: int64[n], 0 for the smallest value, and int64[k], the first row that
        has each number.
    """
    _, first, number = np.unique(values, return_index=True, return_inverse=True)
    return number.astype(np.int64, copy=False), first.astype(np.int64, copy=False)


def _without_repeats(values: Int64) -> Int64:
    starts = np.ones(values.size, np.bool_)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return values[starts]


def _by_kind_moved(
    kinds: NDArray[np.uint32], times: Int64, values: Int64, n_kinds: int
) -> tuple[Int64, Int64, Int64]:
    count: Int64 = np.bincount(kinds, minlength=n_kinds).astype(np.int64)
    moved, carried = np.empty_like(times), np.empty_like(values)
    next_place = np.cumsum(count) - count
    if not move(kinds, times, values, next_place, moved, carried):
        order = np.lexsort((times, kinds))
        np.take(times, order, out=moved)
        np.take(values, order, out=carried)
    return count, moved, carried


@accelerated(_by_kind_moved, gain=0.1)
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
    order = _ordered(kinds, times, count)
    return count, times[order], values[order]


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
