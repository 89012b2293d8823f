"""The page reader against SQLite, on tables of every shape that SQLite can store."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tracekit.io.pages import PagesSource, reader
from tracekit.io.source import Part, RowFilter
from tracekit.io.sqlite.source import SqliteSource

chunks = pytest.importorskip("tracekit.io.pages.chunks", reason="the page reader needs Numba")

PARTS = [
    Part("", pl.UInt32, right=24, bits=0xFFFFFF),
    Part("", pl.UInt8, bits=0xFF),
    Part("", pl.Int16, right=3, bits=0x7FF, add=-5),
    Part("", pl.Int64, add=1 << 40),
]
DTYPES = [pl.Int64, pl.Int32, pl.Int16, pl.Int8, pl.UInt64, pl.UInt32, pl.UInt16, pl.UInt8]
DECLARED = [
    "INTEGER",
    "INT",
    "BIGINT",
    "REAL",
    "DOUBLE",
    "TEXT",
    "VARCHAR(9)",
    "BLOB",
    "",
    "NUMERIC",
]
EDGES = [0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 32767, 32768, -32768, 65535, 65536]
EDGES += [2**23 - 1, -(2**23), 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**47 - 1, -(2**47), 2**47]
EDGES += [2**53, 2**53 + 1, 2**63 - 1, -(2**63)]


@dataclass(frozen=True)
class Shape:
    """How to make a file; every choice that is not named here is drawn with `seed`."""

    seed: int
    page_bytes: int
    reserved: int
    vacuum: str
    rows: int
    longest: int
    null_share: float
    odd_share: float
    columns: int
    deletes: str
    added: str
    generated: bool
    chunk_pages: int
    layouts: int


shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**32),
    page_bytes=st.sampled_from([512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]),
    reserved=st.sampled_from([0, 0, 0, 8, 32]),
    vacuum=st.sampled_from(["none", "full", "incremental"]),
    rows=st.sampled_from([0, 1, 2, 10, 200, 700]),
    longest=st.sampled_from([3, 12, 13, 60, 300, 3000, 20_000]),
    null_share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    odd_share=st.sampled_from([0.0, 0.0, 0.0, 0.02]),
    columns=st.integers(1, 40),
    deletes=st.sampled_from(["none", "some", "runs", "all", "vacuum"]),
    added=st.sampled_from(["none", "null", "number", "text"]),
    generated=st.sampled_from([False, False, False, True]),
    chunk_pages=st.sampled_from([1, 2, 7, 1000]),
    layouts=st.sampled_from([1, 16384]),
)


def text(rng: random.Random, longest: int) -> str:
    size = rng.choice([0, 1, 11, 12, 13, longest, rng.randint(0, longest)])
    alphabet = rng.choice(["a", "abc", "größe–µ", "a😀"])
    return "".join(rng.choice(alphabet) for _ in range(min(size, longest, 50))) * max(1, size // 50)


def fitting(rng: random.Random, declared: str, longest: int) -> object:
    if declared in ("INTEGER", "INT", "BIGINT", "NUMERIC"):
        return rng.choice([rng.choice(EDGES), rng.randint(-200, 200), rng.randint(-(2**40), 2**40)])
    if declared in ("REAL", "DOUBLE"):
        return rng.choice([0.0, -0.0, 1.0, 2.5, -3.0, 1e300, float(2**40), rng.random()])
    if declared == "BLOB":
        return rng.randbytes(rng.choice([0, 5, 12, 13, rng.randint(0, longest)]))
    return text(rng, longest)


def odd(rng: random.Random) -> object:
    values = ["12", " 7 ", "x", "1e3", "", b"\xff\xfe", b"12", 2.5, 3.0, 2**62, -1, b"\xed\xa0\x80"]
    return rng.choice(values)


def make(path: Path, shape: Shape) -> tuple[dict[str, object], tuple[RowFilter, ...]]:
    rng = random.Random(shape.seed)
    con = sqlite3.connect(path, isolation_level=None)
    con.execute(f"PRAGMA page_size={shape.page_bytes}")
    con.execute(f"PRAGMA auto_vacuum={shape.vacuum}")
    if shape.reserved:
        con.execute("PRAGMA user_version=1")
        con.close()
        reserve(path, shape)
        con = sqlite3.connect(path, isolation_level=None)
    declared = {f"c{i}": rng.choice(DECLARED) for i in range(shape.columns)}
    spelled = [f"{name} {kind}" for name, kind in declared.items()]
    key = rng.choice(["", " PRIMARY KEY", " PRIMARY KEY DESC", " UNIQUE"])
    spelled.insert(rng.randint(0, len(spelled)), f"id INTEGER{key}")
    if shape.generated:
        spelled.insert(1, "g INTEGER GENERATED ALWAYS AS (id * 2) " + rng.choice(["STORED", ""]))
    con.execute(f"CREATE TABLE t({', '.join(spelled)})")
    rowids = sorted(rng.sample(range(-5000, 5000), shape.rows)) if rng.random() < 0.5 else None
    insert(con, rng, shape, declared, rowids)
    change(con, rng, shape)
    if shape.added != "none":
        default = {"null": "", "number": " DEFAULT -42", "text": " DEFAULT 'later'"}[shape.added]
        kind = rng.choice(["INTEGER", "REAL", "TEXT", ""])
        con.execute(f"ALTER TABLE t ADD COLUMN later {kind}{default}")
        declared["later"] = kind
        con.execute("INSERT INTO t(id, later) VALUES(9999, 7)")
    con.close()
    return asked(rng, {"id": "INTEGER", **declared})


def reserve(path: Path, shape: Shape) -> None:
    """Reserve bytes at the end of every page of a file that has no table yet."""
    data = bytearray(path.read_bytes())
    data[20] = shape.reserved
    data[105:107] = ((shape.page_bytes - shape.reserved) % 65536).to_bytes(2, "big")
    path.write_bytes(data)


def insert(con, rng, shape, declared, rowids):
    names = ["id", *declared]
    marks = ", ".join("?" * len(names))
    con.execute("BEGIN")
    for i in range(shape.rows):
        cells = [
            None
            if rng.random() < shape.null_share
            else odd(rng)
            if rng.random() < shape.odd_share
            else fitting(rng, kind, shape.longest)
            for kind in declared.values()
        ]
        con.execute(
            f"INSERT INTO t({', '.join(names)}) VALUES({marks})",
            [rowids[i] if rowids else i, *cells],
        )
    con.execute("COMMIT")


def change(con: sqlite3.Connection, rng: random.Random, shape: Shape) -> None:
    if shape.deletes in ("some", "vacuum"):
        con.execute("DELETE FROM t WHERE id % 3 = 0")
    if shape.deletes == "runs":
        con.execute("DELETE FROM t WHERE id BETWEEN 50 AND 400")
    if shape.deletes == "all":
        con.execute("DELETE FROM t")
    if shape.deletes == "vacuum":
        con.execute("VACUUM")
    con.execute("CREATE TABLE after(a)")
    con.execute("INSERT INTO after VALUES(zeroblob(?))", [rng.choice([0, 70_000])])


def asked(rng, declared):
    names = rng.sample(list(declared), rng.randint(1, len(declared)))
    columns = {}
    for name in names:
        kind = declared[name]
        likely = (
            [pl.Float64, pl.Float32]
            if kind in ("REAL", "DOUBLE")
            else DTYPES
            if kind in ("INTEGER", "INT", "BIGINT", "NUMERIC")
            else [pl.String, pl.Binary]
        )
        wild = [*DTYPES, pl.Float64, pl.Float32, pl.String, pl.Binary]
        columns[name] = rng.choice(wild if rng.random() < 0.01 else likely)
        if likely is DTYPES and rng.random() < 0.5:
            for number in range(rng.randint(1, 3)):
                columns[f"part {number} of {name}"] = replace(rng.choice(PARTS), column=name)
    where = []
    for name in rng.sample(list(declared), min(rng.choice([0, 0, 1, 2]), len(declared))):
        low, high = sorted(rng.choice([None, 0, -100, 2**40, 9]) or 0 for _ in range(2))
        spread = tuple(rng.choice([*EDGES, *range(-50, 50)]) for _ in range(rng.randint(0, 60)))
        near = tuple(rng.randint(-200, 200) for _ in range(80))
        where.append(
            rng.choice(
                [
                    RowFilter(name, isin=spread),
                    RowFilter(name, isin=near),
                    RowFilter(name, low=low),
                    RowFilter(name, high=high),
                    RowFilter(name, low=low, high=high),
                    RowFilter(name),
                ]
            )
        )
    return columns, tuple(where)


def plain(notes: list[str]) -> list[str]:
    return [note for note in notes if "read through SQLite" not in note]


BASE = Shape(1, 1024, 0, "none", 700, 60, 0.1, 0.0, 6, "none", "none", False, 2, 16384)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(shapes)
@example(BASE)
def test_both_readers_agree(shape):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "report.sqlite")
        columns, where = make(path, shape)
        patch.setattr(chunks, "CHUNK_BYTES", shape.chunk_pages * shape.page_bytes)
        patch.setattr(chunks, "MOST_LAYOUTS", shape.layouts)
        patch.setattr(reader, "COUNTED_ROWS", 0)
        with SqliteSource(path) as slow, PagesSource(path, SqliteSource(path), threads=2) as fast:
            expected = slow.read("t", columns, where)
            got = fast.read("t", columns, where)
            dtypes = {n: c.dtype if isinstance(c, Part) else c for n, c in columns.items()}
            assert got.schema == pl.Schema(dtypes)
            assert got.equals(expected, null_equal=True)
            assert plain(fast.notes) == slow.notes
            assert fast.count("t") == slow.count("t")
        with PagesSource(path, SqliteSource(path), threads=1) as fast:
            pieces = list(fast.batches("t", columns, where, rows=97))
            assert pl.concat(pieces).equals(expected, null_equal=True)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from([512, 4096, 65536]), st.booleans())
def test_usual_tables_are_decoded_and_not_handed_to_sqlite(seed, page_bytes, deleted):
    shape = Shape(
        seed, page_bytes, 0, "none", 700, 300, 0.3, 0.0, 9, "some" if deleted else "none",
        "none", False, 3, 16384,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.sqlite")
        make(path, shape)
        with PagesSource(path, SqliteSource(path)) as fast, SqliteSource(path) as slow:
            by_kind = {"REAL": pl.Float64, "DOUBLE": pl.Float64, "TEXT": pl.String}
            by_kind |= {"VARCHAR(9)": pl.String, "BLOB": pl.Binary, "": pl.String}
            columns = {
                name: by_kind.get(kind, pl.Int64) for name, kind in fast.tables()["t"].items()
            }
            got = fast.read("t", columns)
            assert fast.notes == []
            assert got.equals(slow.read("t", columns), null_equal=True)
            assert got.height == slow.count("t")
