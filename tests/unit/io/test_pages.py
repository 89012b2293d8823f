"""The page reader: what it decodes itself, what it leaves to SQLite, and how it notices."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tracekit.errors import DamagedReportError
from tracekit.io.pages import PagesSource, frames, reader
from tracekit.io.pages.plan import UnusualTableError
from tracekit.io.source import RowFilter, open_source
from tracekit.io.sqlite.source import SqliteSource

chunks = pytest.importorskip("tracekit.io.pages.chunks", reason="the page reader needs Numba")
COLUMNS = {"a": pl.Int64, "s": pl.String}


def make(path: Path, ddl: str = "CREATE TABLE t(a INTEGER, s TEXT)", rows: int = 3000) -> Path:
    con = sqlite3.connect(path)
    con.execute(ddl)
    con.executemany("INSERT INTO t(a, s) VALUES(?, ?)", ((i, f"text {i % 7}") for i in range(rows)))
    con.commit()
    con.close()
    return path


def alter(path: Path, *statements: str) -> None:
    con = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        con.execute(statement)
    con.close()


def open_pages(path: Path, **options: int) -> PagesSource:
    return PagesSource(path, SqliteSource(path), **options)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * 4096)


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("CREATE TABLE t(a INTEGER PRIMARY KEY, s TEXT) WITHOUT ROWID", "not a whole table B-tree"),
        ("CREATE TABLE t(a INTEGER, g AS (a + 1), s TEXT)", "generated columns"),
        ("CREATE TABLE t(a INTEGER, rowid, oid, _rowid_, s TEXT)", "no name is left"),
    ],
)
@pytest.mark.parametrize("kind", ["auto", "pages"])
def test_tables_that_are_left_to_sqlite(tmp_path, ddl, reason, kind):
    with open_source(make(tmp_path / "r.sqlite", ddl), kind) as source:
        frame = source.read("t", COLUMNS)
        assert frame["a"].to_list() == list(range(3000))
        assert [reason in note for note in source.notes] == [True]
        assert source.notes[0].startswith("t: read through SQLite (")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE t SET a = 2.5 WHERE a = 1500", "cells of another type"),
        ("UPDATE t SET s = CAST(x'ff' AS TEXT) WHERE a = 1500", "not UTF-8"),
        ("ALTER TABLE t ADD COLUMN later TEXT DEFAULT 'x'", "cells of another type"),
    ],
)
def test_cells_that_are_left_to_sqlite(tmp_path, statement, reason):
    path = make(tmp_path / "r.sqlite")
    alter(path, statement)
    with open_pages(path) as source, SqliteSource(path) as slow:
        columns = {name: pl.Int64 if name == "a" else pl.String for name in slow.tables()["t"]}
        expected = slow.read("t", columns)
        assert source.read("t", columns).equals(expected, null_equal=True)
        assert any(reason in note for note in source.notes)


def test_utf16_is_left_to_sqlite(tmp_path):
    path = tmp_path / "r.sqlite"
    alter(path, "PRAGMA encoding='UTF-16le'", "CREATE TABLE t(a INTEGER, s TEXT)")
    alter(path, "INSERT INTO t VALUES(1, 'größe')")
    with open_pages(path) as source:
        assert source.read("t", COLUMNS).rows() == [(1, "größe")]
        assert "not UTF-8" in source.notes[0]


def test_without_numba_everything_goes_through_sqlite(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tracekit.io.pages.chunks", None)
    with open_pages(make(tmp_path / "r.sqlite")) as source:
        assert source.read("t", COLUMNS).height == 3000
        assert "Numba cannot be imported" in source.notes[0]


def test_small_tables_do_not_import_numba(tmp_path):
    path = make(tmp_path / "r.sqlite")
    code = (
        "import sys; from tracekit.io.source import open_source; import polars as pl\n"
        f"s = open_source({str(path)!r}); print(s.read('t', {{'a': pl.Int64}}).height)\n"
        "assert not {'numba', 'pandas', 'pyarrow'} & set(sys.modules)"
    )
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("3000\n", "")


def test_auto_decodes_large_tables_only(tmp_path, monkeypatch):
    monkeypatch.setattr("tracekit.io.source.LARGE_ROWS", 3002)
    path = make(tmp_path / "r.sqlite")
    decoded = []
    monkeypatch.setattr(PagesSource, "_decoded", lambda self, table, *rest: decoded.append(table))
    with open_source(path) as source:
        assert source.read("t", COLUMNS).height == 3000
        alter(path, "INSERT INTO t(rowid, a) VALUES(200000, 1)")
    with open_source(path) as source:  # a large id makes no large table
        assert source.read("t", COLUMNS).height == 3001
        alter(path, "INSERT INTO t(rowid, a) VALUES(200001, 1)")
    with open_source(path) as source:
        source.batches("t", COLUMNS)
    assert decoded == ["t"]


def test_a_table_beside_a_large_one_is_decoded_sooner(tmp_path, monkeypatch):
    monkeypatch.setattr("tracekit.io.source.LARGE_ROWS", 3000)
    path = make(tmp_path / "r.sqlite")
    alter(path, "CREATE TABLE beside AS SELECT * FROM t WHERE a < 200")
    alter(path, "CREATE TABLE small AS SELECT * FROM t WHERE a < 100")
    monkeypatch.setattr(SqliteSource, "batches", None)
    with open_source(path) as source:
        assert source.read("beside", COLUMNS).height == 200
        with pytest.raises(TypeError):
            source.read("small", COLUMNS)
    alter(path, "DELETE FROM t WHERE a > 2000")
    with open_source(path) as source, pytest.raises(TypeError):
        source.read("beside", COLUMNS)


def test_batches_follow_the_leaves(tmp_path, small_chunks):
    with open_pages(make(tmp_path / "r.sqlite"), threads=2) as source:
        frames = list(source.batches("t", COLUMNS, rows=500))
        assert len(frames) > 3
        assert all(frame.height >= 500 for frame in frames[:-1])
        expected = SqliteSource(source.path).read("t", COLUMNS)
        assert pl.concat(frames).equals(expected)
        few = list(source.batches("t", COLUMNS, [RowFilter("a", isin=(5, 2999))], rows=500))
        assert pl.concat(few)["a"].to_list() == [5, 2999]
        assert source.notes == []


def test_a_consumer_may_stop_early(tmp_path, small_chunks):
    with open_pages(make(tmp_path / "r.sqlite")) as source:
        frames = source.batches("t", COLUMNS, rows=100)
        assert next(frames)["a"][0] == 0
        frames.close()
        assert source.read("t", COLUMNS).height == 3000


def test_sqlite_goes_on_where_decoding_stopped(tmp_path, small_chunks):
    path = make(tmp_path / "r.sqlite")
    alter(path, "UPDATE t SET a = 'odd' WHERE a = 2500")
    with open_pages(path) as source:
        frames = list(source.batches("t", COLUMNS, rows=400))
        assert len(frames) > 2
        values = pl.concat(frames)["a"].to_list()
        assert values == [*range(2500), None, *range(2501, 3000)]
        assert "t: read through SQLite (cells of another type than requested)" in source.notes
        assert "t.a: 1 cells are not Int64 and were read as null" in source.notes


def test_a_wrong_sample_sends_the_table_to_sqlite(tmp_path, monkeypatch):
    right = frames.Columns.frame
    wrong = pl.col("a") + 1
    monkeypatch.setattr(frames.Columns, "frame", lambda c: right(c).with_columns(wrong))
    with open_pages(make(tmp_path / "r.sqlite")) as source:
        assert source.read("t", COLUMNS)["a"].to_list() == list(range(3000))
        assert source.notes == ["t: read through SQLite (a sample differs from what SQLite reads)"]


def test_a_wrong_sample_with_filters(tmp_path, monkeypatch):
    right = frames.Columns.frame
    monkeypatch.setattr(frames.Columns, "frame", lambda c: right(c).reverse())
    where = [RowFilter("a", high=2000)]
    with open_pages(make(tmp_path / "r.sqlite")) as source:
        assert source.read("t", COLUMNS, where)["a"].to_list() == list(range(2000))
        assert "a sample differs" in source.notes[0]


def test_rows_that_are_missing_are_noticed(tmp_path, monkeypatch, small_chunks):
    right = chunks.find_leaves
    monkeypatch.setattr(chunks, "find_leaves", lambda *a: right(*a)[:-1].copy())
    with open_pages(make(tmp_path / "r.sqlite")) as source:
        assert source.read("t", COLUMNS).height == 3000
        assert "SQLite counts other rows" in source.notes[0]
        with pytest.raises(DamagedReportError, match="SQLite counts other rows"):
            list(source.batches("t", COLUMNS, rows=100))


def test_a_change_while_reading_is_noticed(tmp_path, small_chunks):
    path = make(tmp_path / "r.sqlite")
    with open_pages(path) as source:
        frames = source.batches("t", COLUMNS, rows=100)
        next(frames)
        os.truncate(path, 3 * 4096)
        with pytest.raises(DamagedReportError):
            list(frames)


def test_a_change_before_reading_goes_to_sqlite(tmp_path):
    path = make(tmp_path / "r.sqlite")
    with open_pages(path) as source:
        os.utime(path, ns=(1, 1))
        assert source.read("t", COLUMNS).height == 3000
        assert "the file has changed since it was opened" in source.notes[0]


def test_sample_is_the_same_every_time():
    assert reader.probe_counts(1) == [64]
    assert sum(reader.probe_counts(10)) == 70
    assert reader.probe_counts(1000) == reader.probe_counts(1000)
    assert sum(reader.probe_counts(1000)) == 64


def test_row_ids_are_not_read_as_text(tmp_path):
    path = make(tmp_path / "r.sqlite", "CREATE TABLE t(a INTEGER PRIMARY KEY, s TEXT)")
    with open_pages(path) as source:
        assert source.read("t", {"a": pl.String})["a"][17] == "17"
        assert "the row id is not read as integers" in source.notes[0]
        assert source.read("t", {"a": pl.UInt16}, [RowFilter("a", low=2998)]).rows() == [
            (2998,),
            (2999,),
        ]


def test_overlapping_names_of_row_id(tmp_path):
    path = make(tmp_path / "r.sqlite", "CREATE TABLE t(a INTEGER, ROWID INTEGER, s TEXT)")
    with open_pages(path) as source:
        assert source.read("t", COLUMNS).height == 3000
        assert source.notes == []


def test_damaged_tree_is_no_table():
    geometry = np.array([-1, 4096, 4096, 10, 0, 8], np.int64)
    with pytest.raises(UnusualTableError, match="not a whole table"):
        chunks.find_leaves(geometry, 2)


def test_texts_with_zero_bytes_and_repeated_texts(tmp_path):
    path = make(tmp_path / "r.sqlite")
    alter(path, "UPDATE t SET s = 'nul' || char(0) || 'inside' WHERE a % 5 = 0")
    alter(path, "UPDATE t SET s = NULL WHERE a % 7 = 0", "UPDATE t SET s = '' WHERE a % 11 = 0")
    with open_pages(path) as source, SqliteSource(path) as slow:
        got = source.read("t", COLUMNS)
        assert got.equals(slow.read("t", COLUMNS), null_equal=True)
        assert got["s"][5] == "nul\0inside"
        assert got["s"].n_unique() == 9
        assert source.notes == []


def test_a_table_of_empty_texts(tmp_path):
    path = make(tmp_path / "r.sqlite")
    alter(path, "UPDATE t SET s = ''")
    with open_pages(path) as source:
        assert source.read("t", {"s": pl.String})["s"].unique().to_list() == [""]
        assert source.notes == []


def test_row_ids_that_run_backwards_are_sqlites_to_judge(tmp_path, monkeypatch):
    path = make(tmp_path / "r.sqlite")
    monkeypatch.setattr("tracekit.io.pages.reader.rowid_span", lambda *_: (3000, 1))
    with PagesSource(path, SqliteSource(path)) as source:
        assert source.read("t", COLUMNS).height == 3000
        assert source.notes == ["t: read through SQLite (more rows than row ids)"]
