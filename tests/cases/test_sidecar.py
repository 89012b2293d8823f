"""Marker files of the injector as inputs, alone and beside a report."""

from __future__ import annotations

import json

import pytest

from tests.support.builders import Export
from tracekit.engine import analyze
from tracekit.errors import DamagedReportError
from tracekit.model.finding import Level
from tracekit.opening import OpenOptions, open_trace
from tracekit.views.launches.attribution import attribution
from tracekit.views.nvtx.ranges import marks, ranges

BOOT = 5_000_000_000_000
"""CLOCK_MONOTONIC at session time 0."""
UTC = 1_764_470_000_000_000_000


def sidecar(path, records, *, cut=False, version=1):
    """Write a marker file of (start, end|None, text) in session time and return its path."""
    head = {
        "tracekit_sidecar": version,
        "grammar": "tk1",
        "clock": "CLOCK_MONOTONIC",
        "pid": 100,
        "mono_ns": BOOT,
        "utc_ns": UTC,
    }
    lines = [json.dumps(head, separators=(",", ":"))]
    for start, end, text in records:
        line = {"t_mono_ns": BOOT + start, "pid": 100, "tid": 100, "text": text}
        lines.append(json.dumps(line if end is None else line | {"end_mono_ns": BOOT + end}))
    path.write_text("\n".join(lines) + ("\n" if not cut else '\n{"t_mono_ns": 12'))
    return path


CACHE = [
    (10, None, "KV_REALLOC layer=0 kind=k addr=0x1000 bytes=100 seq_len=1"),
    (20, None, "KV_REALLOC layer=0 kind=k addr=0x9000 bytes=200 seq_len=2"),
]


def test_alone_it_is_a_report_without_device_work(tmp_path):
    path = sidecar(tmp_path / "run.markers.jsonl", CACHE, cut=True)
    d = analyze([path])
    assert d.overview.perspective == ("no accelerator activity recorded",)
    assert d.reports[0].tables["nvtx"] == 2
    assert d.reports[0].product == "marker file of tracekit run"
    assert d.quality == ()
    assert (
        analyze(path, options=OpenOptions(redact="yes")).reports[0].product == d.reports[0].product
    )
    with open_trace([path]) as trace:
        assert marks(trace)["t_ns"].to_list() == [0, 10]
    assert any(
        f.id.startswith("kv_fragmentation") and f.level is not Level.UNKNOWN for f in d.findings
    )


def test_a_report_takes_it_onto_its_clock_by_sync_markers(tmp_path):
    e = Export().kernel(1_000, 1_100, "nvjet_tst_64x8", launch=50)
    for at in (1, 2, 400):
        e.mark(at, f"SYNC mono_ns={BOOT + at + (7 if at == 2 else 0)}")
    report = e.write(tmp_path / "run.sqlite")
    path = sidecar(tmp_path / "run.markers.jsonl", [*CACHE, (40, 60, "STEP step=3 phase=decode")])
    with open_trace([report, path]) as trace:
        assert trace.unreadable == {}
        assert ranges(trace).select("start_ns", "end_ns", "text").rows() == [
            (40, 60, "STEP step=3 phase=decode")
        ]
        assert attribution(trace)["step"].to_list() == [0]
        note = "3 markers from run.markers.jsonl, placed by 3 SYNC markers (MAD 0 ns)"
        assert note in trace.reports[0].notes


def test_without_sync_markers_the_wall_clock_places_it(tmp_path):
    e = Export().kernel(1_000, 1_100, "nvjet_tst_64x8", launch=50)
    e.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=UTC)
    report = e.write(tmp_path / "run.sqlite")
    path = sidecar(tmp_path / "run.markers.jsonl", [(40, 60, "STEP step=3")])
    with open_trace([path, report]) as trace:
        assert ranges(trace)["start_ns"].to_list() == [40]
        assert any("wall clock" in n for n in trace.reports[0].notes)


def test_a_marker_file_of_another_run_is_set_aside(tmp_path):
    report = Export().kernel(0, 10, "nvjet_tst_64x8").write(tmp_path / "run.sqlite")
    path = sidecar(tmp_path / "other.markers.jsonl", CACHE)
    d = analyze([report, path], only=["dequant_stall"])
    assert d.unreadable == {"other.markers.jsonl": "markers of another run than the reports"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"tracekit_sidecar":9,"mono_ns":1,"utc_ns":2}\n', "format 9"),
        ('{"tracekit_sidecar":1}\n', "damaged marker file"),
        ('{"tracekit_sidecar":1,"mono_ns":1,"utc_ns":2}\nno json\n', "damaged marker file"),
    ],
)
def test_damaged_marker_files_are_refused_in_one_line(tmp_path, content, says):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(DamagedReportError, match=says):
        analyze([path])


def test_markers_that_lie_beside_a_report_and_were_not_given_are_named(tmp_path):
    report = Export().kernel(1_000, 1_100, "nvjet_tst_64x8").write(tmp_path / "run.sqlite")
    beside = sidecar(tmp_path / "run.markers.jsonl", CACHE)
    said = "run.markers.jsonl lies next to run.sqlite and was not given"
    assert any(q.text.startswith(said) for q in analyze([report]).quality)
    assert not any(said in q.text for q in analyze([report, beside]).quality)
    assert not any(said in q.text for q in analyze([tmp_path]).quality)
