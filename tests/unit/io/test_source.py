"""Opening a report, and what its cells become, through SQLite."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from tracekit.errors import DamagedReportError, InputError, NotAReportError, UsageError
from tracekit.io.source import RowFilter, open_source
from tracekit.io.sqlite import database
from tracekit.io.sqlite.source import SqliteSource

COLUMNS = {"a": pl.Int64, "s": pl.String}
ROWS = [(1, "one"), (2, None), (None, "three"), (4, "vier – ö")]


def make(path: Path, *, ddl="CREATE TABLE t(a INTEGER, s TEXT)", rows=ROWS, mode="delete") -> Path:
    con = sqlite3.connect(path)
    con.execute(f"PRAGMA journal_mode={mode}")
    con.execute(ddl)
    if rows:
        con.executemany(f"INSERT INTO t VALUES({', '.join('?' * len(rows[0]))})", rows)
    con.commit()
    con.close()
    return path


def content(folder: Path) -> dict[str, str]:
    files = (file for file in folder.iterdir() if file.is_file())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_filter_with_two_meanings_is_refused():
    with pytest.raises(ValueError, match="not both"):
        RowFilter("a", isin=(1,), low=0)


def test_unknown_reader(tmp_path):
    with pytest.raises(UsageError, match="unknown reader"):
        open_source(make(tmp_path / "r.sqlite"), "fast")


@pytest.mark.parametrize("reader", ["auto", "pages", "sqlite"])
def test_every_reader_reads(tmp_path, reader):
    with open_source(make(tmp_path / "r.sqlite"), reader) as source:
        assert source.tables() == {"t": {"a": "INTEGER", "s": "TEXT"}}
        assert source.count("t") == 4
        assert source.read("t", COLUMNS).rows() == ROWS
        assert source.read("t", {"s": pl.String}, [RowFilter("a", low=2, high=4)]).rows() == [
            (None,)
        ]
        assert source.notes == []


@pytest.mark.parametrize("reader", ["pages", "sqlite"])
def test_absent_tables_and_columns_are_the_callers_fault(tmp_path, reader):
    with open_source(make(tmp_path / "r.sqlite"), reader) as source:
        with pytest.raises(KeyError, match="no table"):
            source.read("u", COLUMNS)
        with pytest.raises(KeyError, match="no column b"):
            source.read("t", {"b": pl.Int64})
        with pytest.raises(KeyError, match="no column b"):
            source.batches("t", COLUMNS, [RowFilter("b", low=1)])
        with pytest.raises(ValueError, match="at least one column"):
            source.read("t", {})
        with pytest.raises(ValueError, match="cannot be read as Boolean"):
            source.read("t", {"a": pl.Boolean})


def test_views_virtual_tables_and_sqlite_s_own_tables_are_not_listed(tmp_path):
    path = make(tmp_path / "r.sqlite", ddl="CREATE TABLE t(a INTEGER PRIMARY KEY AUTOINCREMENT, s)")
    con = sqlite3.connect(path)
    con.execute("CREATE VIEW v AS SELECT * FROM t")
    con.commit()
    con.close()
    with SqliteSource(path) as source:
        assert source.tables() == {"t": {"a": "INTEGER", "s": ""}}


@pytest.mark.parametrize("reader", ["pages", "sqlite"])
def test_an_empty_table_gives_one_empty_typed_frame(tmp_path, reader):
    with open_source(make(tmp_path / "r.sqlite", rows=[]), reader) as source:
        frames = list(source.batches("t", COLUMNS))
        assert [frame.height for frame in frames] == [0]
        assert frames[0].schema == pl.Schema(COLUMNS)


def test_batches_are_in_storage_order_even_with_an_index(tmp_path):
    rows = [(100 - i, f"s{i}") for i in range(100)]
    path = make(tmp_path / "r.sqlite", rows=rows)
    con = sqlite3.connect(path)
    con.execute("CREATE INDEX i ON t(a, s)")
    con.commit()
    con.close()
    with SqliteSource(path) as source:
        frames = list(source.batches("t", COLUMNS, [RowFilter("a", low=11)], rows=30))
        assert [frame.height for frame in frames] == [30, 30, 30]
        assert pl.concat(frames).rows() == rows[:90]


@pytest.mark.parametrize(
    ("test", "kept"),
    [
        (RowFilter("a", isin=(1, 4, 2**70)), [1, 4]),
        (RowFilter("a", isin=()), []),
        (RowFilter("a", low=2), [2, 4]),
        (RowFilter("a", high=2), [1]),
        (RowFilter("a", low=-(2**80), high=2**80), [1, 2, 4]),
        (RowFilter("a", low=2**63), []),
        (RowFilter("a", high=-(2**63)), []),
        (RowFilter("a"), [1, 2, 4]),
    ],
)
@pytest.mark.parametrize("reader", ["pages", "sqlite"])
def test_filters_are_half_open_and_never_match_null(tmp_path, reader, test, kept):
    with open_source(make(tmp_path / "r.sqlite"), reader) as source:
        assert source.read("t", {"a": pl.Int64}, [test])["a"].to_list() == kept


@pytest.mark.parametrize(
    ("cells", "dtype", "values", "lost"),
    [
        ([3.0, "12", " 7 ", 1e30, "x", b"5", 2.5], pl.Int64, [3, 12, 7, None, None, 5, None], 3),
        ([0, 255, 256, -1], pl.UInt8, [0, 255, None, None], 2),
        ([-1, 2**63 - 1], pl.UInt64, [None, 2**63 - 1], 1),
        ([1, 2.5, "1e3", "nan", b""], pl.Float64, [1.0, 2.5, 1000.0, None, None], 2),
        ([1, 2.5, "x", b"y"], pl.String, ["1", "2.5", "x", "y"], 0),
        (["x", b"\xff", 1], pl.Binary, [b"x", b"\xff", b"1"], 0),
        ([0.5, 1], pl.Float32, [0.5, 1.0], 0),
    ],
)
@pytest.mark.parametrize("reader", ["pages", "sqlite"])
def test_mixed_cells_convert_or_are_counted(tmp_path, reader, cells, dtype, values, lost):
    rows = [(cell,) for cell in [None, *cells]]
    with open_source(make(tmp_path / "r.sqlite", ddl="CREATE TABLE t(a)", rows=rows), reader) as s:
        frame = s.read("t", {"a": dtype})
        assert frame.schema == {"a": dtype}
        assert frame["a"].to_list() == [None, *values]
        notes = [note for note in s.notes if "SQLite" not in note]
        assert notes == ([f"t.a: {lost} cells are not {dtype} and were read as null"] * bool(lost))


@pytest.mark.parametrize("reader", ["pages", "sqlite"])
def test_text_that_is_not_utf8_is_replaced_and_counted(tmp_path, reader):
    long = "n" * 1_000_000
    path = make(tmp_path / "r.sqlite", rows=[(1, "a\x00b"), (2, long), (3, "\x1b[31mred")])
    con = sqlite3.connect(path)
    con.execute("INSERT INTO t VALUES(4, CAST(x'66ff6f' AS TEXT)), (5, CAST(x'eda080' AS TEXT))")
    con.execute("INSERT INTO t VALUES(6, x'66ff')")
    con.commit()
    con.close()
    with open_source(path, reader) as source:
        texts = source.read("t", {"s": pl.String})["s"].to_list()
        assert texts == ["a\x00b", long, "\x1b[31mred", "f\ufffdo", "\ufffd" * 3, "f\ufffd"]
        assert "t.s: 3 texts are not UTF-8; bytes were replaced" in source.notes
        assert source.read("t", {"s": pl.Binary})["s"][3] == b"f\xffo"


def test_characters_that_are_special_in_a_uri(tmp_path):
    folder = tmp_path / "dir with space"
    folder.mkdir()
    path = make(folder / "ré%20p?#&mode=rwc.sqlite")
    with open_source(path) as source:
        assert source.count("t") == 4
    assert list(content(folder)) == [path.name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_read_only_folder(tmp_path):
    path = make(tmp_path / "r.sqlite", mode="wal")
    tmp_path.chmod(0o555)
    try:
        with open_source(path) as source:
            assert source.count("t") == 4
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("reader", ["auto", "pages", "sqlite"])
def test_a_wal_header_without_a_wal_leaves_nothing_behind(tmp_path, reader):
    path = make(tmp_path / "r.sqlite", mode="wal")
    before = content(tmp_path)
    assert list(before) == ["r.sqlite"]
    with open_source(path, reader) as source:
        assert source.read("t", COLUMNS).rows() == ROWS
        assert source.notes == []
    assert content(tmp_path) == before


@pytest.fixture
def with_wal(tmp_path):
    """A report whose fourth row is only in the write-ahead log."""
    live, folder = tmp_path / "live", tmp_path / "report"
    live.mkdir()
    folder.mkdir()
    con = sqlite3.connect(make(live / "r.sqlite", rows=ROWS[:3], mode="wal"))
    con.execute("INSERT INTO t VALUES(4, 'vier – ö')")
    con.commit()
    for file in live.iterdir():
        shutil.copy(file, folder / file.name)
    con.close()
    return folder / "r.sqlite"


@pytest.mark.parametrize("reader", ["auto", "pages", "sqlite"])
def test_a_wal_is_used_and_nothing_is_modified(with_wal, reader):
    before = content(with_wal.parent)
    with open_source(with_wal, reader) as source:
        assert source.read("t", COLUMNS).rows() == ROWS
        assert source.notes[0] == "read through a private copy together with r.sqlite-wal"
    assert content(with_wal.parent) == before


def test_a_wal_without_room_for_a_copy_is_reported(with_wal, monkeypatch):
    monkeypatch.setattr(database, "COPY_RESERVE_BYTES", 1 << 62)
    with open_source(with_wal) as source:
        assert source.read("t", COLUMNS).rows() == ROWS[:3]
        assert "rows may be missing" in source.notes[0]


def test_hot_journal_is_rolled_back_in_a_copy(tmp_path):
    path = make(tmp_path / "r.sqlite", rows=[(i, "x" * 500) for i in range(500)])
    con = sqlite3.connect(path, isolation_level=None)
    con.execute("PRAGMA cache_size=1")
    con.execute("BEGIN")
    con.execute("UPDATE t SET s = 'half done'")
    folder = tmp_path / "report"
    folder.mkdir()
    for file in (path, path.with_name("r.sqlite-journal")):
        shutil.copy(file, folder / file.name)
    con.execute("ROLLBACK")
    con.close()
    before = content(folder)
    with open_source(folder / "r.sqlite") as source:
        assert source.read("t", COLUMNS)["s"].unique().to_list() == ["x" * 500]
    assert content(folder) == before


def test_a_truncated_file_says_what_is_missing(tmp_path):
    path = make(tmp_path / "r.sqlite", rows=[(i, "x" * 100) for i in range(1000)])
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2])
    with pytest.raises(DamagedReportError) as caught:
        open_source(path)
    line = str(caught.value)
    assert f"{size // 4096} pages x 4096 bytes = {size} bytes" in line
    assert f"file: {size // 2} bytes" in line
    assert line.startswith(str(path))
    assert "\n" not in line


def test_salvage_reads_the_tables_that_are_whole(tmp_path):
    path = make(tmp_path / "r.sqlite")
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE big(a INTEGER, s TEXT)")
    con.executemany("INSERT INTO big VALUES(?, ?)", [(i, "x" * 100) for i in range(1000)])
    con.commit()
    con.close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with open_source(path, "pages", salvage=True) as source:
        assert source.read("t", COLUMNS).rows() == ROWS
        with pytest.raises(DamagedReportError, match="SQLite cannot read it"):
            source.read("big", COLUMNS)
        assert "only the tables that are whole" in source.notes[0]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", NotAReportError, "empty"),
        (b"not a database, surely", NotAReportError, "not an SQLite file"),
        (b"SQLite format 3\x00" + bytes(20), DamagedReportError, "less than its header"),
    ],
)
def test_files_that_are_no_database(tmp_path, data, error, message):
    path = tmp_path / "r.sqlite"
    path.write_bytes(data)
    with pytest.raises(error, match=message):
        open_source(path)


def test_a_page_of_zeros_is_an_error_of_that_table(tmp_path):
    path = make(tmp_path / "r.sqlite", rows=[(i, "x" * 100) for i in range(1000)])
    data = bytearray(path.read_bytes())
    data[4096:8192] = bytes(4096)
    path.write_bytes(data)
    for reader in ("pages", "sqlite"):
        with (
            open_source(path, reader) as source,
            pytest.raises(DamagedReportError, match="malformed"),
        ):
            source.read("t", COLUMNS)


def test_absent_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        open_source(tmp_path / "absent.sqlite")
    with pytest.raises(InputError, match="cannot be read"):
        open_source(tmp_path)


def test_close_twice(tmp_path):
    source = open_source(make(tmp_path / "r.sqlite"), "pages")
    source.close()
    source.close()
