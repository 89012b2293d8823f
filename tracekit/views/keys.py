"""Number the distinct rows of a few columns: what joins and sorts by several keys come down to."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.numerics import numbering

__all__ = ["counted", "looked_up", "row_numbers"]

_CELLS_PER_ROW = 4
_FREE_CELLS = 1 << 16
"""A table of all possible keys may be so large; beyond it rows are joined."""
_WORTH_NUMBERING = 20_000
_PIECE = 1 << 16
_ALL_BITS = (1 << 32) - 1


def row_numbers(keys: pl.DataFrame) -> tuple[NDArray[np.uint32], pl.DataFrame]:
    """Number equal rows alike.

    Ids of processes, streams and names lie close together, so that a row packs into one small
    integer and a table of all such integers gives its number.

    Args:
        keys: Integer columns, nulls allowed.

    Returns:
        ``(number, distinct)``: uint32[n], and the distinct rows in ascending order, nulls last;
        a number is a row of `distinct`.
    """
    fields = [_Field(keys[name]) for name in keys.columns]
    cells = math.prod(field.size for field in fields)
    if cells > _CELLS_PER_ROW * keys.height + _FREE_CELLS:
        return _joined(keys)
    sizes = (field.size for field in reversed(fields[1:]))
    strides = [*itertools.accumulate(sizes, operator.mul, initial=1)][::-1]
    number = np.zeros(keys.height, np.uint32)
    for field, stride in zip(fields, strides, strict=True):
        field.add_to(number, stride)
    found = numbering.renumber(number, cells)
    columns = [f.values(found // stride) for f, stride in zip(fields, strides, strict=True)]
    return number, pl.DataFrame(columns)


def looked_up(rows: pl.DataFrame, facts: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """Return the facts on each row: what a left join would add to rows of few distinct keys.

    Args:
        rows: Has the columns `on`, integers; a null matches nothing.
        facts: The same columns, no two rows alike, and others.
        on: Keys.

    Returns:
        The other columns of `facts`, one row a row of `rows`.
    """
    keys = rows.select(on)
    if keys.height < _WORTH_NUMBERING:
        return _joined_to(facts, keys)
    number, distinct = row_numbers(keys)
    return _joined_to(facts, distinct)[number]


def _joined_to(facts: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    return keys.join(facts, on=keys.columns, how="left", maintain_order="left").drop(keys.columns)


def counted(column: pl.Series) -> pl.DataFrame:
    """Count how often each value occurs.

    Args:
        column: Integers, nulls allowed.

    Returns:
        Frame of the column and len UInt32; in ascending order, nulls last.
    """
    name = column.name
    field = _Field(column)
    if field.size > _PIECE:
        return column.to_frame().group_by(name).len().sort(name, nulls_last=True)
    found = np.zeros(field.size, np.int64)
    for at in range(0, len(column), _PIECE):
        found += np.bincount(field.places(at), minlength=field.size)
    values = field.values(np.arange(field.size))
    return pl.DataFrame([values, pl.Series("len", found, pl.UInt32)]).filter(pl.col("len") > 0)


class _Field:
    """The values of a column, counted from its smallest; null comes last.

    Attributes:
        size: How many are possible.
    """

    def __init__(self, column: pl.Series) -> None:
        low, high = column.min(), column.max()
        self._column, self._low = column, 0 if low is None else int(str(low))
        known = 0 if high is None else int(str(high)) - self._low + 1
        self._null, self.size = known, known + (column.null_count() > 0)

    def add_to(self, packed: NDArray[np.uint32], stride: int) -> None:
        """Add each row's place times `stride`; by pieces that stay in the processor's cache."""
        if self.size == 1:
            return
        # What fits 32 bits in the end may be counted modulo 2**32 on the way.
        factor = np.uint32(stride)
        for at in range(0, packed.size, _PIECE):
            place = self.places(at)
            if stride != 1:
                place *= factor
            packed[at : at + _PIECE] += place

    def places(self, at: int) -> NDArray[np.uint32]:
        """Return where the values of the piece that begins at a row stand, modulo 2**32."""
        part = self._column[at : at + _PIECE]
        if part.null_count():
            part = part.cast(pl.Int64).fill_null(self._low + self._null)
        place = part.to_numpy().astype(np.uint32)
        place -= np.uint32(self._low & _ALL_BITS)
        return place

    def values(self, packed: NDArray[np.int64]) -> pl.Series:
        """Unpack rows of the distinct keys."""
        place = packed % self.size
        values = pl.Series(self._column.name, place + self._low)
        if self._null < self.size:
            values = values.set(pl.Series(place == self._null), None)
        return values.cast(self._column.dtype)


def _joined(keys: pl.DataFrame) -> tuple[NDArray[np.uint32], pl.DataFrame]:
    distinct = keys.unique().sort(keys.columns, nulls_last=True)
    numbered = distinct.with_row_index("_number")
    joined = keys.join(
        numbered, on=keys.columns, how="left", nulls_equal=True, maintain_order="left"
    )
    return joined["_number"].to_numpy(), distinct
