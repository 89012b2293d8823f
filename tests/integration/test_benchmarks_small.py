"""The benchmarks run at a tiny size and compare like with like; no time is judged."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import suites
from benchmarks.generate import Size, generate
from benchmarks.goals import Verdict, exponent, verdicts
from benchmarks.loads import MODULES, WAYS, WORKS, load
from benchmarks.nesting import attribute, write_nested
from benchmarks.processes import Case, Run, Series, interleaved, measure, python
from benchmarks.report import as_markdown, replace_block
from tracekit.engine import analyze
from tracekit.io.nsys.reader import ReportReader
from tracekit.io.run.loader import BYTES_PER_ROW, LEAST_BYTES, SPARING_FRAC, needed_bytes
from tracekit.io.source import open_source
from tracekit.opening import OpenOptions

proc_only = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="anonymous memory is read from /proc"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("generated") / "report.sqlite"
    generate(path, Size(4_096, ranks=4))
    return path


def test_the_same_seed_gives_the_same_file(report, tmp_path):
    again, other = tmp_path / "again.sqlite", tmp_path / "other.sqlite"
    generate(again, Size(4_096, ranks=4))
    generate(other, Size(4_096, ranks=4, seed=8))
    assert again.read_bytes() == report.read_bytes() != other.read_bytes()


def test_two_kernels_in_sixteen_are_collectives_and_ranges_nest(report):
    db = sqlite3.connect(report)
    kernels = "FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName"
    (n,) = db.execute(f"SELECT count(*) {kernels}").fetchone()
    (nccl,) = db.execute(f"SELECT count(*) {kernels} WHERE value LIKE 'nccl%'").fetchone()
    assert (n, nccl * 8) == (4_096, 4_096)
    spans = "SELECT start, end FROM NVTX_EVENTS WHERE eventType = 59 AND globalTid = ? ORDER BY 1"
    (thread,) = db.execute("SELECT globalTid FROM NVTX_EVENTS WHERE eventType = 59").fetchone()
    open_ends: list[int] = []
    for start, end in db.execute(spans, (thread,)):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1]
        open_ends.append(end)
    db.close()


def test_every_analysis_finds_something_to_judge(report):
    found = analyze([report])
    judged = {f.id.partition("/")[0] for f in found.findings if f.level.value != "unknown"}
    assert judged >= {"allreduce_contention", "dequant_stall", "kv_fragmentation"}


@pytest.mark.parametrize("work", WORKS)
def test_every_way_to_load_reads_the_same(report, work):
    sums = {}
    for way in WAYS:
        if way in MODULES and not _installed(MODULES[way]):
            print(f"{way} is not installed: not compared")
            continue
        said = load(way, work, report)
        sums[way] = (said.get("rows"), said.get("checksum"))
    assert sums.pop("cat") == (None, None)
    assert len(sums) >= 4
    assert len({str(s) for s in sums.values()}) == 1
    assert next(iter(sums.values()))[0] > 0


def _installed(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def test_quick_run_of_every_suite_writes_table_and_numbers(tmp_path, monkeypatch):
    docs, raw = tmp_path / "performance.md", tmp_path / "raw.json"
    docs.write_text("# Kept\n\n<!-- measured: begin -->\nold\n<!-- measured: end -->\n\nend\n")
    monkeypatch.setattr(command.shutil, "which", lambda _: None)
    # Every load runs in the test above; here one of them shows that the children do.
    monkeypatch.setattr(suites, "WORKS", dict([next(iter(WORKS.items()))]))
    places = ["--work", str(tmp_path / "work"), "--docs", str(docs), "--json", str(raw)]
    assert command.main(["--quick", *places]) == 0
    text = docs.read_text()
    assert text.startswith("# Kept\n\n<!--")
    assert text.endswith("-->\n\nend\n")
    assert "old" not in text
    content = json.loads(raw.read_text())
    assert {s["suite"] for s in content["series"]} == set(suites.SUITES)
    failed = [s for s in content["series"] if s["note"].startswith("failed")]
    assert failed == []
    assert all(s["runs"] or s["note"] == "not installed" for s in content["series"])
    assert all(r["seconds"] >= 0 for s in content["series"] for r in s["runs"])


def test_an_absent_tool_and_a_failing_one_are_said(tmp_path):
    bad = Series("tools", "all analyses", "bad")
    code = "import sys; sys.exit('no such thing')"
    interleaved([Case(bad, python("-c", code))], 3, lambda _: None)
    assert (bad.runs, bad.note) == ([], "failed: no such thing")
    dead = Series("loads", "a load", "dead")
    interleaved([Case(dead, python("-c", code), stays=True)], 3, lambda _: None)
    assert (dead.runs, dead.note) == ([], "failed: no such thing")
    gone = Series("tools", "all analyses", "gone", note="not installed")
    text = as_markdown([bad, gone], {"date": "today"})
    assert "failed: no such thing" in text
    assert "not installed" in text


@proc_only
def test_peak_memory_covers_children_of_the_child():
    hold = "x = b'1' * 50_000_000; sum(range(20_000_000))"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}], check=True)"
    run = measure(Case(Series("", "", ""), python("-c", code)))
    assert run.peak_bytes is not None
    assert 50_000_000 < run.peak_bytes < 150_000_000


def test_rounds_begin_at_another_case_each_time():
    seen: list[str] = []
    cases = [Case(Series("s", "w", way), python("-c", "pass")) for way in "abc"]
    interleaved(cases, 3, lambda text: seen.append(text[-1]))
    assert "".join(seen) == "abcbcacab"


def test_exponents_and_goals_are_arithmetic():
    assert exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2.0)
    assert exponent([4], [1]) is None
    assert Verdict("g", "x", 25, True, 20).miss == pytest.approx(1.25)
    assert Verdict("g", "x", 1.5, False, 3.0).miss == pytest.approx(2.0)
    assert Verdict("g", "x", 25, True, 25).met is True
    assert Verdict("g", "x", 25, True, None).met is None
    work = "kernel, 8 of 28 columns"
    times = {"tracekit pages": 0.5, "pandas.read_sql": 10.0, "cat": 0.25}
    series = [Series("loads", work, w, 1, [Run(s, s, None, 0)]) for w, s in times.items()]
    measured = {v.goal: v.measured for v in verdicts(series)}
    assert measured[f"{work}: tracekit against pandas.read_sql"] == pytest.approx(20)
    assert measured[f"{work}: tracekit against cat"] == pytest.approx(2)
    assert measured[f"{work}: tracekit against connectorx"] is None
    # Where the large report was loaded too, that is what counts.
    times = {"tracekit pages": 2.0, "cat": 1.6}
    series += [Series("large-loads", work, w, 1, [Run(s, s, None, 0)]) for w, s in times.items()]
    measured = {v.goal: v.measured for v in verdicts(series)}
    assert measured[f"{work}: tracekit against cat"] == pytest.approx(1.25)
    assert measured[f"{work}: tracekit against pandas.read_sql"] == pytest.approx(20)


def test_block_is_added_once_and_then_replaced():
    once = replace_block("# P\n", "one\n")
    assert replace_block(once, "two\n") == once.replace("one", "two")


def test_a_budget_that_binds_is_kept_said_and_output_does_not_grow(tmp_path):
    rows = {**suites.ROWS_PER_KERNEL, "gpu_metrics": 0.5}
    per_kernel = SPARING_FRAC * sum(n * BYTES_PER_ROW[table] for table, n in rows.items())
    printed, cut = [], []
    for share in (0.1, 1.5):
        kernels = round(share * LEAST_BYTES / per_kernel)
        path = tmp_path / f"{kernels}.sqlite"
        generate(path, Size(kernels, samples_per_kernel=0.5))
        with open_source(path) as source:
            needed = needed_bytes([ReportReader(source, 0, path.name, "")])
        series = Series("l06", "all analyses", "tracekit")
        words = ["-m", "tracekit", "analyze", str(path), "--memory", "1MB"]
        run = measure(Case(series, python(*words)))
        printed.append(run.output_bytes)
        found = analyze(path, options=OpenOptions(memory_bytes=1))
        cut.append([q.text for q in found.quality if "memory" in q.text.lower()])
        assert bool(cut[-1]) == (SPARING_FRAC * needed > LEAST_BYTES)
    assert not cut[0]
    assert cut[1]
    assert printed[1] < printed[0] + 2_000


@proc_only
def test_deep_nesting_of_200k_ranges_and_kernels_is_bounded(tmp_path):
    series = Series("nesting", "innermost ranges", "tracekit")
    words = python("-m", "benchmarks.nesting", "200000", str(tmp_path))
    case = Case(series, words, reports=True)
    measure(case)  # compiles what is not in the cache yet
    run = measure(case)
    assert run.said["rows"] == 200_000
    assert run.peak_bytes is not None
    assert run.peak_bytes - run.said["before_bytes"] < 300_000_000


def test_small_twin_agrees_with_a_search_of_every_range(tmp_path):
    path = tmp_path / "nested.sqlite"
    expected = write_nested(path, 400)
    db = sqlite3.connect(path)
    ranges = db.execute("SELECT start, end FROM NVTX_EVENTS ORDER BY start").fetchall()
    calls = db.execute("SELECT start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY 1").fetchall()
    db.close()
    slow = [max(i for i, (start, end) in enumerate(ranges) if start <= t < end) for (t,) in calls]
    assert slow == expected.tolist()
    assert np.array_equal(attribute(path), expected)
