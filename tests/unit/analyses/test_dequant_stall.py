"""Dequantisation chains, their exposure, shares and levels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import Export, gid
from tests.support.diagnoses import frames_of
from tracekit.analyses import load
from tracekit.analyses.dequant_stall.chart import chart
from tracekit.analyses.dequant_stall.kernels import traffic_amplification
from tracekit.engine import run
from tracekit.model.chart import Axis, Role
from tracekit.model.finding import Finding, Level, cap_by_confidence
from tracekit.opening import OpenOptions, open_trace
from tracekit.trace.analysis import Frames
from tracekit.trace.params import Settings

US = 1_000
READ, TENSOR = "DRAM Read Bandwidth [Throughput %]", "Tensor Active [Throughput %]"
FUSED = "void marlin::Marlin_int4<half, 256>(...)"
D, G, OTHER = "dequantize_weights_kernel", "nvjet_tst_64x8", "void at::native::reduce_kernel<512>"


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., tuple[Frames, dict[str, Finding]]]:
    """Return a function that runs the analysis on an export."""

    def go(export: Export, **params: Any) -> tuple[Frames, dict[str, Finding]]:
        analysis = load("dequant_stall")
        settings = params.pop("settings", Settings())
        path = export.write(tmp_path / "r.sqlite")
        with open_trace(path, options=OpenOptions(settings=settings)) as trace:
            frames, findings = run(analysis, trace, analysis.params(**params))
            return frames, {f.id: cap_by_confidence(f) for f in findings}

    return go


def one_step(length_us: int) -> Export:
    """A step whose device span is exactly `length_us`: a last short kernel marks its end."""
    e = Export().range(0, 10 * US, "step 0")
    e.kernel((length_us - 1) * US, length_us * US, OTHER, launch=5)
    return e


def test_one_kernel_before_its_gemm(judge):
    e = one_step(200).kernel(0, 30 * US, D, launch=1).kernel(35 * US, 135 * US, G, launch=2)
    frames, found = judge(e)
    row = frames["periods"].row(0, named=True)
    assert (row["exposed_ns"], row["gap_ns"], row["consumer_wait_ns"]) == (30_000, 5_000, 35_000)
    assert frames["groups"].row(0, named=True)["share_frac"] == pytest.approx(0.15)
    finding = found["dequant_stall/exposed"]
    assert finding.at_stake_ns == 30_000
    # One period is far below the number that makes a claim sure: critical is lowered, and says so.
    assert (finding.level, finding.downgraded_from) == (Level.WARN, Level.CRITICAL)


def test_work_on_another_stream_hides_part_of_it(judge):
    e = one_step(200).kernel(0, 30 * US, D, launch=1).kernel(35 * US, 135 * US, G, launch=2)
    e.kernel(10 * US, 25 * US, OTHER, stream=9)
    frames, found = judge(e)
    assert frames["periods"]["exposed_ns"].to_list() == [15_000]
    assert frames["groups"].row(0, named=True)["share_frac"] == pytest.approx(0.075)
    assert found["dequant_stall/exposed"].level is Level.WARN


def test_a_chain_of_two(judge):
    e = one_step(200).kernel(0, 20 * US, D, launch=1).kernel(20 * US, 35 * US, D, launch=2)
    e.kernel(40 * US, 100 * US, G, launch=3).kernel(10 * US, 15 * US, OTHER, stream=9)
    row = judge(e)[0]["periods"].row(0, named=True)
    numbers = ("n_kernels", "dequant_ns", "exposed_ns", "gap_ns", "consumer_wait_ns")
    assert [row[n] for n in numbers] == [2, 35_000, 30_000, 5_000, 40_000]


@pytest.mark.parametrize(
    ("gap_us", "n_chains"), [(20, 1), (21, 1)], ids=["chain of two", "second alone"]
)
def test_a_gap_above_twenty_microseconds_ends_a_chain(judge, gap_us, n_chains):
    e = one_step(400).kernel(0, 10 * US, D, launch=1)
    e.kernel((10 + gap_us) * US, (20 + gap_us) * US, D, launch=2)
    e.kernel(100 * US, 150 * US, G, launch=3)
    frames = judge(e)[0]
    assert frames["periods"].height == n_chains
    assert frames["periods"]["n_kernels"].to_list() == [2 if gap_us == 20 else 1]
    assert frames["summary"]["n_unconsumed"].to_list() == [0 if gap_us == 20 else 1]


def test_activation_quantisation_and_memsets_do_not_break_a_chain(judge):
    e = one_step(200).kernel(0, 10 * US, D, launch=1)
    e.kernel(11 * US, 12 * US, "vllm::scaled_fp8_quant_kernel", launch=2)
    e.kernel(13 * US, 20 * US, D, launch=3).kernel(21 * US, 50 * US, G, launch=4)
    assert judge(e)[0]["periods"]["n_kernels"].to_list() == [2]


def test_start_up_conversion_without_a_consumer_is_no_stall(judge):
    e = Export().range(1_000 * US, 1_010 * US, "step 0")
    e.kernel(0, 900 * US, D, launch=1).kernel(901 * US, 902 * US, OTHER, launch=2)
    e.kernel(1_100 * US, 1_200 * US, G, launch=1_005 * US)
    frames, found = judge(e)
    assert frames["groups"].row(0, named=True)["share_frac"] == 0.0
    assert frames["summary"]["n_unconsumed"].to_list() == [1]
    assert found["dequant_stall/exposed"].level is Level.OK


def test_a_period_before_the_first_step_is_kept_out_of_the_share(judge):
    e = Export().range(1_000 * US, 1_010 * US, "step 0")
    e.kernel(0, 100 * US, D, launch=1).kernel(101 * US, 200 * US, G, launch=2)
    e.kernel(1_100 * US, 1_200 * US, G, launch=1_005 * US)
    frames, _ = judge(e)
    assert frames["summary"]["n_outside_steps"].to_list() == [1]
    assert frames["groups"]["exposed_ns"].to_list() == [0, 0]


def test_fused_kernels_are_not_the_absence_of_quantisation(judge):
    e = Export()
    for i in range(100):
        e.kernel(i * 10, i * 10 + 9, "void marlin::Marlin<half, 256>(...)")
    found = judge(e)[1]
    assert list(found) == ["dequant_stall/fused"]
    assert found["dequant_stall/fused"].level is Level.OK
    assert {m.name: m.value for m in found["dequant_stall/fused"].metrics} == {
        "n_fused_kernels": 100,
        "n_dequant_kernels": 0,
    }


def test_separate_dequantisation_with_its_gap_apart(judge):
    e = Export().kernel(0, 80 * US, "void kDequantizeBlockwise<half, 512, 64, 8, 2>(...)")
    e.kernel(85 * US, 185 * US, G)
    frames, found = judge(e)
    group = frames["groups"].row(0, named=True)
    assert group["group"] == "whole capture"
    assert group["share_frac"] == pytest.approx(80 / 185)
    assert frames["periods"]["gap_ns"].to_list() == [5_000]
    finding = found["dequant_stall/exposed"]
    metrics = {m.name: m.value for m in finding.metrics}
    assert (metrics["exposed_ns"], metrics["gap_p50_ns"]) == (80_000, 5_000)
    assert finding.at_stake_ns == 80_000, "the gap is no part of what could be saved"
    assert "43.2%" in finding.title


def test_another_stream_s_gemm_is_no_consumer(judge):
    e = Export().kernel(0, 80 * US, D).kernel(85 * US, 185 * US, G, stream=9)
    frames, found = judge(e)
    assert frames["periods"].height == 0
    assert any("1 dequantisation kernels are not" in c for c in only(found).caveats)


def only(found: dict[str, Finding]) -> Finding:
    (finding,) = found.values()
    return finding


def recorded(e: Export, at: int, number: int, *, stream: int) -> Export:
    """An event is recorded on a stream."""
    e.call(at, at + 1, "cudaEventRecord_v3020", correlation=1_000 + number)
    row = {"contextId": 1, "streamId": stream, "globalPid": gid(100), "eventId": 4}
    return e.add(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT", correlationId=1_000 + number, eventSyncId=number, **row
    )


def waited(e: Export, at: int, number: int, *, stream: int) -> Export:
    """A stream waits for an event; the profiler's own times of it are off."""
    correlation = 2_000 + number * 10 + stream
    e.call(at, at + 1, "cudaStreamWaitEvent_v3020", correlation=correlation)
    row = {"contextId": 1, "streamId": stream, "globalPid": gid(100), "eventId": 4, "deviceId": 0}
    return e.add(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        **row,
        start=at - 40,
        end=at + 30,
        correlationId=correlation,
        syncType=2,
        eventSyncId=number,
    )


