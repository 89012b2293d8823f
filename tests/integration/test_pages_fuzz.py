"""Damaged files: an error, or SQLite's answer; never a crash, a hang or a wrong row.

The reading happens in a child process, so that a crash is a failure and not the end of the run.
By hand: ``python tests/integration/test_pages_fuzz.py 10000``.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
import pytest

from tracekit.errors import InputError
from tracekit.io.pages import PagesSource
from tracekit.io.source import RowFilter
from tracekit.io.sqlite.source import SqliteSource

pytest.importorskip("numba", reason="the page reader needs Numba")
FILES = 200
COLUMNS = {"id": pl.Int64, "a": pl.Int32, "f": pl.Float64, "s": pl.String, "b": pl.Binary}


def make_victim(path: Path, page_bytes: int) -> bytes:
    rng = random.Random(page_bytes)
    con = sqlite3.connect(path)
    con.execute(f"PRAGMA page_size={page_bytes}")
    con.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, f REAL, s TEXT, b BLOB)")
    rows = [
        (
            i * 3,
            rng.choice([None, 0, 1, rng.randint(-128, 127), rng.randint(-(2**31), 2**31 - 1)]),
            rng.choice([None, 1.0, 2.5]),
            rng.choice(
                [None, "", "kernel", "größe" * rng.randint(0, 9), "y" * rng.randint(0, 900)]
            ),
            rng.choice([None, b"\x00\xff" * rng.randint(0, 40)]),
        )
        for i in range(700)
    ]
    con.executemany("INSERT INTO t VALUES(?,?,?,?,?)", rows)
    con.commit()
    con.close()
    return path.read_bytes()


def damage(rng: random.Random, victim: bytes, page_bytes: int) -> bytes:
    data = bytearray(victim)
    for _ in range(rng.choice([1, 1, 3, 10, 60])):
        page = rng.randrange(len(data) // page_bytes) * page_bytes
        # Page headers and cell pointers matter most.
        at = page + rng.randrange(rng.choice([12, 40, page_bytes]))
        data[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256), data[at] ^ 1])
    return bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.05 else bytes(data)


def outcome(source: object, where: tuple[RowFilter, ...]) -> pl.DataFrame | str:
    try:
        return source.read("t", COLUMNS, where)
    except (InputError, KeyError) as error:
        return type(error).__name__


def compare(path: Path, where: tuple[RowFilter, ...]) -> str:
    try:
        slow, beside = SqliteSource(path), SqliteSource(path)
    except InputError:
        return "refused"
    with slow, PagesSource(path, beside, threads=1) as fast:
        if list(slow.tables().get("t", {})) != list(COLUMNS):
            return "schema lost"
        expected, got = outcome(slow, where), outcome(fast, where)
        fell_back = any("read through SQLite" in note for note in fast.notes)
    if isinstance(expected, str) or isinstance(got, str):
        same = str(expected) == str(got)
        result = f"error {expected}" if same else f"DIFFERENT: {expected!s:.80}, {got!s:.80}"
    else:
        same = expected.equals(got, null_equal=True)
        result = "equal" if same else "DIFFERENT: rows"
    if fell_back and not same:
        # Both answers are SQLite's: a cell at the very end of a page makes it read the memory
        # behind the page, so that two connections can see different lengths.
        return "SQLite differs from itself"
    return f"{result} through SQLite" if fell_back and result == "equal" else result


def child(first: int, count: int) -> None:
    faulthandler.enable()
    tally: collections.Counter[str] = collections.Counter()
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        victims = {size: make_victim(Path(folder, f"{size}"), size) for size in (512, 1024, 4096)}
        path = Path(folder, "damaged.sqlite")
        for seed in range(first, first + count):
            rng = random.Random(seed)
            size = rng.choice(list(victims))
            path.write_bytes(damage(rng, victims[size], size))
            where = (RowFilter("a", low=-5, high=100),) if seed % 3 == 0 else ()
            print(seed, file=sys.stderr, flush=True)
            result = compare(path, where)
            if result.startswith("DIFFERENT"):
                bad.append(f"{seed}: {result}")
            tally[result[:40]] += 1
    print(json.dumps({"tally": tally, "bad": bad}))


def run_child(first: int, count: int) -> dict[str, object]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(first), str(count)],
        capture_output=True,
        text=True,
        timeout=120 + count,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_damaged_files_give_an_error_or_the_answer_of_sqlite():
    found = run_child(0, FILES)
    assert found["bad"] == []
    tally = found["tally"]
    assert sum(tally.values()) == FILES
    assert tally.get("SQLite differs from itself", 0) <= 2
    # The damage must reach the reader, and often enough the decoder, for this to mean anything.
    assert tally["equal"] > FILES // 10
    assert sum(n for name, n in tally.items() if name.startswith("error")) > FILES // 10


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(int(sys.argv[2]), int(sys.argv[3]))
    else:
        print(run_child(0, int(sys.argv[1])))
