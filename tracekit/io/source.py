"""Where tables come from: the interface that every reader of a report satisfies.

A source gives raw tables: the column names of the export, the dtypes that the caller asks for,
rows in storage order. What the columns *mean* is decided one level up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias

from tracekit.errors import UsageError

if TYPE_CHECKING:
    import polars as pl
    from polars._typing import PolarsDataType

__all__ = ["BATCH_ROWS", "Cells", "Part", "Reader", "RowFilter", "TableSource", "open_source"]

Reader = Literal["auto", "pages", "sqlite"]

BATCH_ROWS = 1_000_000
"""Rows of a table that `TableSource.batches` aims at per frame."""

LARGE_ROWS = 200_000
"""Rows from which decoding pages pays: below, compiling it once costs more than SQLite takes."""


@dataclass(frozen=True)
class RowFilter:
    """One condition on an integer column; a read takes the conjunction of several.

    Only cells that hold an integer can match: NULL, reals and text never do. Without any bound
    the filter keeps every row whose cell holds an integer.

    Attributes:
        column: Column of the table, which need not be among the columns that are read.
        isin: Values to keep; excludes `low` and `high`. An empty tuple keeps nothing.
        low: Smallest value to keep; None is unbounded.
        high: Smallest value *not* to keep (half-open); None is unbounded.
    """

    column: str
    isin: tuple[int, ...] | None = None
    low: int | None = None
    high: int | None = None

    def __post_init__(self) -> None:
        """Refuse a filter that says two things at once.

        Raises:
            ValueError: `isin` is given together with `low` or `high`.
        """
        if self.isin is not None and (self.low is not None or self.high is not None):
            msg = f"filter on {self.column}: give isin, or low and high, not both"
            raise ValueError(msg)


@dataclass(frozen=True)
class Part:
    """A column of a result: ``((cell >> right) & bits) + add`` of an integer column.

    Cells that hold no 64-bit integer become null, as they do when the column is read as Int64.

    Attributes:
        column: Column of the table.
        dtype: Integer dtype of the result, whose values all have to fit.
        right: Bits to shift to the right, with the sign.
        bits: Bits to keep.
        add: What to add.
    """

    column: str
    dtype: PolarsDataType
    right: int = 0
    bits: int = -1
    add: int = 0


Cells: TypeAlias = "PolarsDataType | Part"
"""What a column of a result is made of: the column of the table with its name, or a part."""


class TableSource(Protocol):
    """A report opened for reading; never written, not even a journal next to it.

    Attributes:
        path: The file that was opened.
        notes: What a reader of the results should know, in order of appearance (a reader that
            could not be used, values that could not be converted); grows while tables are read.
    """

    path: Path
    notes: list[str]

    def tables(self) -> dict[str, dict[str, str]]:
        """Return every table as ``{table: {column: declared type}}``; no views.

        Raises:
            InputError: The schema cannot be read.
        """
        ...

    def count(self, table: str) -> int:
        """Return the number of rows of a table.

        Raises:
            KeyError: There is no such table.
            InputError: The table cannot be read.
        """
        ...

    def read(
        self, table: str, columns: Mapping[str, Cells], where: Sequence[RowFilter] = ()
    ) -> pl.DataFrame:
        """Return the chosen columns of the chosen rows, in storage order.

        Args:
            table: Name of the table, as spelt in the report.
            columns: Column -> dtype of the result: an integer dtype, Float32, Float64, String or
                Binary. The dtypes are final, whatever the cells hold; a cell that cannot be
                converted without loss becomes null and is counted in `notes`. Or any name -> a
                `Part`.
            where: Conditions that a row must all satisfy.

        Returns:
            One column per entry of `columns`, in that order.

        Raises:
            KeyError: The table, or a column of `columns` or `where`, does not exist.
            ValueError: `columns` is empty or asks for a dtype that is not in the list above.
            InputError: The table cannot be read.
        """
        ...

    def batches(
        self,
        table: str,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter] = (),
        rows: int = BATCH_ROWS,
    ) -> Iterator[pl.DataFrame]:
        """Yield what `read` returns in pieces, so that a table need not fit in memory.

        Args:
            table: As in `read`.
            columns: As in `read`.
            where: As in `read`.
            rows: Rows of the table, before `where`, that a frame comes from, roughly.

        Yields:
            Frames in storage order; at least one, which may be empty.

        Raises:
            KeyError: As in `read`.
            ValueError: As in `read`.
            InputError: As in `read`.
        """
        ...

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        ...

    def __enter__(self) -> Self:
        """Return the source itself."""
        ...

    def __exit__(self, *exc: object) -> None:
        """Close the source."""
        ...


def open_source(path: Path | str, reader: Reader = "auto", *, salvage: bool = False) -> TableSource:
    """Open an SQLite report for reading.

    Args:
        path: The report.
        reader: ``sqlite`` reads everything through SQLite. ``pages`` decodes the file's pages
            itself, with SQLite for whatever is unusual. ``auto`` decodes the large tables only.
        salvage: Open a truncated file too; the tables that are whole can then be read.

    Returns:
        The source, to be used as a context manager.

    Raises:
        NotAReportError: The path is no SQLite file.
        DamagedReportError: The file is truncated (unless `salvage`) or damaged.
        UsageError: The reader's name is unknown.
    """
    if reader not in ("auto", "pages", "sqlite"):
        msg = f"unknown reader {reader!r}"
        raise UsageError(msg, hint="use auto, pages or sqlite")
    from tracekit.io.sqlite.source import SqliteSource

    plain = SqliteSource(Path(path), salvage=salvage)
    if reader == "sqlite":
        return plain
    from tracekit.io.pages import PagesSource

    return PagesSource(path, plain, least_rows=LARGE_ROWS if reader == "auto" else 0)