def prefetching(number_waited: int = 2) -> Export:
    """Two dequantisations run ahead on stream 9; products on stream 7 wait for their events."""
    e = Export()
    e.kernel(1_000, 31_000, D, stream=9, launch=100)
    recorded(e, 110, 1, stream=9)
    e.kernel(32_000, 62_000, D, stream=9, launch=120)
    recorded(e, 130, 2, stream=9)
    waited(e, 140, 1, stream=7)
    e.kernel(35_000, 60_000, G, launch=150)
    waited(e, 160, number_waited, stream=7)
    return e.kernel(65_000, 90_000, G, launch=170)


def test_events_tell_consumers_on_other_streams(judge):
    frames, found = judge(prefetching())
    periods = frames["periods"].select("start_ns", "end_ns", "dequant_ns", "exposed_ns", "gap_ns")
    # The second chain starts within 20 us of the first, but that one has its own consumer.
    assert periods.rows() == [
        (1_000, 35_000, 30_000, 30_000, 4_000),
        (32_000, 65_000, 30_000, 5_000, 3_000),
    ]
    assert frames["periods"].select("stream", "consumer_stream", "via").rows() == (
        [(9, 7, "event")] * 2
    )
    summary = frames["summary"].row(0, named=True)
    names = ("n_by_event", "n_waits", "n_waits_unresolved", "n_unconsumed")
    assert [summary[n] for n in names] == [2, 2, 0, 0]
    assert only(found).at_stake_ns == 35_000


