"""Number the distinct rows of a few columns: what joins and sorts by several keys come down to."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["row_numbers"]

_CELLS_PER_ROW = 4
_FREE_CELLS = 1 << 16
"""A table of all possible keys may be so large; beyond it rows are joined."""


def row_numbers(keys: pl.DataFrame) -> tuple[NDArray[np.uint32], pl.DataFrame]:
    """Number equal rows alike.

    Ids of processes, streams and names lie close together, so that a row packs into one small
    integer and a table of all such integers tells its number.

    Args:
        keys: Integer columns, nulls allowed.

    Returns:
        ``(number, distinct)``: uint32[n], and the distinct rows in ascending order, nulls last;
        a number is a row of `distinct`.
    """
    ends = [(keys[c].min(), keys[c].max()) for c in keys.columns]
    low = [0 if a is None else int(str(a)) for a, _ in ends]
    size = [2 if b is None else int(str(b)) - a + 2 for a, (_, b) in zip(low, ends, strict=True)]
    cells = 1
    for n in size:
        cells *= n
    if cells > _CELLS_PER_ROW * keys.height + _FREE_CELLS:
        return _joined(keys)
    strides = [*itertools.accumulate(reversed(size[1:]), lambda a, b: a * b, initial=1)][::-1]
    packed = pl.lit(0, pl.Int64)
    for name, first, n, stride in zip(keys.columns, low, size, strides, strict=True):
        packed += (pl.col(name).cast(pl.Int64) - first).fill_null(n - 1) * stride
    code = keys.select(packed.cast(pl.UInt32)).to_series().to_numpy()
    if code.size == 1 < keys.height:
        code = np.broadcast_to(code, keys.height)
    seen = np.zeros(cells, np.bool_)
    seen[code] = True
    found = np.flatnonzero(seen)
    number = np.zeros(cells, np.uint32)
    number[found] = np.arange(found.size, dtype=np.uint32)
    columns = []
    for name, first, n, stride in zip(keys.columns, low, size, strides, strict=True):
        value = found // stride % n
        column = pl.Series(name, value + first).set(pl.Series(value == n - 1), None)
        columns.append(column.cast(keys.schema[name]))
    return number[code], pl.DataFrame(columns)


def _joined(keys: pl.DataFrame) -> tuple[NDArray[np.uint32], pl.DataFrame]:
    distinct = keys.unique().sort(keys.columns, nulls_last=True)
    numbered = distinct.with_row_index("_number")
    joined = keys.join(
        numbered, on=keys.columns, how="left", nulls_equal=True, maintain_order="left"
    )
    return joined["_number"].to_numpy(), distinct
