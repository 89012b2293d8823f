"""Match rows by a pair of keys: a device row with the call that launched it.

Correlation ids are counted from one in every process, so the key is (process, id), and within a
process the ids are nearly dense: a table addressed by id answers in one memory access a row.
Sparse ids fall back to sorting.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import SMALL, compiled
from tracekit.numerics.labels import codes, distinct

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


def renumber(number: UInt32, cells: int) -> Int64:
    """Number what occurs from 0, in ascending order.

    Args:
        number: uint32[n], below `cells`; replaced by the new numbers.
        cells: How many values are possible: no more than a table may have rows.

    Returns:
        int64[k], the values that occur, ascending.
    """
    if sweeps.worth(number.size):
        return _renumber_swept(number, cells)
    return _renumber_gathered(number, cells)


def _renumber_gathered(number: UInt32, cells: int) -> Int64:
    seen = np.zeros(cells, np.bool_)
    seen[number] = True
    found = np.flatnonzero(seen)
    new = np.zeros(cells, np.uint32)
    new[found] = np.arange(found.size, dtype=np.uint32)
    number[:] = new[number]
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