def test_a_wait_without_its_record_is_not_counted_and_said(judge):
    frames, found = judge(prefetching(number_waited=77))
    assert frames["periods"]["start_ns"].to_list() == [1_000]
    summary = frames["summary"].row(0, named=True)
    assert (summary["n_waits_unresolved"], summary["n_unconsumed"]) == (1, 1)
    assert any("(1 of 2 waits name no recorded event)" in c for c in only(found).caveats)


def test_a_consumer_that_ran_before_the_event_contradicts_it(judge):
    e = Export().kernel(1_000, 31_000, D, stream=9, launch=100)
    recorded(e, 110, 1, stream=9)
    waited(e, 140, 1, stream=7)
    e.kernel(20_000, 60_000, G, launch=150)
    assert judge(e)[0]["periods"].height == 0


def test_work_between_the_event_and_its_stream_s_dequantisation_breaks_the_order(judge):
    e = Export().kernel(1_000, 31_000, D, stream=9, launch=100)
    e.kernel(32_000, 33_000, OTHER, stream=9, launch=105)
    recorded(e, 110, 1, stream=9)
    waited(e, 140, 1, stream=7)
    e.kernel(40_000, 60_000, G, launch=150)
    assert judge(e)[0]["periods"].height == 0


def sampled(e: Export, *, period_us: int = 10) -> Export:
    """Samples of the worked example, from one period on."""
    times = [i * period_us * US for i in range(1, 11)]
    e.metric(READ, times, [85, 88, 90, 20, 15, 18, 70, 86, 87, 20])
    return e.metric(TENSOR, times, [5, 4, 6, 3, 2, 2, 40, 5, 4, 50])


