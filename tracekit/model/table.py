"""Columns with units, tables of columns, and the check of a frame against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import pandas as pd
    from polars._typing import PolarsDataType

__all__ = ["Column", "Table", "TableError"]


class TableError(AssertionError):
    """A frame does not have the columns that its table states: a bug, never a user's fault."""


@dataclass(frozen=True)
class Column:
    """One column of a frame.

    Attributes:
        name: snake_case, ending in its unit where it has one (``_ns``, ``_bytes``, ``_frac``).
        dtype: Polars dtype.
        unit: Unit for people ("ns", "bytes", "1" for shares, "" for names and ids).
        doc: One sentence.
        required: For input tables, whether a reader must supply it; others become all-null.
    """

    name: str
    dtype: PolarsDataType
    unit: str = ""
    doc: str = ""
    required: bool = False


@dataclass(frozen=True)
class Table:
    """A named list of columns.

    Attributes:
        name: Name in the catalog or in an analysis' result.
        columns: Columns in order.
        doc: What one row is.
    """

    name: str
    columns: tuple[Column, ...]
    doc: str = ""

    @cached_property
    def schema(self) -> pl.Schema:
        """Names and dtypes as a Polars schema."""
        return pl.Schema({c.name: c.dtype for c in self.columns})

    def empty(self) -> pl.DataFrame:
        """Return a frame of this table without rows."""
        return pl.DataFrame(schema=self.schema)

    def column(self, name: str) -> Column:
        """Return the column of a name.

        Raises:
            KeyError: There is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def select(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return this table's columns of `frame`, which must have them all, in order and cast.

        Views use it on what they computed: a column that they forgot is a bug, not unknown data,
        so that it must not become null as in `conform`.

        Raises:
            polars.exceptions.ColumnNotFoundError: `frame` lacks a column.
        """
        return frame.select(self.schema.names()).cast(self.schema)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return `frame` with exactly this table's columns and dtypes, absent ones all null."""
        if frame.schema == self.schema:
            return frame
        have = set(frame.columns)
        return frame.select(
            (pl.col(c.name) if c.name in have else pl.lit(None)).cast(c.dtype).alias(c.name)
            for c in self.columns
        )

    def check(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return `frame` unchanged.

        Raises:
            TableError: Columns, their order or dtypes differ from the table's.
        """
        want, got = list(self.schema.items()), list(frame.schema.items())
        if want != got:
            message = f"table {self.name}: expected {want}, got {got}"
            raise TableError(message)
        return frame

    def to_pandas(self, frame: pl.DataFrame) -> pd.DataFrame:
        """Return a frame of this table as a pandas frame; units and docs are in its ``attrs``.

        Args:
            frame: Has the table's columns, or some of them.
        """
        from tracekit.model.pandas_frames import to_pandas

        units = {c.name: c.unit for c in self.columns if c.unit and c.name in frame.columns}
        docs = {c.name: c.doc for c in self.columns if c.doc and c.name in frame.columns}
        return to_pandas(frame, {"units": units, "docs": docs})

    def columns_with_unit(self, units: Sequence[str]) -> tuple[Column, ...]:
        """Return the columns whose unit is one of `units`."""
        return tuple(c for c in self.columns if c.unit in units)
