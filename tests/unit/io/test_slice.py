"""Slices: which rows come along, what the file holds, that it reads back as it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import polars as pl
import pytest

from tests.support.builders import Export, gid
from tracekit.bundle.anonymous import anonymous
from tracekit.bundle.export import PASSING, cut, n_events, write_slice
from tracekit.model.catalog import CATALOG
from tracekit.opening import OpenOptions, open_trace

COUNTER = "GR Active [Throughput %]"
LEFT_OUT = {
    "kernels": set(),
    "nvtx": {"text_id", "json_text", "json_text_id"},
    "nvtx_schemas": {"name"},
    "overhead": {"name_id"},
    "gpus": {"_uuid", "_bus"},
    "cuda_devices": {"_uuid"},
}
TABLES_LEFT_OUT = {
    "strings",
    "diagnostics",
    "session",
    "capture",
    "gpu_metrics",
    "metric_names",
    "ncu_kernels",
    "osrt",
    "cpu_samples",
    "cpu_frames",
    "sched",
    "peer_copies",  # its rows pass as those of memcpy
}
PACKED = {"_global_pid", "_global_tid", "_end_global_tid"}


def test_every_column_of_the_catalog_passes_or_is_left_out_on_purpose():
    assert set(CATALOG) - set(PASSING) == TABLES_LEFT_OUT
    for name, columns in PASSING.items():
        known = {f.name for f in CATALOG[name].fields}
        assert set(columns.split()) <= known
        assert known - set(columns.split()) - PACKED == LEFT_OUT.get(name, set()), name


def run(folder):
    """Three kernels, each launched long before it runs, with ranges, marks and samples."""
    export = Export().gpu().domain(2, "NCCL")
    for i in range(3):
        start = 1_000_000 * (i + 1)
        export.kernel(start, start + 1000, f"gemm_{i}", launch=start - 400_000)
        export.range(start - 450_000, start - 390_000, f"layer {i}")
        export.mark(start, f"KV_BLOCK layer={i} seq=0 block=0 addr=0x7f0000000000 bytes=64")
    export.mark(0, "KV_POOL layer=0 kind=k addr=0x7f0000000000 bytes=4096 blocks=64")
    export.range(100, None, "step 1")
    export.metric(COUNTER, range(0, 4_000_000, 50_000), [50] * 80)
    allocation = {"start": 10, "globalPid": gid(100), "address": 0x7F00_0000_0000, "bytes": 4096}
    what = {"deviceId": 0, "memKind": 2, "memoryOperationType": 0}
    export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", **allocation, **what)
    export.add("META_DATA_CAPTURE", name="GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY", value="20000")
    export.add("ANALYSIS_DETAILS", duration=5_000_000)
    return export.write(folder / "run.sqlite")


def sliced(path, target, window=None, *, hash_names=False):
    with open_trace(path, options=OpenOptions(redact="yes")) as redacted:
        trace, _ = anonymous(redacted, hash_names=hash_names)
        frames = cut(trace, 0, window, frozenset([COUNTER]))
        write_slice(trace, 0, frames, target, window=window)
        return n_events(frames)


def canonical(path, redact="no"):
    with open_trace(path, options=OpenOptions(redact=redact)) as trace:
        trace, _ = anonymous(trace)
        return {n: trace.frame(n) for n in CATALOG} | {"samples": trace.samples([COUNTER])}


def test_a_slice_of_everything_reads_back_as_the_anonymous_trace(tmp_path):
    path = run(tmp_path)
    sliced(path, tmp_path / "slice.sqlite")
    before, after = canonical(path, "yes"), canonical(tmp_path / "slice.sqlite")
    for name in sorted(set(PASSING) | {"samples"}):
        frame, again = before[name], after[name]
        ids = [c for c in ("name_id", "mangled_id", "short_id", "text_id") if c in frame.columns]
        assert again.drop(ids).equals(frame.drop(ids)), name
    names = [
        f["kernels"].join(f["strings"], left_on="name_id", right_on="id")["value"].to_list()
        for f in (before, after)
    ]
    assert names[0] == names[1] == ["gemm_0", "gemm_1", "gemm_2"]


def test_a_window_brings_what_explains_its_work(tmp_path):
    path = run(tmp_path)
    sliced(path, tmp_path / "slice.sqlite", (1_999_900, 2_000_100))
    found = canonical(tmp_path / "slice.sqlite")
    assert found["kernels"]["start_ns"].to_list() == [2_000_000]
    assert found["runtime"]["start_ns"].to_list() == [1_600_000]
    texts = found["nvtx"].filter(pl.col("event_type") != 75)["text"].to_list()
    assert [t.split(" addr")[0] for t in texts] == [
        "layer 1",
        "KV_BLOCK layer=1 seq=0 block=0",
        "KV_POOL layer=0 kind=k",
        "step 1",
    ]
    assert found["nvtx"].filter(pl.col("event_type") == 75)["text"].to_list() == ["NCCL"]
    assert found["strings"]["value"].to_list() == ["cudaLaunchKernel_v7000", "gemm_1"]
    assert found["samples"]["t_ns"].to_list() == list(range(1_900_000, 2_100_001, 50_000))
    assert found["memory_events"]["addr"].to_list() == [1 << 32]
    assert found["capture"]["duration_ns"].to_list() == [2_000_100]


def test_a_window_without_anything_holds_no_event(tmp_path):
    export = Export().gpu().kernel(0, 100)
    path = export.write(tmp_path / "run.sqlite")
    assert sliced(path, tmp_path / "slice.sqlite", (10_000, 20_000)) == 0


def test_a_slice_has_the_same_bytes_again_and_nothing_unused(tmp_path):
    path = run(tmp_path)
    for name in ("a.sqlite", "b.sqlite"):
        sliced(path, tmp_path / name, (1_500_000, 2_500_000))
    assert (tmp_path / "a.sqlite").read_bytes() == (tmp_path / "b.sqlite").read_bytes()
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA freelist_count").fetchone() == (0,)
        export = dict(db.execute("SELECT name, value FROM META_DATA_EXPORT").fetchall())
    assert export["TRACEKIT_SLICE_NS"] == "1500000:2500000"
    assert export["EXPORT_SCHEMA_VERSION"] == "3.20.3"


@pytest.mark.parametrize("hash_names", [False, True])
def test_names_pass_or_are_hashed(tmp_path, hash_names):
    sliced(run(tmp_path), tmp_path / "slice.sqlite", hash_names=hash_names)
    values = canonical(tmp_path / "slice.sqlite")["strings"]["value"].to_list()
    kernels = [v for v in values if not v.startswith("cuda")]
    assert len(kernels) == 3
    assert all(v.startswith("gemm<h" if hash_names else "gemm_") for v in kernels)
    assert "cudaLaunchKernel_v7000" in values


def test_a_slice_without_described_gpus_keeps_its_samples_on_the_device(tmp_path):
    export = Export().kernel(0, 1000, "gemm", device=1)
    export.metric(COUNTER, [0, 100], [1, 2], device=1)
    path = export.write(tmp_path / "run.sqlite")
    sliced(path, tmp_path / "slice.sqlite")
    assert canonical(tmp_path / "slice.sqlite")["samples"]["value"].to_list() == [1, 2]