def dequantised_twice(scale: int = 1) -> Export:
    e = Export()
    e.kernel(10 * US * scale, 35 * US * scale, D).kernel(40 * US * scale, 75 * US * scale, G)
    e.kernel(78 * US * scale, 99 * US * scale, D)
    return e.kernel(100 * US * scale, 110 * US * scale, G)


def test_starvation_and_valley(judge):
    frames, found = judge(sampled(dequantised_twice()))
    assert frames["starvation"].rows() == [
        (0, 10_000, 40_000, "starvation", "dequant period"),
        (0, 40_000, 70_000, "valley", "matrix product"),
        (0, 80_000, 100_000, "starvation", "dequant period"),
    ]
    metrics = {m.name: (m.value, m.n) for m in only(found).metrics}
    assert metrics["starvation_ns"] == (50_000, 2)
    assert metrics["valley_ns"] == (30_000, 1)
    assert "starvation" in [e.table for e in only(found).evidence]


def test_a_product_that_reads_with_idle_tensor_cores_is_not_starved(judge):
    e = Export().kernel(10 * US, 110 * US, G)
    e.kernel(120 * US, 121 * US, D).kernel(122 * US, 123 * US, G)
    rows = judge(sampled(e))[0]["starvation"]
    assert rows["what"].to_list() == ["valley"]


@pytest.mark.parametrize(("elements", "n"), [(0, 0), (10_000_000, 1), (900_000_000, 0)])
def test_a_fused_kernel_is_starved_only_below_its_bound(judge, elements, n):
    """Half a byte a weight over 4.8 TB/s: 1 us of 100 is far below, 94 us is not; 0 is unknown."""
    e = sampled(Export().gpu().kernel(10 * US, 110 * US, FUSED))
    frames, found = judge(e, weight_elements=elements)
    starved = frames["starvation"].filter(frames["starvation"]["what"] == "starvation")
    assert starved.height == 2 * n
    assert starved["inside"].to_list() == ["fused kernel"] * (2 * n)
    assert only(found).id == "dequant_stall/fused"
    assert "valley_ns" in {m.name for m in only(found).metrics}


def test_coarse_samples_leave_starvation_unknown_but_not_the_finding(judge):
    frames, found = judge(sampled(dequantised_twice(3), period_us=30))
    assert frames["starvation"].height == 0
    assert frames["summary"]["sample_period_ns"].to_list() == [30_000]
    finding = only(found)
    assert finding.level is not Level.UNKNOWN
    assert "starvation_ns" not in {m.name for m in finding.metrics}
    (said,) = [c for c in finding.caveats if "starved is unknown" in c]
    assert "every 30.0 us" in said
    assert "--gpu-metrics-frequency=100000" in said


def test_lower_bound_where_the_bytes_are_stated(judge):
    e = Export().gpu(name="NVIDIA H100 80GB HBM3", memoryBandwidth=3_350_000_000_000)
    e.kernel(0, 60 * US, "dequantize_int4_kernel").kernel(61 * US, 90 * US, G)
    elements = 4096 * 14336
    row = judge(e, weight_elements=elements)[0]["kernels"].row(0, named=True)
    assert row["t_min_ns"] == pytest.approx(146_800_640 / 3350, rel=1e-6)
    assert row["t_min_ns"] == pytest.approx(43_820, rel=1e-3)
    assert row["efficiency_frac"] == pytest.approx(43.8211 / 60, rel=1e-4)
    achieved = Settings(hardware_achievable_gbps=0.9 * 3350)
    frames, found = judge(e, weight_elements=elements, settings=achieved)
    assert frames["kernels"]["t_min_ns"][0] == pytest.approx(48_690, rel=1e-3)
    metrics = {m.name: m.value for m in only(found).metrics}
    assert metrics["efficiency_frac"] == pytest.approx(48.690 / 60, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "elements"), [("dequantize_int4_kernel", 0), (D, 1_000_000)], ids=["bytes", "bits"]
)
def test_without_bytes_or_bits_there_is_no_bound(judge, name, elements):
    e = Export().gpu().kernel(0, 60 * US, name).kernel(61 * US, 90 * US, G)
    frames, found = judge(e, weight_elements=elements)
    assert frames["kernels"].row(0, named=True)["t_min_ns"] is None
    assert "efficiency_frac" not in {m.name for m in only(found).metrics}


