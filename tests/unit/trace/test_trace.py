"""What a trace keeps, and for how long."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import polars as pl
import pytest

from tracekit.model.catalog import CATALOG
from tracekit.model.inputs import Report
from tracekit.trace import Trace, UndeclaredTableError, View, view
from tracekit.trace import views as kept
from tracekit.trace.views import StoppedError


class Counting:
    """A loader that counts; its tables have one row."""

    def __init__(self) -> None:
        self.loads: Counter[str] = Counter()

    def load(self, name: str) -> pl.DataFrame:
        self.loads[name] += 1
        schema = CATALOG[name].table.schema
        return pl.DataFrame({c: [None] for c in schema}, schema=schema)

    def load_samples(self, metrics: object) -> pl.DataFrame:
        self.loads["samples"] += 1
        return pl.DataFrame({"t_ns": [1]})


@pytest.fixture
def calls() -> Counter[str]:
    return Counter()


@pytest.fixture
def views(calls: Counter[str]) -> dict[str, View]:
    """A chain: `last` and `other` call `middle`, which calls `first`."""

    @view
    def first(trace: Trace) -> int:
        calls["first"] += 1
        return trace.frame("kernels").height

    @view
    def middle(trace: Trace) -> int:
        calls["middle"] += 1
        return first(trace) + 1

    @view
    def last(trace: Trace) -> int:
        calls["last"] += 1
        return trace.frame("runtime").height + middle(trace)

    @view
    def other(trace: Trace) -> int:
        calls["other"] += 1
        return trace.frame("nvtx").height + middle(trace)

    return {"first": first, "middle": middle, "last": last, "other": other}


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    monkeypatch.setattr(kept, "SMALL_ROWS", 1)
    return Trace(Counting(), (Report(0, "r", "x"),))


def _loads(trace: Trace) -> dict[str, int]:
    return dict(trace.loader.loads)


def test_without_a_plan_everything_is_computed_once(trace, views, calls):
    assert [views["last"](trace), views["other"](trace), views["last"](trace)] == [3, 3, 3]
    assert calls == {"first": 1, "middle": 1, "last": 1, "other": 1}
    assert trace.frame("kernels").height == 1
    assert _loads(trace) == {"kernels": 1, "runtime": 1, "nvtx": 1}


def test_a_plan_computes_everything_once_and_keeps_only_what_is_asked_for(trace, views, calls):
    trace.plan({"a": ([views["last"]], []), "b": ([views["other"]], [])})
    assert views["last"](trace) == 3
    assert "kernels" not in trace._cache.frames.names()
    assert views["first"].name not in trace._cache.views.names()
    assert views["middle"].name in trace._cache.views.names()
    trace.finish("a")
    assert views["last"].name not in trace._cache.views.names()
    assert views["other"](trace) == 3
    assert calls == {"first": 1, "middle": 1, "last": 1, "other": 1}
    assert _loads(trace) == {"kernels": 1, "runtime": 1, "nvtx": 1}


def test_what_was_evicted_is_computed_again(trace, views, calls):
    trace.plan({"a": ([views["last"]], [])})
    views["last"](trace)
    assert views["first"](trace) == 1
    assert calls["first"] == 2
    assert _loads(trace) == {"kernels": 2, "runtime": 1}


def test_a_table_that_a_part_of_the_plan_reads_stays_until_the_part_is_finished(trace, views):
    trace.plan({"a": ([views["first"]], ["kernels"])})
    views["first"](trace)
    assert "kernels" in trace._cache.frames.names()
    trace.finish("a")
    assert "kernels" not in trace._cache.frames.names()


def test_small_tables_stay(trace, views, monkeypatch):
    monkeypatch.setattr(kept, "SMALL_ROWS", 2)
    trace.plan({"a": ([views["first"]], [])})
    views["first"](trace)
    assert "kernels" in trace._cache.frames.names()


def test_computing_the_readers_of_a_table_evicts_it(trace, views, calls):
    trace.plan({"a": ([views["last"], views["other"]], [])})
    trace.compute_readers_of("runtime")
    assert calls == {"first": 1, "middle": 1, "last": 1}
    assert "runtime" not in trace._cache.frames.names()


def test_samples_count_as_their_table(trace):
    @view
    def sampled(trace: Trace) -> int:
        return trace.samples(["a"]).height

    trace.plan({"a": ([sampled], [])})
    assert sampled(trace) == 1
    assert list(trace._cache.frames._values) == []


def test_threads_that_ask_for_one_view_compute_it_once(trace, views, calls):
    together = Barrier(4)

    def ask(name: str) -> int:
        together.wait()
        return views[name](trace)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, ["last", "other", "last", "other"])) == [3, 3, 3, 3]
    assert calls == {"first": 1, "middle": 1, "last": 1, "other": 1}


def test_a_view_cannot_read_a_table_that_its_code_does_not_name(trace):
    @view("kernels")
    def sly(trace: Trace) -> pl.DataFrame:
        return trace.frame("emitnur"[::-1])

    with pytest.raises(UndeclaredTableError, match="runtime is not declared"):
        sly(trace)


def test_a_stopped_trace_gives_what_it_has_and_computes_nothing_more(trace, views, calls):
    assert views["first"](trace) == 1
    trace.stop()
    assert views["first"](trace) == 1
    with pytest.raises(StoppedError):
        views["last"](trace)
    assert calls == {"first": 1}


def test_somebody_is_told_how_many_rows_were_read(trace, monkeypatch):
    from tracekit.trace import trace as model

    told: list[str] = []
    monkeypatch.setattr(model, "SMALL_ROWS", 1)
    monkeypatch.setattr(model, "perf_counter", iter([10.0, 10.5]).__next__)
    trace.report_progress(told.append)
    trace.frame("kernels")
    trace.frame("kernels")
    assert told == ["1 rows of kernels read, 0.0M rows/s"]
