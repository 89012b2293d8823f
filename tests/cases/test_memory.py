"""A run that does not fit is cut to its beginning, and the answer says so."""

from __future__ import annotations

import sqlite3

import pytest

from tests.support.builders import Export
from tracekit import engine
from tracekit.errors import EmptyWindowError
from tracekit.io.run import loader
from tracekit.model.finding import Level
from tracekit.opening import OpenOptions

N = 1_000


@pytest.fixture
def tiny(monkeypatch):
    """Let only rows count, and make a row of the kernel table cost 1000 bytes."""
    monkeypatch.setattr(loader, "FIXED_BYTES", 0)
    monkeypatch.setattr(loader, "LEAST_BYTES", 1)
    monkeypatch.setattr(
        loader, "BYTES_PER_ROW", {"kernels": 1_000, "runtime": 0, "nvtx": 0, "graph_trace": 0}
    )
    monkeypatch.setattr(loader, "SPARING_FRAC", 0.8)


@pytest.fixture
def at_once(monkeypatch):
    """How many things were done at a time."""
    seen, each = [], engine.each

    def told(function, items, *, most, stop):
        seen.append(most)
        return each(function, items, most=most, stop=stop)

    monkeypatch.setattr(engine, "each", told)
    return seen


def run() -> Export:
    """Kernels of 10 ns every 100 ns, each launched by a call 50 ns before."""
    e = Export()
    for i in range(N):
        e.kernel(100 * i + 60, 100 * i + 70, "nvjet_tst_64x8", launch=100 * i + 10)
    return e


@pytest.mark.parametrize(("share", "most"), [(1, 2), (0.9, 1), (0.8, 1)])
def test_what_fits_is_read_whole_sparing_memory_where_it_has_to_be(
    diagnose, tiny, at_once, share, most
):
    d = diagnose(run(), memory_bytes=round(N * 1_000 * share))
    assert d.overview.n_kernels == N
    assert not any("was analysed" in q.text for q in d.quality)
    assert set(at_once) == {most}


@pytest.mark.parametrize("share", [0.1, 0.25, 0.9])
def test_the_longest_beginning_that_fits_is_analysed(diagnose, tiny, at_once, share):
    d = diagnose(run(), memory_bytes=round(N * 1_000 * 0.8 * share))
    assert d.overview.n_kernels == pytest.approx(N * share, abs=1)
    assert set(at_once) == {1}
    assert d.overview.n_with_launch == d.overview.n_kernels
    line = d.quality[0]
    assert line.level is Level.WARN
    assert "was analysed: the whole run does not fit into" in line.text
    assert "--memory" in line.hint


def test_a_window_of_the_user_is_never_cut(diagnose, tiny):
    d = diagnose(run(), window_ns=(0, 50_000), memory_bytes=1_000)
    assert d.overview.n_kernels == 500


def test_a_table_without_times_has_no_beginning_to_cut_to(tiny, tmp_path):
    path = run().write(tmp_path / "r.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN start")
    connection.close()
    d = engine.analyze(path, options=OpenOptions(memory_bytes=1_000))
    assert d.overview.n_kernels == 0
    assert any("lacks a column" in q.text for q in d.quality)
    with pytest.raises(EmptyWindowError):
        engine.analyze(path, options=OpenOptions(window_ns=(10**9, 2 * 10**9), memory_bytes=1_000))


def test_default_is_half_of_what_is_free():
    assert 0 < loader.default_bytes() < loader._available()
