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
_Keys: TypeAlias = tuple[ArrayLike, ArrayLike, ArrayLike]
_KEYS = "ro(uint32[::1]), ro(int32[::1]), ro(int64[::1])"

# A table may take this many cells for a row of b before sorting is the cheaper way.
_CELLS_PER_ROW = 8
_FREE_CELLS = 1 << 16


def match(keys_a: _Keys, keys_b: _Keys) -> Int32:
    """For each row of a, the first row of b with the same key.

    Args:
        keys_a: ``(place, process, id)``: uint32[n], where a row comes from (a queue, a thread);
            int32[places], the process of each place; int64[n], the id. A negative process or id
            matches nothing.
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


def _contiguous(keys: _Keys) -> tuple[NDArray[np.uint32], Int32, Int64]:
    place, process, ids = keys
    return (
        np.ascontiguousarray(place, np.uint32),
        np.ascontiguousarray(process, np.int32),
        np.ascontiguousarray(ids, np.int64),
    )


def _match_sorted(code_a: Int32, id_a: Int64, code_b: Int32, id_b: Int64) -> Int32:
    ids = distinct(id_b)
    rank_a = codes(ids, id_a)
    known = (code_a >= 0) & (rank_a >= 0) & (id_a >= 0)
    key_b = code_b.astype(np.int64) * ids.size + np.searchsorted(ids, id_b)
    key_a = code_a.astype(np.int64) * ids.size + rank_a
    order = np.argsort(key_b, kind="stable")
    place = np.minimum(np.searchsorted(key_b[order], key_a), order.size - 1)
    row = order[place]
    return np.where(known & (key_b[row] == key_a), row, -1).astype(np.int32)


@compiled(f"Tuple((int64[::1], int64[::1]))({_KEYS}, int64)", interpret_below=SMALL)
def _bounds(
    place: NDArray[np.uint32], process: Int32, ids: Int64, n_processes: int
) -> tuple[Int64, Int64]:
    """Smallest and largest id that is not negative, by process; an empty range without any."""
    low = np.full(n_processes, np.iinfo(np.int64).max, np.int64)
    high = np.full(n_processes, -1, np.int64)
    for i in range(ids.size):
        if ids[i] >= 0:
            own = process[place[i]]
            low[own] = min(low[own], ids[i])
            high[own] = max(high[own], ids[i])
    return low, high


@compiled(f"int32[::1]({_KEYS}, {_KEYS}, ro(int64[::1]), ro(int64[::1]))", interpret_below=SMALL)
def _match_dense(
    place_a: NDArray[np.uint32],
    of_a: Int32,
    id_a: Int64,
    place_b: NDArray[np.uint32],
    of_b: Int32,
    id_b: Int64,
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
        if id_b[row] >= 0:
            own = of_b[place_b[row]]
            table[base[own] + id_b[row] - low[own]] = row
    found = np.full(id_a.size, -1, np.int32)
    for row in range(id_a.size):
        own = of_a[place_a[row]]
        if 0 <= own < low.size and id_a[row] >= low[own] and id_a[row] <= high[own]:
            found[row] = table[base[own] + id_a[row] - low[own]]
    return found


def renumber(number: NDArray[np.uint32], cells: int) -> Int64:
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


def _renumber_gathered(number: NDArray[np.uint32], cells: int) -> Int64:
    seen = np.zeros(cells, np.bool_)
    seen[number] = True
    found = np.flatnonzero(seen)
    new = np.zeros(cells, np.uint32)
    new[found] = np.arange(found.size, dtype=np.uint32)
    number[:] = new[number]
    return found


@compiled("int64[::1](uint32[::1], int64)")
def _renumber_swept(number: NDArray[np.uint32], cells: int) -> Int64:
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
