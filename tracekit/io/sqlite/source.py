"""Tables of a report through SQLite itself: slower than decoding pages, and always right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from tracekit.errors import DamagedReportError
from tracekit.io.source import BATCH_ROWS, Cells, RowFilter
from tracekit.io.sqlite.convert import (
    INTEGER_RANGES,
    check_columns,
    note_losses,
    part_of,
    raw,
    to_series,
)
from tracekit.io.sqlite.database import companions, connect, sqlite_errors

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

    from tracekit.io.source import Cells

__all__ = ["FEWEST_ROWS", "MOST_ROWS", "SqliteSource", "expressions", "fits", "quoted", "to_frame"]

FEWEST_ROWS, MOST_ROWS = 2_000, 1_000_000
"""Tables for which this pays, and whose texts (20 bytes a cell at most) are no burden."""


def fits(columns: Mapping[str, Cells]) -> bool:
    """Return whether only integers are requested.

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


BLOCK_ROWS = 50_000
"""Rows that are Python objects at a time."""

# A pointer (2 bytes), two lengths and a header of one byte each, one of content at least.
SMALLEST_ROW_BYTES = 5

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class SqliteSource:
    """A `TableSource` over the standard library's sqlite3.

    Attributes:
        path: The file.
        notes: See `TableSource`.
    """

    def __init__(self, path: Path | str, *, salvage: bool = False) -> None:
        """Open a file; see `tracekit.io.sqlite.database.connect`.

        Args:
            path: The file.
            salvage: Open a truncated file too.

        Raises:
            InputError: The file cannot be read.
            NotAReportError: It is not an SQLite file.
            DamagedReportError: It is truncated (unless `salvage`) or its schema is damaged.
        """
        self.path = Path(path)
        self.notes: list[str] = []
        with ExitStack() as stack:
            self._connection = connect(self.path, self.notes, stack, salvage=salvage)
            self._tables = self._read_schema()
            # In another encoding the bytes of a blob can read as digits.
            self._is_utf8 = self.rows("PRAGMA encoding")[0][0] == b"UTF-8"
            self._closing = stack.pop_all()

    def tables(self) -> dict[str, dict[str, str]]:
        """Return every table as ``{table: {column: declared type}}``; no views."""
        return {table: dict(columns) for table, columns in self._tables.items()}

    def count(self, table: str) -> int:
        """Return the number of rows; see `TableSource.count`."""
        self._known(table)
        return int(self.rows(f"SELECT count(*) FROM {quoted(table)}")[0][0])

    def read(
        self, table: str, columns: Mapping[str, Cells], where: Sequence[RowFilter] = ()
    ) -> pl.DataFrame:
        """Return the chosen columns of the chosen rows; see `TableSource.read`."""
        return pl.concat(self.batches(table, columns, where), rechunk=True)

    def batches(
        self,
        table: str,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter] = (),
        rows: int = BATCH_ROWS,
    ) -> Iterator[pl.DataFrame]:
        """Yield what `read` returns in pieces; see `TableSource.batches`."""
        check_columns(self._known(table), columns, where)
        return self.scan(table, columns, where, rows)

    def scan(
        self,
        table: str,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter] = (),
        rows: int = BATCH_ROWS,
        condition: str = "",
    ) -> Iterator[pl.DataFrame]:
        """Yield frames as `batches` does, of columns that are known to exist.

        Args:
            table: The table.
            columns: What the columns are.
            where: Conditions on integer columns.
            rows: Rows of a frame.
            condition: A further condition in SQL, or nothing.

        Yields:
            Frames in storage order; at least one.

        Raises:
            DamagedReportError: SQLite fails.
        """
        whole = self._joined(table, columns, where, rows, condition)
        if whole is not None:
            yield whole
            return
        lost: Counter[str] = Counter()
        pending: list[pl.DataFrame] = []
        held, first = 0, True
        query = _select(table, _read(table, columns), where, condition)
        for block in self._blocks(query, max(1, min(rows, BLOCK_ROWS))):
            pending.append(_frame(block, columns, lost))
            held += len(block)
            if held >= rows:
                yield pl.concat(pending, rechunk=True)
                pending, held, first = [], 0, False
        note_losses(self.notes, table, columns, lost)
        if first or pending:
            yield pl.concat(pending or [_frame([], columns, lost)], rechunk=True)

    def sample(
        self,
        table: str,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter],
        condition: str,
    ) -> pl.DataFrame:
        """Return a few rows, for a comparison: nothing is added to the notes.

        Args:
            table: The table.
            columns: What the columns are.
            where: Conditions on integer columns.
            condition: Which rows, in SQL.

        Returns:
            The rows, in storage order.

        Raises:
            DamagedReportError: SQLite fails.
        """
        found = self.rows(_select(table, _read(table, columns), where, condition))
        return _frame(found, columns, Counter())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query with a small answer.

        Raises:
            DamagedReportError: SQLite fails.
        """
        with sqlite_errors(self.path):
            rows: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return rows

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        self._closing.close()

    def __enter__(self) -> Self:
        """Return the source itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the source."""
        self.close()

    def _known(self, table: str) -> dict[str, str]:
        if table not in self._tables:
            msg = f"{self.path.name} has no table {table}"
            raise KeyError(msg)
        return self._tables[table]

    def _read_schema(self) -> dict[str, dict[str, str]]:
        query = "SELECT name FROM sqlite_master WHERE type='table' AND rootpage>0 ORDER BY rowid"
        tables = [_text(name) for (name,) in self.rows(query)]
        # Column 6 is 1 for what only virtual tables have; generated columns (2, 3) can be read.
        return {
            table: {
                _text(column[1]): _text(column[2])
                for column in self.rows(f"PRAGMA table_xinfo({quoted(table)})")
                if column[6] != 1
            }
            for table in tables
            if not table.startswith("sqlite_")
        }

    def _joined(
        self,
        table: str,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter],
        rows: int,
        condition: str,
    ) -> pl.DataFrame | None:
        """Read a table of integers at once; None where row by row is better, or the only way."""
        if rows < MOST_ROWS or not fits(columns) or not self._is_utf8:
            return None
        some = f"SELECT 1 FROM {quoted(table)} NOT INDEXED LIMIT {MOST_ROWS + 1}"
        try:
            height = self.rows(f"SELECT count(*) FROM ({some})")[0][0]
            most = min(MOST_ROWS, self._most_rows())
            if not FEWEST_ROWS <= height <= most:
                return None
            wanted = expressions(_read(table, columns))
            return to_frame(self.rows(_select(table, wanted, where, condition))[0], columns)
        except DamagedReportError:
            return None  # Reading row by row shows how far the table is whole.

    def _most_rows(self) -> int:
        """More rows than the file has room for."""
        files = [self.path, *companions(self.path)]
        return sum(file.stat().st_size for file in files) // SMALLEST_ROW_BYTES + 1

    def _blocks(self, query: str, rows: int) -> Iterator[list[tuple[object, ...]]]:
        """Yield the rows of a query, some at a time."""
        # A damaged tree can list the same pages over and over.
        budget = self._most_rows()
        with ExitStack() as stack:
            with sqlite_errors(self.path):
                cursor = self._connection.execute(query)
            stack.callback(cursor.close)
            while True:
                with sqlite_errors(self.path):
                    block = cursor.fetchmany(rows)
                if not block:
                    return
                budget -= len(block)
                if budget < 0:
                    msg = "a table lists pages repeatedly"
                    raise DamagedReportError(msg, path=self.path)
                yield block


def _read(table: str, columns: Mapping[str, Cells]) -> list[str]:
    """The columns of the table that are read, in SQL."""
    return [f"{quoted(table)}.{quoted(raw(name, cells)[0])}" for name, cells in columns.items()]


def _select(table: str, wanted: Sequence[str], where: Sequence[RowFilter], condition: str) -> str:
    tests = [*(_condition(table, test) for test in where), *([condition] if condition else [])]
    # An index would change the order of the rows, and can disagree with a damaged table.
    query = f"SELECT {', '.join(wanted)} FROM {quoted(table)} NOT INDEXED"
    return query + (f" WHERE {' AND '.join(tests)}" if tests else "")


def _frame(
    block: Sequence[tuple[object, ...]],
    columns: Mapping[str, Cells],
    lost: Counter[str],
) -> pl.DataFrame:
    found: Iterable[Sequence[object]] = zip(*block, strict=True) if block else [()] * len(columns)
    made = []
    for (name, cells), values in zip(columns.items(), found, strict=True):
        _, dtype = raw(name, cells)
        made.append(part_of(to_series(name, list(values), dtype, lost), cells))
    return pl.DataFrame(made)


def _condition(table: str, test: RowFilter) -> str:
    """The SQL of a filter; the values are integers, so they can stand in the text."""
    column = f"{quoted(table)}.{quoted(test.column)}"
    parts = [f"typeof({column})='integer'"]
    if test.isin is not None:
        inside = sorted({value for value in test.isin if INT64_MIN <= value <= INT64_MAX})
        parts.append(f"{column} IN ({','.join(map(str, inside))})")
    if test.low is not None and test.low > INT64_MIN:
        parts.append(f"{column} >= {test.low}" if test.low <= INT64_MAX else "0")
    if test.high is not None and test.high <= INT64_MAX:
        parts.append(f"{column} < {test.high}" if test.high > INT64_MIN else "0")
    return "(" + " AND ".join(parts) + ")"


def _text(raw: object) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw or "")
