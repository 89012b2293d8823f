"""Columns worked out from few distinct values: looked up in a small table instead of joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = ["Coded", "coded", "looked_up"]

DIRECT_SPAN = 256
"""Largest range of values that is numbered without looking for the distinct ones."""

NONE = -1
"""Stands for null on the way."""

Coded: TypeAlias = "tuple[list[int | None], NDArray[np.uint32] | int]"
"""Possible values of a column, and the place of each row's value among them: uint32[n], or one
for all."""


def coded(column: pl.Series) -> Coded:
    """Number the values of an integer column.

    Args:
        column: Integers and nulls.

    Returns:
        The values that there can be, null among them if there are any, and their places.
    """
    low, high = column.min(), column.max()
    if not isinstance(low, int) or not isinstance(high, int):
        return [None], 0
    has_null = column.null_count() > 0
    if high == low and not has_null:
        return [low], 0
    if high - low < DIRECT_SPAN:
        wide = column.cast(pl.Int64) if has_null else column
        places = np.empty(len(column), np.uint32)
        np.subtract(wide.fill_null(high + 1).to_numpy(), low, out=places, casting="unsafe")
        return [*range(low, high + 1), *([None] if has_null else [])], places
    values = column.drop_nulls().unique().sort()
    found = np.searchsorted(values.to_numpy(), column.fill_null(low).to_numpy()).astype(np.uint32)
    if not has_null:
        return list(values), found
    found[column.is_null().to_numpy()] = len(values)
    return [*values, None], found


def looked_up(
    name: str,
    of: Sequence[pl.Series],
    value: Callable[..., int | None],
    dtype: PolarsDataType = pl.Int16,
) -> pl.Series:
    """Work out a column from others of few distinct values.

    Args:
        name: Name of the result.
        of: Columns of the same height, of 32-bit or 64-bit integers.
        value: Result for one value (or None) of each of them, 0 or more; None is null.
        dtype: Dtype of the result: Int16 or Int32.

    Returns:
        A column of that dtype.
    """
    height = len(of[0])
    parts = [coded(column) for column in of]
    shape = tuple(len(values) for values, _ in parts)
    table = np.empty(shape, np.int16 if dtype == pl.Int16 else np.int32)
    for place in np.ndindex(*shape):
        found = value(*(values[i] for (values, _), i in zip(parts, place, strict=True)))
        table[place] = NONE if found is None else found
    for axis, (values, _) in enumerate(parts):
        first = table.take([0], axis)
        if len(values) > 1 and (table == first).all():
            # Nothing depends on this column.
            table, parts[axis] = first, ([None], 0)
    places: NDArray[np.uint32] | int = 0
    for size, (_, part) in zip(table.shape, parts, strict=True):
        if isinstance(part, int):
            continue
        if not isinstance(places, int):
            part += places * np.uint32(size)
        places = part
    if isinstance(places, int):
        only = None if table.item() == NONE else int(table.item())
        return pl.repeat(only, height, dtype=dtype, eager=True).alias(name)
    column = pl.Series(name, table.ravel()).gather(pl.Series(places))
    if not (table == NONE).any():
        return column
    return pl.select(pl.when(column != NONE).then(column).alias(name)).to_series()
