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

# A table may take this many cells for a row of b before sorting is the cheaper way.
_CELLS_PER_ROW = 8
_FREE_CELLS = 1 << 16


def match(keys_a: tuple[ArrayLike, ArrayLike], keys_b: tuple[ArrayLike, ArrayLike]) -> Int32:
    """For each row of a, the first row of b with the same key.

    Args:
        keys_a: ``(process, id)``, int32[n] and int64[n]. A negative process or id matches nothing.
        keys_b: ``(process, id)``, int32[m] and int64[m], in any order; processes are numbered
            from 0.

    Returns:
        int32[n], row of b, or -1.
    """
    process_a, process_b = (np.ascontiguousarray(key[0], np.int32) for key in (keys_a, keys_b))
    id_a, id_b = (np.ascontiguousarray(key[1], np.int64) for key in (keys_a, keys_b))
    if id_b.size == 0:
        return np.full(id_a.size, -1, np.int32)
    low, high = _bounds(process_b, id_b, int(process_b.max()) + 1)
    width = np.maximum(high.astype(np.float64) - low + 1, 0)
    if width.sum() <= _CELLS_PER_ROW * id_b.size + _FREE_CELLS:
        return _match_dense(process_a, id_a, process_b, id_b, low, high)
    return _match_sorted(process_a, id_a, process_b, id_b)


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


@compiled(
    "Tuple((int64[::1], int64[::1]))(ro(int32[::1]), ro(int64[::1]), int64)",
    interpret_below=SMALL,
)
def _bounds(code: Int32, ids: Int64, n_codes: int) -> tuple[Int64, Int64]:
    """Smallest and largest id that is not negative, by code; an empty range without any."""
    low = np.full(n_codes, np.iinfo(np.int64).max, np.int64)
    high = np.full(n_codes, -1, np.int64)
    for i in range(ids.size):
        if ids[i] >= 0:
            low[code[i]] = min(low[code[i]], ids[i])
            high[code[i]] = max(high[code[i]], ids[i])
    return low, high


@compiled(
    "int32[::1](" + "ro(int32[::1]), ro(int64[::1]), " * 2 + "ro(int64[::1]), ro(int64[::1]))",
    interpret_below=SMALL,
)
def _match_dense(
    code_a: Int32, id_a: Int64, code_b: Int32, id_b: Int64, low: Int64, high: Int64
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
            table[base[code_b[row]] + id_b[row] - low[code_b[row]]] = row
    found = np.full(id_a.size, -1, np.int32)
    for row in range(id_a.size):
        code = code_a[row]
        if 0 <= code < low.size and id_a[row] >= low[code] and id_a[row] <= high[code]:
            found[row] = table[base[code] + id_a[row] - low[code]]
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
