"""Idle time by cause on small hand-made traces; times in us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.builders import Export
from tracekit.engine import analyze
from tracekit.model.finding import Level
from tracekit.views.idle.copies import copy_sites, device_time
from tracekit.views.idle.sites import sites

US = 1_000
PAGEABLE, PINNED, DEVICE = 0, 1, 2
HTOD, DTOH = 1, 2


def us(value: float) -> int:
    return round(value * US)


class Host(Export):
    """An export whose rows are given in us, calls with their work."""

    def __init__(self) -> None:
        super().__init__()
        self.gpu()
        self._next = 1

    def op(self, start, end, launch=None, *, name="foo", call="cudaLaunchKernel_v7000", **values):
        """Add a kernel, and its launch call ``(start, end)``."""
        correlation = self._next
        self._next += 1
        if launch is not None:
            tid = values.pop("tid", 100)
            self.call(us(launch[0]), us(launch[1]), call, tid=tid, correlation=correlation)
        self.kernel(us(start), us(end), name, correlation=correlation, **values)
        return self

    def host(self, start, end, name, **values):
        """Add a call without work."""
        self.call(us(start), us(end), name, correlation=self._next, **values)
        self._next += 1
        return self

    def copy(self, start, end, launch, *, kind=HTOD, memory=PAGEABLE, call="cudaMemcpyAsync", **v):
        """Add a copy between host memory of a kind and the device."""
        correlation = self._next
        self._next += 1
        if launch is not None:
            self.call(us(launch[0]), us(launch[1]), call, correlation=correlation)
        kinds = {"srcKind": memory, "dstKind": DEVICE}
        if kind == DTOH:
            kinds = {"srcKind": DEVICE, "dstKind": memory}
        row = {"correlationId": correlation, **kinds, **v}
        return self.memcpy(us(start), us(end), kind=kind, **row)

    def wait_for_event(self, at, stream):
        """Make a stream wait for an event."""
        self.call(us(at), us(at + 0.5), "cudaStreamWaitEvent", correlation=self._next)
        self.add(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            start=us(at),
            end=us(at),
            deviceId=0,
            contextId=1,
            streamId=stream,
            correlationId=self._next,
            globalPid=(1 << 56) | (100 << 24),
            syncType=2,
            eventId=1,
            eventSyncId=1,
        )
        self._next += 1
        return self


def causes(tmp_path: Path, export: Export) -> dict[str, float]:
    """Idle time of the whole span by cause, us."""
    found = analyze([export.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    rows = found.frames["idle_gaps"]["causes"]
    rows = rows.filter(rows["where"] == "whole span")
    return {cause: time / US for cause, time in rows.select("cause", "time_ns").rows()}


def test_launching_takes_longer_than_running(tmp_path):
    e = Host().op(6, 10, (0, 5)).op(24, 30, (20, 26))
    assert causes(tmp_path, e) == {"launch_rate": 14}


def test_what_was_launched_in_time_starts_at_once(tmp_path):
    e = Host().op(6, 40, (0, 5)).op(41.2, 50, (8, 12))
    assert causes(tmp_path, e) == {"dispatch": pytest.approx(1.2)}


def test_a_wait_and_what_directly_follows_it(tmp_path):
    e = Host().op(6, 50, (0, 5)).host(8, 55, "cudaStreamSynchronize_v3020")
    assert causes(tmp_path, e.op(65, 70, (60, 66))) == {"sync": 15}


def test_long_host_work_behind_a_wait_is_host_work(tmp_path, traced):
    e = Host().op(6, 50, (0, 5)).host(8, 55, "cudaStreamSynchronize_v3020")
    e = e.op(305, 310, (300, 306))
    assert causes(tmp_path, e) == {"sync": 5, "host_gap": 250}
    row = sites(traced(e)).row(0, named=True)
    assert (row["cause"], row["call"], row["after_wait"]) == (
        *("host_gap", "cudaStreamSynchronize", True),
    )
    assert (row["next_call"], row["in_call_ns"]) == ("cudaLaunchKernel", 5_000)


def test_an_allocation_between_two_launches(tmp_path):
    e = Host().op(6, 10, (0, 5)).host(12, 32, "cudaMalloc_v3020").op(45, 50, (40, 46))
    assert causes(tmp_path, e) == {"allocation": 20, "launch_rate": 15}


def test_a_stream_that_waits_for_an_event(tmp_path):
    e = Host().op(6, 10, (0, 1), stream=1).wait_for_event(1.2, 2)
    assert causes(tmp_path, e.op(14, 20, (2, 5), stream=2)) == {"event_wait": 4}


def test_late_without_a_reason_in_the_recording(tmp_path):
    e = Host().op(6, 10, (0, 5)).op(60, 70, (6, 9))
    assert causes(tmp_path, e) == {"queued_late": 50}


def test_inside_a_graph_and_between_two(tmp_path):
    e = Host()
    e.call(us(-4), us(-1), "cudaGraphLaunch_v10000", correlation=900)
    e.kernel(us(0), us(5), "a", correlation=900, graphNodeId=1)
    e.kernel(us(5.2), us(8), "b", correlation=900, graphNodeId=2)
    e.host(5, 6, "cudaMemsetAsync_v3020")
    e.call(us(10), us(30), "cudaGraphLaunch_v10000", correlation=901)
    e.kernel(us(25), us(27), "a", correlation=901, graphNodeId=1)
    assert causes(tmp_path, e) == {
        "graph_internal": pytest.approx(0.2),
        "launch_rate": 2,
        "graph_launch": 15,
    }


def test_a_wait_that_begins_after_the_gap_is_not_its_cause(tmp_path):
    e = Host().op(6, 10, (0, 5)).host(12, 14, "cudaStreamSynchronize").op(24, 30, (20, 26))
    assert causes(tmp_path, e) == {"launch_rate": 14}


def test_a_copy_to_the_host_and_the_wait_behind_it_are_one(tmp_path, traced):
    e = Host().copy(4, 9, (0, 8), kind=DTOH, memory=PINNED).host(10, 13, "cudaStreamSynchronize")
    e = e.op(22, 25, (18, 23))
    assert causes(tmp_path, e) == {"sync": 13}
    assert sites(traced(e))["call"].to_list() == ["copy + cudaStreamSynchronize"]


def test_a_copy_from_pinned_memory_at_the_links_limit(traced):
    e = Host().copy(0, 100, (-5, -2), memory=PINNED, nbytes=5_500_000).op(100, 200, (-1, 0))
    trace = traced(e)
    row = copy_sites(trace).row(0, named=True)
    assert (row["exposed_ns"], row["gb_per_s"], row["memory"]) == (100_000, 55.0, "pinned")
    assert row["gb_per_s"] / row["link_gb_per_s"] == pytest.approx(0.873, abs=5e-4)
    (time,) = device_time(trace)
    assert (time.span_ns - time.busy_ns, time.copy_only_ns) == (0, 100_000)


def test_small_copies_get_no_verdict_on_their_rate(tmp_path):
    e = Host().copy(0, 100, (-5, 99), nbytes=780_000).op(100, 200, (99.5, 100))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    row = d.frames["idle_gaps"]["copies"].row(0, named=True)
    assert (row["gb_per_s"], row["small"], row["link_frac"]) == (7.8, True, None)


def test_without_host_calls_the_cause_is_unknown(tmp_path):
    e = Host().op(0, 10).op(20, 30)
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    (finding,) = d.findings
    assert (finding.id, finding.level) == ("idle_gaps/unknown", Level.UNKNOWN)
    assert "host calls were not recorded" in finding.title
    assert "-t cuda" in finding.missing[0].command
    assert causes(tmp_path, e) == {"unknown": 10}


def test_one_operation_has_no_gap(tmp_path):
    assert causes(tmp_path, Host().op(0, 10, (-5, -1))) == {}


def test_operations_without_length_neither_end_nor_open_a_gap(tmp_path):
    e = Host().op(0, 10, (-5, -1)).op(12, 12, (11, 11.5)).op(20, 30, (13, 21))
    assert causes(tmp_path, e) == {"launch_rate": 10}


def test_of_operations_that_start_at_once_the_first_launched_ends_the_gap(tmp_path):
    e = Host().op(0, 10, (-5, -1))
    e.op(40, 50, (13, 41)).op(40, 45, (-0.5, 5), stream=9)
    assert causes(tmp_path, e) == {"launch_rate": 30}


def test_the_thread_of_the_launch_decides(tmp_path):
    """Another thread's wait is no reason that this one launches late."""
    e = Host().op(6, 50, (0, 5), tid=101).host(8, 55, "cudaStreamSynchronize", tid=102)
    assert causes(tmp_path, e.op(65, 70, (60, 66), tid=101)) == {"launch_rate": 15}


