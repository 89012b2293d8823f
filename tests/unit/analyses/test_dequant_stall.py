"""Dequantisation chains, their exposure, shares and levels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import Export
from tracekit.analyses import load
from tracekit.analyses._dequant_verdict import traffic_amplification
from tracekit.engine import open_trace, run
from tracekit.model.analysis import Finding, Frames, Level, settle

US = 1_000
D, G, OTHER = "dequantize_weights_kernel", "nvjet_tst_64x8", "void at::native::reduce_kernel<512>"


@pytest.fixture
def judge(tmp_path: Path) -> Callable[[Export], tuple[Frames, dict[str, Finding]]]:
    """Return a function that runs the analysis on an export."""

    def go(export: Export) -> tuple[Frames, dict[str, Finding]]:
        analysis = load("dequant_stall")
        with open_trace([export.write(tmp_path / "r.sqlite")]) as (trace, _):
            frames, findings = run(analysis, trace, analysis.params())
            return frames, {f.id: settle(f) for f in findings}

    return go


def one_step(length_us: int) -> Export:
    """A step whose device span is exactly `length_us`: a last short kernel marks its end."""
    e = Export().range(0, 10 * US, "step 0")
    e.kernel((length_us - 1) * US, length_us * US, OTHER, launch=5)
    return e


def test_d1_one_kernel_before_its_gemm(judge):
    e = one_step(200).kernel(0, 30 * US, D, launch=1).kernel(35 * US, 135 * US, G, launch=2)
    frames, found = judge(e)
    row = frames["periods"].row(0, named=True)
    assert (row["exposed_ns"], row["gap_ns"], row["consumer_wait_ns"]) == (30_000, 5_000, 35_000)
    assert frames["groups"].row(0, named=True)["share_frac"] == pytest.approx(0.15)
    finding = found["dequant_stall/exposed"]
    assert finding.at_stake_ns == 30_000
    # One period is far below the number that makes a claim sure: critical is lowered, and says so.
    assert (finding.level, finding.downgraded_from) == (Level.WARN, Level.CRITICAL)


def test_d2_work_on_another_stream_hides_part_of_it(judge):
    e = one_step(200).kernel(0, 30 * US, D, launch=1).kernel(35 * US, 135 * US, G, launch=2)
    e.kernel(10 * US, 25 * US, OTHER, stream=9)
    frames, found = judge(e)
    assert frames["periods"]["exposed_ns"].to_list() == [15_000]
    assert frames["groups"].row(0, named=True)["share_frac"] == pytest.approx(0.075)
    assert found["dequant_stall/exposed"].level is Level.WARN


def test_d3_a_chain_of_two(judge):
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


def test_k01_fused_kernels_are_not_the_absence_of_quantisation(judge):
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


def test_k02_separate_dequantisation_with_its_gap_apart(judge):
    e = Export().kernel(0, 80 * US, "void kDequantizeBlockwise<half, 512, 64, 8, 2>(...)")
    e.kernel(85 * US, 185 * US, G)
    frames, _ = judge(e)
    group = frames["groups"].row(0, named=True)
    assert group["group"] == "whole capture"
    assert group["share_frac"] == pytest.approx(80 / 185)
    assert frames["periods"]["gap_ns"].to_list() == [5_000]


def test_k02_another_stream_s_gemm_is_no_consumer(judge):
    e = Export().kernel(0, 80 * US, D).kernel(85 * US, 185 * US, G, stream=9)
    assert judge(e)[0]["periods"].height == 0


def test_nothing_to_find_is_ok_only_when_nothing_is_hidden(judge):
    clean = judge(Export().kernel(0, 100, G))[1]
    assert clean["dequant_stall/none"].level is Level.OK
    hidden = judge(Export().kernel(0, 100, G).graph(200, 300))[1]
    assert hidden["dequant_stall/hidden"].level is Level.UNKNOWN
    named = judge(Export().kernel(0, 80, G).kernel(100, 120, "foo"))[1]
    assert named["dequant_stall/hidden"].level is Level.UNKNOWN
    assert "20.0%" in named["dequant_stall/hidden"].title


@pytest.mark.parametrize(("weight", "amplification"), [(0.5, 9.0), (1.0, 5.0)])
def test_d6_traffic_amplification(weight, amplification):
    assert traffic_amplification(weight, 2.0) == amplification


def test_d4_percentiles_say_when_there_are_too_few(judge):
    e = Export()
    for i in range(1, 21):
        e.kernel(i * 1_000, i * 1_000 + i, D)
    row = judge(e)[0]["kernels"].row(0, named=True)
    assert (row["p50_ns"], row["p95_ns"], row["p99_ns"]) == pytest.approx((10.5, 19.05, 19.81))
    assert (row["p95_sure"], row["p99_sure"]) == (True, False)