def test_a_kernel_faster_than_its_bound_refutes_the_stated_bytes(judge):
    e = Export().gpu().kernel(0, 1 * US, "dequantize_int4_kernel").kernel(2 * US, 90 * US, G)
    found = judge(e, weight_elements=4096 * 14336)[1]
    assert any("weight_elements is not" in c for c in only(found).caveats)


def test_nothing_to_find_is_ok_only_when_nothing_is_hidden(judge):
    clean = judge(Export().kernel(0, 100, G))[1]
    assert clean["dequant_stall/none"].level is Level.OK
    hidden = judge(Export().kernel(0, 100, G).graph(200, 300))[1]
    assert hidden["dequant_stall/hidden"].level is Level.UNKNOWN
    named = judge(Export().kernel(0, 80, G).kernel(100, 120, "foo"))[1]
    assert named["dequant_stall/hidden"].level is Level.UNKNOWN
    assert "20.0%" in named["dequant_stall/hidden"].title


@pytest.mark.parametrize(("weight", "amplification"), [(0.5, 9.0), (1.0, 5.0)])
def test_traffic_amplification(weight, amplification):
    assert traffic_amplification(weight, 2.0) == amplification


def test_percentiles_say_when_there_are_too_few(judge):
    e = Export()
    for i in range(1, 21):
        e.kernel(i * 1_000, i * 1_000 + i, D)
    row = judge(e)[0]["kernels"].row(0, named=True)
    assert (row["p50_ns"], row["p95_ns"], row["p99_ns"]) == pytest.approx((10.5, 19.05, 19.81))
    assert (row["p95_sure"], row["p99_sure"]) == (True, False)


def test_percentiles_of_five(judge):
    e = Export()
    for i in range(1, 6):
        e.kernel(i * 1_000 * US, i * 1_000 * US + i * 10 * US, D)
    row = judge(e)[0]["kernels"].row(0, named=True)
    assert (row["p50_ns"], row["p95_ns"], row["p99_ns"]) == pytest.approx((30e3, 48e3, 49.6e3))
    assert (row["p95_sure"], row["p99_sure"]) == (False, False)


def test_the_chart_shows_shares_of_groups_and_chains_of_steps():
    groups = [
        {"group": "a", "share_frac": 0.5, "exposed_ns": 5, "step_ns": 10},
        {"group": "b", "share_frac": 0.0, "exposed_ns": 0, "step_ns": 10},
    ]
    chain = {"gpu": 0, "step": 4, "kernel": D, "n_kernels": 2, "consumer": G}
    periods = [
        {**chain, "start_ns": 100, "end_ns": 150, "dequant_ns": 40, "exposed_ns": 25},
        {**chain, "start_ns": 200, "end_ns": 230, "dequant_ns": 30, "exposed_ns": 30},
    ]
    drawn = chart(frames_of("dequant_stall", groups=groups, periods=periods))
    shares, chains = drawn.panels
    assert (shares.y.labels, shares.x.unit) == (("a",), "1")
    assert [(b.start, b.end, b.label) for b in shares.marks] == [(0, 0.5, "50.0%")]
    assert (chains.y.labels, chains.y.title) == (("4",), "step")
    assert chains.x == Axis("time since the first dequantisation of the step", "ns", low=0)
    assert [(b.row, b.start, b.end, b.role, b.shade < 1) for b in chains.marks] == [
        (0, 0, 25, Role.DEQUANTISATION, False),
        (0, 25, 40, Role.DEQUANTISATION, True),
        (0, 40, 50, Role.WAIT, False),
        (0, 100, 130, Role.DEQUANTISATION, False),
    ]
    assert chart(frames_of("dequant_stall")) is None