def test_correlation_ids_are_of_one_process(tmp_path):
    e = Host()
    e.kernel(us(0), us(10), correlation=1, pid=100)
    e.call(us(-5), us(-1), "cudaLaunchKernel", pid=100, tid=1, correlation=1)
    e.kernel(us(30), us(40), correlation=1, pid=200)
    e.call(us(28), us(31), "cudaLaunchKernel", pid=200, tid=2, correlation=1)
    # The second process made no enqueuing call before.
    assert causes(tmp_path, e) == {"host_gap": 20}


def test_polling_an_event_is_no_wait(tmp_path):
    e = Host().op(6, 50, (0, 5)).host(8, 55, "cudaEventQuery").op(65, 70, (60, 66))
    assert causes(tmp_path, e) == {"launch_rate": 15}


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cuLibraryLoadData", "module_load"),
        ("cuModuleLoadDataEx", "module_load"),
        ("cudaFreeHost_v3020", "allocation"),
        ("cuMemCreate", "allocation"),
        ("cudaGraphInstantiateWithFlags_v11040", "graph_build"),
        ("cudaStreamBeginCapture_v10000", "graph_build"),
    ],
)
def test_calls_with_a_cause_of_their_own(tmp_path, call, cause):
    e = Host().op(6, 10, (0, 5)).host(12, 32, call).op(45, 50, (40, 46))
    assert causes(tmp_path, e) == {cause: 20, "launch_rate": 15}


