"""Dense codes for sparse labels such as process and thread ids."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.jit import compiled

Int64: TypeAlias = NDArray[np.int64]

_WORTH_COMPILING = 200_000
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


def numbered(values: Int64) -> tuple[Int64, Int64]:
    """Number distinct values in ascending order.

    Args:
        values: int64[n], few distinct ones, in any order.

    Returns:
        ``(number, first)``: int64[n], 0 for the smallest value, and int64[k], the first row that
        has each number.
    """
    if values.size < _WORTH_COMPILING:
        _, first, number = np.unique(values, return_index=True, return_inverse=True)
        return number.astype(np.int64, copy=False), first.astype(np.int64, copy=False)
    return _numbered_swept(values)


def _numbered_swept(values: Int64) -> tuple[Int64, Int64]:
    seen, first = _first_seen(np.ascontiguousarray(values))
    order = np.argsort(values[first])
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[seen], first[order]


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


def _without_repeats(values: Int64) -> Int64:
    starts = np.ones(values.size, np.bool_)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return values[starts]
