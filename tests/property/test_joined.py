"""Integer columns joined by SQLite against the same columns row by row."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tracekit.io.source import Cells, Part, RowFilter
from tracekit.io.sqlite import source
from tracekit.io.sqlite.source import SqliteSource

INTEGERS = st.one_of(
    st.integers(-3, 300),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([-(1 << 31), (1 << 31) - 1, (1 << 32) - 1, 1 << 32, -(1 << 63)]),
)
ODD = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from(["", "12", " 12 ", "+12", "1,2", "x", "1.0", "\u0661", "9" * 30, "1\x002"]),
    st.sampled_from([b"", b"12", b"1,2", b"\xff\xfe"]),
)
DTYPES = [pl.Int8, pl.Int32, pl.Int64, pl.UInt16, pl.UInt32, pl.UInt64]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[object, ...]], dict[str, Cells]]:
    """Rows of three columns, and how to read them."""
    cells = st.one_of(INTEGERS, st.none())
    if draw(st.booleans()):
        cells = st.one_of(cells, ODD)
    column = st.one_of(st.just(st.none()), st.just(INTEGERS), st.just(cells))
    of = [draw(column) for _ in range(3)]
    rows = draw(st.lists(st.tuples(*of), max_size=20))
    read: dict[str, Cells] = {name: draw(st.sampled_from(DTYPES)) for name in "abc"}
    if draw(st.booleans()):
        read["part"] = Part("a", pl.UInt16, right=8, bits=0xFF, add=3)
    return rows, read


@given(tables(), st.booleans(), st.sampled_from(["UTF-8", "UTF-16le", "UTF-16be"]))
@example(([("1,2", 1, 1), ("", 1, 1)], {"a": pl.Int64}), False, "UTF-8")
@example(([("", 1, 1), (None, 1, 1)], {"a": pl.Int64}), False, "UTF-8")
@example(([(b"5\x00", 1, 1)], {"a": pl.Int64}), False, "UTF-16le")
@settings(deadline=None, max_examples=200)
def test_joined_columns_equal_those_read_row_by_row(
    case: tuple[list[tuple[object, ...]], dict[str, Cells]], filtered: bool, encoding: str
) -> None:
    rows, read = case
    where = [RowFilter("b", low=0)] if filtered else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA encoding='{encoding}'")
            connection.execute("CREATE TABLE t (a, b INTEGER, c)")
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        connection.close()
        with SqliteSource(path) as plain, SqliteSource(path) as quick:
            slow = pl.concat(plain.batches("t", read, where, rows=7))
            before, source.FEWEST_ROWS = source.FEWEST_ROWS, 0
            try:
                fast = quick.read("t", read, where)
            finally:
                source.FEWEST_ROWS = before
            assert_frame_equal(fast, slow)
            assert quick.notes == plain.notes


@given(st.lists(st.tuples(INTEGERS, st.none()), min_size=1, max_size=30))
@settings(deadline=None, max_examples=50)
def test_plain_integers_and_nulls_are_taken_apart_without_going_row_by_row(
    rows: list[tuple[int, None]],
) -> None:
    connection = sqlite3.connect(":memory:")
    connection.text_factory = bytes
    connection.execute("CREATE TABLE t (a, b)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    answer = connection.execute(f"SELECT {', '.join(source.expressions(['a', 'b']))} FROM t")
    frame = source.to_frame(answer.fetchone(), {"a": pl.Int64, "b": pl.Int32})
    connection.close()
    assert frame is not None
    assert frame.rows() == rows
    assert frame.dtypes == [pl.Int64, pl.Int32]