def test_the_profiler_goes_first(tmp_path):
    e = Host().op(6, 10, (0, 5)).host(12, 32, "cudaMalloc").op(45, 50, (40, 46))
    tid = (1 << 56) | (100 << 24) | 555
    e.add("PROFILER_OVERHEAD", start=us(20), end=us(36), globalTid=tid, nameId=e.string("Other"))
    assert causes(tmp_path, e) == {"profiler": 16, "allocation": 8, "launch_rate": 11}


def test_a_pageable_copy_is_staged_inside_its_call(tmp_path):
    e = Host().op(0, 10, (-5, -1)).copy(30, 50, (12, 49), nbytes=1 << 22)
    assert causes(tmp_path, e) == {"launch_rate": 2, "copy_staging": 18}


# The shapes below are those of recordings that users brought.


def test_the_wait_between_draft_and_verify_is_named(tmp_path):
    e, at = Host(), 0.0
    for step in range(20):
        e.range(us(at), us(at + 1995), f"step {step}")
        e.op(at + 10, at + 510, (at + 2, at + 8), name="draft")
        e.host(at + 12, at + 990, "cudaEventSynchronize")
        e.op(at + 1010, at + 1510, (at + 1000, at + 1008), name="verify")
        e.host(at + 1012, at + 1990, "cudaEventSynchronize")
        at += 2000
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    finding = d.findings[0]
    assert (finding.id, finding.level) == ("idle_gaps/sync", Level.CRITICAL)
    assert finding.title.startswith("the host waits in cudaEventSynchronize: GPU 0 is idle 49.")
    assert finding.gain is not None


def test_thousands_of_small_copies_are_one_site(tmp_path):
    e = Host()
    for step in range(10):
        at = step * 3000.0
        e.range(us(at), us(at + 2990), f"step {step}")
        for k in range(100):
            begun = at + 10 + 20 * k
            e.copy(begun, begun + 10, (begun - 8, begun - 4), memory=PINNED, nbytes=16384)
        e.op(at + 2010, at + 2900, (at + 2002, at + 2008))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    finding = next(f for f in d.findings if f.id == "idle_gaps/copies")
    assert finding.level is Level.CRITICAL
    assert finding.title.startswith("pinned HtoD copies of 16.4 kB, 100 a step, take 3")
    assert "each too small for its rate to matter" in finding.title
    assert finding.advice.startswith("Gather the many small copies into one")
    assert d.frames["idle_gaps"]["copies"].select("n", "per_step").row(0) == (1000, 100.0)


