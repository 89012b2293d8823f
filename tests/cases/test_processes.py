"""Processes, devices and what a capture failed to see."""

from __future__ import annotations

import polars as pl

from tests.support.builders import Export, gid
from tracekit.model.finding import Level
from tracekit.views.device.activity import activity, device_ids, identified
from tracekit.views.launches.attribution import attribution


def test_correlation_ids_are_per_process(trace_of):
    e = Export()
    for pid in (100, 200):
        for c in (1, 2, 3):
            at = 1_000 * c + pid
            e.kernel(at, at + 10, "nvjet_tst_64x8", pid=pid, correlation=c, launch=c + pid)
    trace = trace_of(e)
    work, found = identified(trace, activity(trace)), attribution(trace)
    assert found.height == work.height == 6
    correlation = device_ids(trace).correlation
    assert (found["launch_start_ns"] - correlation - work["pid"]).to_list() == [0] * 6
    assert (work["end_ns"] - work["start_ns"]).sum() == 60


def test_packed_ids(trace_of):
    e = Export().call(0, 5, "cudaLaunchKernel", pid=4321, tid=4399, correlation=1)
    row = trace_of(e).frame("runtime").row(0, named=True)
    assert (row["pid"], row["tid"]) == (4321, 4399)
    assert gid(4321, 4399) & ~0xFFFFFF == gid(4321)


def test_launches_without_device_records(diagnose):
    e = Export()
    for i in range(50):
        e.call(i * 10, i * 10 + 5, "cudaLaunchKernel_v7000", correlation=i)
    d = diagnose(e)
    assert "50 kernel launches on the host but 0 device records" in d.overview.perspective[0]
    assert d.overview.gpus == ()
    assert {f.level for f in d.findings} == {Level.UNKNOWN}


def test_no_gpu_table_still_gives_devices_without_a_peak(diagnose):
    d = diagnose(Export().kernel(0, 10, "nvjet_tst_64x8", device=3))
    assert [(g.index, g.bandwidth_bytes_per_s) for g in d.gpus] == [(0, None)]
    assert [g.gpu for g in d.overview.gpus] == [0]


def test_unused_gpus_are_not_averaged_in(diagnose):
    e = Export()
    for i in range(8):
        e.gpu(i)
    e.kernel(0, 10, "nvjet_tst_64x8", device=1).kernel(0, 10, "nvjet_tst_64x8", device=6)
    d = diagnose(e)
    assert [g.gpu for g in d.overview.gpus] == [1, 6]
    assert [g.index for g in d.gpus if g.used] == [1, 6]


def test_devices_that_no_table_describes_are_gpus_of_their_own(diagnose):
    e = Export().gpu(0).memcpy(5, 10, device=7)
    e.kernel(0, 10, "nvjet_tst_64x8", device=0).kernel(0, 10, "nvjet_tst_64x8", device=5)
    d = diagnose(e)
    assert [(g.index, g.used) for g in d.gpus] == [(0, True), (1, True), (2, True)]
    assert {g.gpu: g.busy_ns for g in d.overview.gpus} == {0: 10, 1: 10, 2: 5}


def test_a_second_cupti_user_is_quoted(diagnose):
    e = Export().call(0, 5, "cudaLaunchKernel", correlation=1)
    text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED in /usr/lib/libcupti.so"
    e.add("DIAGNOSTIC_EVENT", timestamp=1, severity=3, text=text)
    line = diagnose(e).quality[0]
    assert line.text.endswith("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED in <path>")
    assert "record again" in line.hint


def test_devices_are_told_apart_by_process_and_by_physical_gpu(trace_of):
    """Ordinal 0 of two processes may be two different cards."""
    e = Export().gpu(0).gpu(1)
    e.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=100)
    e.add("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=200)
    e.kernel(0, 10, "nvjet_tst_64x8", device=0, pid=100)
    e.kernel(5, 15, "nvjet_tst_64x8", device=0, pid=200)
    trace = trace_of(e)
    work = identified(trace, activity(trace))
    assert work.select("pid", "gpu").rows() == [(100, 0), (200, 1)]
    assert work.schema["gpu"] == pl.Int16


def test_kernels_of_no_class_keep_their_share_and_are_warned_about(diagnose):
    e = Export().kernel(0, 100_000, "nvjet_tst_64x8").kernel(100_000, 200_000, "foo")
    d = diagnose(e)
    shares = {c.kind: c.frac for c in d.overview.classes}
    assert shares == {"gemm": 0.5, "unclassified": 0.5}
    assert d.overview.unclassified_frac == 0.5
    warned = [q for q in d.quality if "unclassified" in q.text]
    assert [q.level for q in warned] == [Level.WARN]
    assert warned[0].text.startswith("50.0% of kernel time is unclassified")
