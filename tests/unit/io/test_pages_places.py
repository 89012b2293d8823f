"""The page reader: chunks that are stored side by side, and the layouts of their rows."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

from tracekit.io.pages import PagesSource, fields
from tracekit.io.sqlite.source import SqliteSource

chunks = pytest.importorskip("tracekit.io.pages.chunks", reason="the page reader needs Numba")
walk = pytest.importorskip("tracekit.io.pages.tree", reason="the page reader needs Numba")

ROWS = 20_000
COLUMNS = {
    "a": pl.UInt8,
    "b": pl.Int16,
    "c": pl.UInt32,
    "d": pl.Int64,
    "s": pl.String,
    "f": pl.Float32,
}


@pytest.fixture
def path(tmp_path):
    con = sqlite3.connect(tmp_path / "r.sqlite")
    con.execute("CREATE TABLE t(a INTEGER, b INTEGER, c INTEGER, d INTEGER, s TEXT, f REAL)")
    rows = (
        (255 - i % 3, None if i % 90 < 7 else -i, i << 8, -(i << 33), f"text {i % 1009}", i / 8)
        for i in range(ROWS)
    )
    con.executemany("INSERT INTO t VALUES(?, ?, ?, ?, ?, ?)", rows)
    con.commit()
    con.close()
    return tmp_path / "r.sqlite"


def agree(path: Path, columns: dict[str, object], threads: int = 1) -> list[str]:
    with SqliteSource(path) as slow, PagesSource(path, SqliteSource(path), threads=threads) as fast:
        assert fast.read("t", columns).equals(slow.read("t", columns), null_equal=True)
        return fast.notes


@pytest.mark.parametrize("pages", [1, 3])
def test_neighbours_do_not_overwrite_each_other(path, monkeypatch, pages):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", pages * 4096)
    for _ in range(10):
        assert agree(path, COLUMNS, threads=4) == []


def test_frames_begin_where_the_one_before_ended(path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4096)
    with SqliteSource(path) as slow, PagesSource(path, SqliteSource(path), threads=4) as fast:
        pieces = list(fast.batches("t", COLUMNS, rows=1000))
        assert len(pieces) > 10
        assert pl.concat(pieces).equals(slow.read("t", COLUMNS), null_equal=True)


@pytest.mark.parametrize("bad", [0, 5, 40])
def test_nobody_waits_for_the_place_behind_a_damaged_chunk(path, monkeypatch, bad):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4096)
    right, loads = walk.load_leaves, []

    def load(geometry, leaves, buffer):
        loads.append(leaves)
        return fields.BAD_PAGE if len(loads) > bad + 2 else right(geometry, leaves, buffer)

    monkeypatch.setattr(walk, "load_leaves", load)
    assert agree(path, COLUMNS, threads=4) == ["t: read through SQLite (an unexpected page)"]


def test_a_header_without_bytes_has_no_layout(tmp_path):
    path = tmp_path / "r.sqlite"
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE t(s TEXT, a INTEGER, r TEXT)")
    # Of some of the long rows, the number is on an overflow page, though not far into the record.
    rows = [("x" * 600, 1000, "y" * (4000 + 200 * i)) for i in range(20)]
    rows += [(f"row {i} " + "z" * 700, 1100 + i, "") for i in range(20)]
    con.executemany("INSERT INTO t VALUES(?, ?, ?)", rows)
    con.commit()
    con.close()
    assert agree(path, {"a": pl.Int64}) == []
    data = path.read_bytes()
    record = data.index(b"row 12") - 5
    assert data[record] == 5
    path.write_bytes(data[:record] + b"\0" + data[record + 1 :])
    assert "a record that contradicts its length" in agree(path, {"a": pl.Int64})[0]