def test_peer_copies_are_exposed_too(tmp_path):
    e = Host()
    for k in range(64):
        e.copy(k * 20, k * 20 + 19, (k * 20 - 9, k * 20 - 5), kind=10, memory=DEVICE, nbytes=10**6)
    e.op(1280, 1800, (1270, 1275))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    finding = next(f for f in d.findings if f.id == "idle_gaps/copies")
    assert finding.level is not Level.OK
    assert finding.title.startswith("PtoP copies of 1.00 MB (64) take 67.6% of the span")


def test_pageable_and_pinned_copies_are_told_apart(tmp_path):
    e = Host()
    for k in range(8):
        pageable = k < 6
        at, length = k * 100.0, 80 if pageable else 10
        memory = PAGEABLE if pageable else PINNED
        e.copy(at, at + length, (at - 8, at - 3), kind=DTOH, memory=memory, nbytes=1 << 21)
    e.op(800, 900, (790, 795))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    rows = d.frames["idle_gaps"]["copies"].select("memory", "direction", "n", "time_ns").rows()
    assert rows == [("pageable", "DtoH", 6, 480_000), ("pinned", "DtoH", 2, 20_000)]
    finding = next(f for f in d.findings if f.id == "idle_gaps/copies")
    assert finding.title.startswith("pageable DtoH copies of 2.10 MB")


def test_a_graph_that_is_built_in_every_step(tmp_path):
    e = Host()
    for step in range(10):
        at = step * 1000.0
        e.range(us(at), us(at + 995), f"step {step}")
        e.host(at + 2, at + 52, "cudaStreamBeginCapture_v10000")
        e.host(at + 60, at + 250, "cudaGraphInstantiate_v12000")
        e.op(at + 262, at + 600, (at + 255, at + 260), call="cudaGraphLaunch_v10000")
        e.host(at + 601, at + 850, "cudaGraphInstantiate_v12000")
        e.op(at + 862, at + 990, (at + 855, at + 860), call="cudaGraphLaunch_v10000")
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    finding = next(f for f in d.findings if f.id == "idle_gaps/one-off")
    assert finding.title.startswith("cudaGraphInstantiate in every step: GPU 0 is idle")
    assert finding.level is Level.CRITICAL


def test_what_only_the_first_step_builds_is_harmless(tmp_path):
    e = Host()
    for step in range(10):
        at = step * 1000.0
        e.range(us(at), us(at + 995), f"step {step}")
        e.op(at + 6, at + 300, (at + 1, at + 5))
        if step == 0:
            e.host(at + 301, at + 840, "cudaMalloc_v3020")
            e.op(at + 850, at + 990, (at + 845, at + 849))
        else:
            e.op(at + 301, at + 990, (at + 6, at + 10))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    assert [(f.id, f.level) for f in d.findings] == [("idle_gaps/busy", Level.OK)]


def test_a_capture_that_ends_in_a_wait_says_how_long(tmp_path):
    e = Host()
    for step in range(100):
        e.op(step * 1000 + 10, step * 1000 + 900, (step * 1000, step * 1000 + 5))
    e.host(100_000, 60_100_000, "cuEventSynchronize")
    e.add("ANALYSIS_DETAILS", globalVid=0, duration=us(61_000_000), startTime=0, stopTime=0)
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    finding = next(f for f in d.findings if f.id == "idle_gaps/hang")
    assert finding.level is Level.WARN
    assert finding.title.startswith("the host waits 60.0 s in cuEventSynchronize after the last")


def test_graph_launches_without_device_rows_are_no_idle_time(tmp_path):
    e = Host()
    for k in range(1000):
        e.host(k * 10_000, k * 10_000 + 8, "cudaGraphLaunch_v10000")
    for k in range(20):
        e.op(k * 500_000, k * 500_000 + 1500, (k * 500_000 - 9, k * 500_000 - 2))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    incomplete = next(f for f in d.findings if f.id == "idle_gaps/incomplete")
    assert incomplete.level is Level.UNKNOWN
    assert incomplete.title.startswith(
        "device activity incomplete: 1,000 graph launches without device rows"
    )
    assert Level.OK not in {f.level for f in d.findings}


def test_launches_of_a_capture_need_no_device_rows(tmp_path):
    e = Host().host(0, 1, "cudaStreamBeginCapture_v10000")
    for k in range(50):
        e.host(2 + k, 2.5 + k, "cudaLaunchKernel_v7000")
    e.host(60, 61, "cudaStreamEndCapture_v10000").op(70, 80, (62, 65))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    row = d.frames["idle_gaps"]["summary"].row(0, named=True)
    assert (row["n_launches"], row["n_without_work"]) == (1, 0)


