"""What to decode: a table's schema and a read, as the integer arrays that the kernels take.

The schema comes from SQLite, so no SQL is parsed here. What the kernels do not handle is refused
with `UnusualTableError`, and the table is then read through SQLite.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.io.pages import fields as f
from tracekit.io.source import Cells, Part, RowFilter
from tracekit.io.sqlite.convert import INTEGER_RANGES, raw
from tracekit.io.sqlite.source import INT64_MAX, INT64_MIN, SqliteSource, quoted

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = ["Plan", "UnusualTableError", "make_plan"]

BITMAP_SPAN = 4096
"""Largest range of a filter's values that becomes a table of flags instead of a search."""

EXACT_FLOAT = 1 << 53

_LITERAL = re.compile(r"[+-]?\d+")


class UnusualTableError(Exception):
    """The page reader does not handle this table; never leaves `tracekit.io.pages`."""


@dataclass(frozen=True)
class _Column:
    """A column of the schema, as SQLite reports it."""

    position: int
    declared: str
    default: str | None
    is_rowid: bool

    @property
    def is_real(self) -> bool:
        """Whether SQLite turns stored integers into reals when it reads the column."""
        kind = self.declared.upper()
        if any(word in kind for word in ("INT", "CHAR", "CLOB", "TEXT", "BLOB")):
            return False
        return any(word in kind for word in ("REAL", "FLOA", "DOUB"))


