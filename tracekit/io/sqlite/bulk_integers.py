"""Integer columns through SQLite as one text each: no cell becomes an object of Python.

Rows as tuples cost a microsecond each, most of it for objects that live for a moment. SQLite can
join the cells of a column into one text by itself, and Polars takes such a text apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from tracekit.io.sqlite.convert import INTEGER_RANGES, part_of, raw

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

    from tracekit.io.source import Cells

__all__ = ["FEWEST_ROWS", "MOST_ROWS", "expressions", "fits", "to_frame"]

FEWEST_ROWS, MOST_ROWS = 2_000, 1_000_000
"""Tables for which this pays, and whose texts (20 bytes a cell at most) are no burden."""


def fits(columns: Mapping[str, Cells]) -> bool:
    """Return whether only integers are asked for.

    Args:
        columns: What the columns are made of.
    """
    return all(raw(name, cells)[1] in INTEGER_RANGES for name, cells in columns.items())


def expressions(quoted: Sequence[str]) -> list[str]:
    """Return what to select for the chosen rows, in one row of the answer.

    Args:
        quoted: The columns of the table, quoted for SQL.
    """
    joined = [(f"count({c})", f"group_concat(ifnull({c}, ''))") for c in quoted]
    return ["count(*)", *(part for pair in joined for part in pair)]


def to_frame(answer: Sequence[object], columns: Mapping[str, Cells]) -> pl.DataFrame | None:
    """Take an answer apart.

    Args:
        answer: What `expressions` gave.
        columns: What the columns of the result are made of.

    Returns:
        The columns; None where a cell is no integer that its column can hold.
    """
    height, made = answer[0], []
    for (name, cells), known, text in zip(columns.items(), answer[1::2], answer[2::2], strict=True):
        _, dtype = raw(name, cells)
        if not known:
            column = pl.repeat(None, int(str(height)), dtype=dtype, eager=True).alias(name)
        else:
            found = _numbers(name, text, dtype)
            if found is None or (len(found), found.count()) != (height, known):
                return None
            column = found
        made.append(part_of(column, cells))
    return pl.DataFrame(made)


def _numbers(name: str, text: object, dtype: PolarsDataType) -> pl.Series | None:
    if not isinstance(text, bytes) or not text.isascii():
        return None
    cells = pl.Series(name, [text.decode()]).str.split(",").explode()
    try:
        return cells.set(cells == "", None).cast(dtype, strict=True)
    except pl.exceptions.PolarsError:
        return None