def test_calls_without_any_device_record(tmp_path):
    e = Host().host(0, 299_000, "cudaMemcpy_v3020").host(300_000, 599_000, "cudaMemcpy_v3020")
    e.host(600_000, 600_010, "cudaLaunchKernel_v7000")
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    (finding,) = d.findings
    assert (finding.id, finding.level) == ("idle_gaps/lost", Level.UNKNOWN)
    assert "device records were lost: 1 launches were called (host time 598 ms" in finding.title


def test_a_capture_with_hardly_any_work(tmp_path):
    e = Host().op(5, 6.47, (0, 4))
    e.add("ANALYSIS_DETAILS", globalVid=0, duration=us(880_000), startTime=0, stopTime=0)
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    (finding,) = d.findings
    assert finding.title == "no GPU work to speak of: 1.47 us in a capture of 880 ms"
    assert finding.level is Level.UNKNOWN


def gid(tid: int, pid: int = 100) -> int:
    return (1 << 56) | (pid << 24) | tid


def test_a_thread_blocked_in_the_operating_system(tmp_path):
    """Between a launch and the next one the thread sleeps; another one's sleep does not count."""
    e = Host().op(6, 10, (0, 5)).op(405, 410, (400, 406))
    for tid, start, end, name in (
        *((100, 20, 320, "clock_nanosleep"), (100, 330, 340, "mmap64")),
        (101, 340, 390, "poll"),
    ):
        times = {"start": us(start), "end": us(end)}
        e.add("OSRT_API", **times, globalTid=gid(tid), nameId=e.string(name))
    assert causes(tmp_path, e) == {"host_blocked": 300, "host_gap": 95}
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    row = d.frames["idle_gaps"]["sites"].row(0, named=True)
    assert (row["cause"], row["call"]) == ("host_blocked", "clock_nanosleep")
    assert not [c for f in d.findings for c in f.caveats if "-t osrt" in c]


def test_samples_and_switches_of_the_thread_are_evidence(tmp_path):
    e = Host().op(6, 10, (0, 5)).op(405, 410, (400, 406))
    for number, (at, tid, symbol) in enumerate(
        [(50, 100, "parse"), (60, 100, "parse"), (70, 100, "copy"), (80, 101, "x"), (450, 100, "x")]
    ):
        e.add("COMPOSITE_EVENTS", id=number, start=us(at), globalTid=gid(tid))
        for depth, name in enumerate((symbol, "main")):
            e.add("SAMPLING_CALLCHAINS", id=number, symbol=e.string(name), stackDepth=depth)
    for at, is_in in ((0, 1), (100, 0), (139, 1)):
        e.add("SCHED_EVENTS", start=us(at), isSchedIn=is_in, globalTid=gid(100))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    row = d.frames["idle_gaps"]["sites"].row(0, named=True)
    assert (row["n_samples"], row["host_evidence"]) == (3, "67% parse, 33% copy")
    assert row["off_cpu_frac"] == pytest.approx(39 / 390)


def test_without_calls_of_the_operating_system_blocking_is_unknown(tmp_path):
    e = Host().op(6, 10, (0, 5)).op(405, 410, (400, 406))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    assert "-t osrt" in d.findings[0].caveats[-1]


def test_migrations_of_unified_memory_are_copies_without_a_call(tmp_path):
    e = Host().op(0, 10, (-5, -1))
    for k in range(20):
        e.memcpy(us(10 + k * 5), us(15 + k * 5), kind=11, nbytes=1 << 16, correlationId=0)
    e.op(110, 200, (100, 105))
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["idle_gaps"])
    row = d.frames["idle_gaps"]["copies"].row(0, named=True)
    assert (row["direction"], row["n"], row["exposed_ns"]) == ("UVM HtoD", 20, 100_000)
    finding = next(f for f in d.findings if f.id == "idle_gaps/copies")
    assert finding.level is Level.CRITICAL
    assert finding.advice.startswith("Unified memory migrates pages at each touch")
    gpu = d.frames["idle_gaps"]["gpus"].row(0, named=True)
    assert (gpu["n_work"], gpu["n_with_launch"]) == (2, 2)
