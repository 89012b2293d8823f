"""SQLite cells to typed columns: one rule for what a cell becomes under each dtype.

SQLite types cells, not columns. Integers, reals and numeric text convert to a numeric dtype if
that loses nothing (an integer may round to a float); anything converts to String or Binary. What
does not convert becomes null and is counted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from tracekit.io.source import Part

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

    from tracekit.io.source import Cells, RowFilter

__all__ = [
    "INTEGER_RANGES",
    "REPLACED",
    "check_columns",
    "note_losses",
    "part_of",
    "raw",
    "to_series",
]

INTEGER_RANGES: dict[PolarsDataType, tuple[int, int]] = {
    pl.Int8: (-(1 << 7), (1 << 7) - 1),
    pl.Int16: (-(1 << 15), (1 << 15) - 1),
    pl.Int32: (-(1 << 31), (1 << 31) - 1),
    pl.Int64: (-(1 << 63), (1 << 63) - 1),
    pl.UInt8: (0, (1 << 8) - 1),
    pl.UInt16: (0, (1 << 16) - 1),
    pl.UInt32: (0, (1 << 32) - 1),
    pl.UInt64: (0, (1 << 64) - 1),
}
"""Smallest and largest value of every integer dtype that a source can give."""

REPLACED = "\x00replaced"
"""Suffix of the counter of text that is not UTF-8."""

_NUMBER = re.compile(rb"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_INTEGER = re.compile(rb"\s*[+-]?\d+\s*")


def raw(name: str, cells: Cells) -> tuple[str, PolarsDataType]:
    """Return the column of the table that a column of a result comes from, and its dtype.

    Args:
        name: Name in the result.
        cells: What it is made of.
    """
    return (cells.column, pl.Int64) if isinstance(cells, Part) else (name, cells)


def part_of(column: pl.Series, cells: Cells) -> pl.Series:
    """Make a column of a result of what was read.

    Args:
        column: The cells in the dtype that `raw` gives.
        cells: What the column is made of.

    Returns:
        The column as it was unless it is a part.
    """
    if not isinstance(cells, Part):
        return column
    shifted = column // (1 << cells.right) if cells.right else column
    return ((shifted & cells.bits) + cells.add).cast(cells.dtype)


def check_columns(
    known: Mapping[str, str], columns: Mapping[str, Cells], where: Sequence[RowFilter]
) -> None:
    """Refuse a read that the table cannot answer.

    Args:
        known: Columns of the table.
        columns: Columns requested, with their dtypes.
        where: Conditions of the read.

    Raises:
        KeyError: A column does not exist.
        ValueError: No column is requested, or with a dtype that no source gives.
    """
    if not columns:
        msg = "a read needs at least one column"
        raise ValueError(msg)
    read = dict(raw(name, cells) for name, cells in columns.items())
    for column in [*read, *(test.column for test in where)]:
        if column not in known:
            msg = f"no column {column}; there are {', '.join(known)}"
            raise KeyError(msg)
    allowed = (*INTEGER_RANGES, pl.Float32, pl.Float64, pl.String, pl.Binary)
    for column, dtype in read.items():
        if dtype not in allowed:
            msg = f"column {column}: a report cannot be read as {dtype}"
            raise ValueError(msg)


def note_losses(
    notes: list[str],
    table: str,
    columns: Mapping[str, Cells],
    lost: Mapping[str, int],
) -> None:
    """Append a note for every column that lost something.

    Args:
        notes: Receives the notes; one that is there already is not repeated.
        table: Name of the table.
        columns: Column -> dtype.
        lost: Cells that became null, by name; texts with replaced bytes, by name + `REPLACED`.
    """
    for name, cells in columns.items():
        column, dtype = raw(name, cells)
        found = []
        if lost.get(name):
            found.append(f"{lost[name]} cells are not {dtype} and were read as null")
        if lost.get(name + REPLACED):
            found.append(f"{lost[name + REPLACED]} texts are not UTF-8; bytes were replaced")
        for what in found:
            note = f"{table}.{column}: {what}"
            if note not in notes:
                notes.append(note)


def to_series(
    name: str, cells: list[object], dtype: PolarsDataType, lost: Counter[str]
) -> pl.Series:
    """Make a column of cells as sqlite3 gives them, with text as bytes.

    Args:
        name: Name of the column.
        cells: None, int, float or bytes each.
        dtype: Dtype of the result.
        lost: Counts what could not be converted; see `note_losses`.

    Returns:
        A column of exactly that dtype.
    """
    wide: PolarsDataType = pl.Binary if dtype == pl.String else dtype
    wide = pl.Float64 if dtype == pl.Float32 else wide
    try:
        return pl.Series(name, cells, dtype=wide, strict=True).cast(dtype)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        # Mixed cells: one at a time.
        pass
    convert = _converter(name, dtype, lost)
    values = [None if cell is None else convert(cell) for cell in cells]
    lost[name] += values.count(None) - cells.count(None)
    wide = pl.String if dtype == pl.String else wide
    return pl.Series(name, values, dtype=wide, strict=True).cast(dtype)


def _converter(
    name: str, dtype: PolarsDataType, lost: Counter[str]
) -> Callable[[object], object | None]:
    if dtype == pl.String:
        return lambda cell: _to_text(cell, name, lost)
    if dtype == pl.Binary:
        return lambda cell: cell if isinstance(cell, bytes) else str(cell).encode()
    if dtype in (pl.Float32, pl.Float64):
        return _to_float
    low, high = INTEGER_RANGES[dtype]
    return lambda cell: _to_integer(cell, low, high)


def _to_text(cell: object, name: str, lost: Counter[str]) -> str:
    if not isinstance(cell, bytes):
        return str(cell)
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        lost[name + REPLACED] += 1
        return cell.decode("utf-8", "replace")


def _to_float(cell: object) -> float | None:
    if isinstance(cell, bytes):
        value = float(cell) if _NUMBER.fullmatch(cell) else math.nan
        return value if math.isfinite(value) else None
    return float(cell) if isinstance(cell, (int, float)) else None


def _to_integer(cell: object, low: int, high: int) -> int | None:
    value: object = cell
    if isinstance(cell, bytes):
        value = int(cell) if _INTEGER.fullmatch(cell) and len(cell) < 32 else _to_float(cell)
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and low <= value <= high else None
