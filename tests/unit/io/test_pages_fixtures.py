"""Every table of every bundled trace, read by pages and by SQLite."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tracekit.io.pages import PagesSource
from tracekit.io.source import RowFilter
from tracekit.io.sqlite.source import SqliteSource

pytest.importorskip("numba", reason="the page reader needs Numba")
FIXTURES = Path(__file__).parents[3] / "fixtures"
NAMES = sorted(path.name.removesuffix(".sqlite.xz") for path in FIXTURES.glob("*.sqlite.xz"))
DTYPES = {"INTEGER": pl.Int64, "REAL": pl.Float64, "TEXT": pl.Binary}


@pytest.mark.parametrize("name", NAMES)
def test_both_readers_agree_on_a_real_trace(fixture_path, name):
    path = fixture_path(name)
    with SqliteSource(path) as slow, PagesSource(path, SqliteSource(path)) as fast:
        for table, declared in slow.tables().items():
            columns = {column: DTYPES[kind] for column, kind in declared.items()}
            got = fast.read(table, columns)
            assert got.equals(slow.read(table, columns), null_equal=True), table
        assert fast.notes == []


@pytest.mark.parametrize("name", NAMES)
def test_filters_and_narrow_types_on_real_samples(fixture_path, name):
    path = fixture_path(name)
    with SqliteSource(path) as slow, PagesSource(path, SqliteSource(path)) as fast:
        if "GPU_METRICS" not in slow.tables():
            pytest.skip("the trace has no GPU metrics")
        time = fast.read("GPU_METRICS", {"timestamp": pl.Int64})["timestamp"]
        middle = int(time.median())
        where = [RowFilter("metricId", isin=(0, 2, 5)), RowFilter("timestamp", low=middle)]
        columns = {"timestamp": pl.Int64, "metricId": pl.UInt8, "value": pl.Int16}
        got = fast.read("GPU_METRICS", columns, where)
        assert got.equals(slow.read("GPU_METRICS", columns, where), null_equal=True)
        assert got.height > 0