@dataclass
class Plan:
    """A read of one table.

    Attributes:
        stored: (column, dtype, slot) of each column of the result, in order.
        slots: int64[columns up to the last one needed]: the slot of each, or -1.
        slot_fields: int64[slots, PLAN_FIELDS]; see `fields`.
        filters: int64[filters, FILTER_FIELDS]; see `fields`.
        members: int64: sorted values and flags of the filters, one after another.
        key_bytes: Bytes of a record's header that decide its layout, usually.
        rowid: Name by which SQL can refer to the row id.
    """

    stored: list[tuple[str, PolarsDataType, int]]
    slots: NDArray[np.int64]
    slot_fields: NDArray[np.int64]
    filters: NDArray[np.int64]
    members: NDArray[np.int64]
    key_bytes: int
    rowid: str
    width: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Work out the bytes per row of every stored slot."""
        self.width = {slot: int(self.slot_fields[slot, f.WIDTH]) for _, _, slot in self.stored}

    @property
    def texts(self) -> int:
        """Number of stored columns of text or bytes."""
        return sum(dtype in (pl.String, pl.Binary) for _, dtype, _ in self.stored)

    @property
    def is_filtered(self) -> bool:
        """Whether rows may be left out."""
        return self.filters.size > 0


def make_plan(
    source: SqliteSource,
    table: str,
    columns: Mapping[str, Cells],
    where: Sequence[RowFilter],
) -> Plan:
    """Plan a read.

    Args:
        source: Gives the schema.
        table: The table; its columns are known to exist.
        columns: What the columns are.
        where: Conditions on integer columns.

    Returns:
        The plan.

    Raises:
        UnusualTableError: The kernels cannot do this.
    """
    schema = _schema(source, table)
    slot_of: dict[str, int] = {}
    rows: list[list[int]] = []
    stored: list[tuple[str, PolarsDataType, int]] = []
    for name, cells in columns.items():
        read, dtype = raw(name, cells)
        row = _slot(schema[read], dtype, stored=True)
        if isinstance(cells, Part):
            dtype = cells.dtype
            row[f.WIDTH] = _bytes(dtype)
            row[f.RIGHT], row[f.BITS], row[f.ADD] = cells.right, cells.bits, cells.add
        row[f.NEXT] = slot_of.get(read, -1)
        stored.append((name, dtype, len(rows)))
        slot_of[read] = len(rows)
        rows.append(row)
    for test in where:
        if test.column not in slot_of:
            slot_of[test.column] = len(rows)
            rows.append(_slot(schema[test.column], pl.Int64, stored=False))
        if rows[slot_of[test.column]][f.KIND] not in (f.INTEGER, f.ROWID):
            msg = f"{test.column} filters and is not read as integers"
            raise UnusualTableError(msg)
        if schema[test.column].is_real:
            msg = f"filter on the real column {test.column}"
            raise UnusualTableError(msg)
    inside = {name: schema[name] for name in slot_of if not schema[name].is_rowid}
    last = max((column.position for column in inside.values()), default=-1)
    slots = np.full(last + 1, -1, np.int64)
    for name, column in inside.items():
        slots[column.position] = slot_of[name]
    filters, members = _filters(where, slot_of)
    return Plan(
        stored=stored,
        slots=slots,
        slot_fields=np.array(rows, np.int64),
        filters=filters,
        members=members,
        key_bytes=_key_bytes(schema, last),
        rowid=_rowid_name(schema),
    )


def _schema(source: SqliteSource, table: str) -> dict[str, _Column]:
    info = source.rows(f"PRAGMA table_xinfo({quoted(table)})")
    if any(row[6] for row in info):
        # A virtual one is not stored, so that the positions of the others shift.
        msg = "generated columns"
        raise UnusualTableError(msg)
    keys = [row[0] for row in info if row[5]]
    # INTEGER PRIMARY KEY is the row id, unless SQLite keeps an index for the key ("DESC").
    indexes = source.rows(f"PRAGMA index_list({quoted(table)})")
    aliased = len(keys) == 1 and not any(row[3] == b"pk" for row in indexes)
    return {
        _text(row[1]): _Column(
            position=row[0],
            declared=_text(row[2]),
            default=None if row[4] is None else _text(row[4]),
            is_rowid=aliased and row[0] in keys and _text(row[2]).upper() == "INTEGER",
        )
        for row in info
    }


def _slot(column: _Column, dtype: PolarsDataType, *, stored: bool) -> list[int]:
    """The fields of a slot, the addresses still open."""
    low, high, default, state = 0, 0, 0, f.NULL
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        high = min(high, INT64_MAX)
        kind, width = f.INTEGER, _bytes(dtype)
    elif dtype in (pl.Float32, pl.Float64):
        kind, width = f.FLOAT, 8
    else:
        kind, width = (f.TEXT if dtype == pl.String else f.BINARY), f.TEXT_WIDTH
    if column.default is not None and column.default.upper() != "NULL":
        state = f.UNKNOWN
        if _LITERAL.fullmatch(column.default) and kind in (f.INTEGER, f.FLOAT):
            value = int(column.default)
            if abs(value) <= EXACT_FLOAT:
                default, state = value, f.AS_FLOAT if kind == f.FLOAT else f.VALUE
    if column.is_rowid:
        if kind != f.INTEGER:
            msg = "the row id is not read as integers"
            raise UnusualTableError(msg)
        kind = f.ROWID
    return [kind, width if stored else 0, low, high, default, state, 0, 0, 0, -1, 0, -1]


def _bytes(dtype: PolarsDataType) -> int:
    low, high = INTEGER_RANGES[dtype]
    return (high - low).bit_length() // 8


def _filters(
    where: Sequence[RowFilter], slot_of: Mapping[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The filters' fields with inclusive bounds, and what they look up."""
    rows, members = [], [np.empty(0, np.int64)]
    start = 0
    for test in where:
        low = INT64_MIN if test.low is None else test.low
        high = INT64_MAX if test.high is None else test.high - 1
        mode, found = f.BETWEEN, np.empty(0, np.int64)
        if test.isin is not None:
            inside = sorted({value for value in test.isin if INT64_MIN <= value <= INT64_MAX})
            low, high = (inside[0], inside[-1]) if inside else (1, 0)
            mode, found = f.SORTED, np.array(inside, np.int64)
            if inside and high - low < BITMAP_SPAN:
                mode, found = f.BITMAP, np.zeros(high - low + 1, np.int64)
                found[np.array(inside, np.int64) - low] = 1
        if low > INT64_MAX or high < INT64_MIN:
            low, high = 1, 0
        bounds = max(low, INT64_MIN), min(high, INT64_MAX)
        rows.append([slot_of[test.column], *bounds, mode, start, found.size])
        members.append(found)
        start += found.size
    return np.array(rows, np.int64).reshape(-1, f.FILTER_FIELDS), np.concatenate(members)


def _key_bytes(schema: Mapping[str, _Column], last: int) -> int:
    """One byte for the header's length and per column; long text takes a second one."""
    read = [column for column in schema.values() if column.position <= last]
    wide = sum("INT" not in column.declared.upper() for column in read)
    return min(1 + len(read) + wide, f.MOST_KEY_BYTES)


def _rowid_name(schema: Mapping[str, _Column]) -> str:
    taken = {name.lower() for name in schema}
    for name in ("rowid", "_rowid_", "oid"):
        if name not in taken:
            return name
    msg = "no name is left for the row id"
    raise UnusualTableError(msg)


def _text(raw: object) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw or "")
