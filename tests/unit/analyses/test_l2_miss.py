"""L2 misses: which samples count, what is associated with what, and what stays unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.builders import Export
from tests.support.diagnoses import frames_of
from tracekit.analyses import load
from tracekit.analyses.l2_miss import Params
from tracekit.analyses.l2_miss.association import associate, judge, with_holm
from tracekit.analyses.l2_miss.chart import chart
from tracekit.engine import run
from tracekit.model.chart import Point, Rule
from tracekit.model.finding import Finding, Level
from tracekit.numerics import association
from tracekit.opening import open_trace
from tracekit.trace.analysis import Frames

US = 1_000
BASE = 0x7F0000000000
HIT = "L2 Sector Hit Rate from L1 [Ratio %]"
Judged = tuple[Frames, dict[str, Finding]]
F8 = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
MISS8 = [0.12, 0.15, 0.13, 0.20, 0.22, 0.21, 0.30, 0.33]


@pytest.fixture
def diagnose(tmp_path: Path) -> Callable[[Export], Judged]:
    """Return a function that runs the analysis on an export."""

    def go(export: Export) -> Judged:
        analysis = load("l2_miss")
        with open_trace([export.write(tmp_path / "r.sqlite")]) as trace:
            frames, findings = run(analysis, trace, analysis.params())
            return frames, {f.id.partition("/")[2]: f for f in findings}

    return go


def sampled(misses: Sequence[float], broken: Sequence[int] = (), *, name: str = HIT) -> Export:
    """A layer a kernel of 100 us, its hit rate sampled every 10 us.

    Args:
        misses: Miss share of each layer.
        broken: Of each layer, pairs of ten that lie apart; empty for no KV markers.
        name: Counter.
    """
    e = Export().gpu()
    times, values = [], []
    for layer, miss in enumerate(misses):
        begin = (1 + layer) * 200 * US
        e.range(begin - 100 * US, begin - 60 * US, f"layer={layer} x")
        e.kernel(begin, begin + 100 * US, "read", launch=begin - 80 * US)
        times += [begin + i * 10 * US for i in range(-10, 10)]
        values += [0] * 10 + [round(100 * (1 - miss))] * 10
        at = BASE
        for block in range(11 if broken else 0):
            e.mark(
                begin - 90 * US + block,
                f"KV_BLOCK layer={layer} seq=0 block={block} addr={at:#x} bytes=4096",
            )
            at += 8192 if block < broken[layer] else 4096
    return e.metric(name, times, values)


def judged(x: Sequence[float], y: Sequence[float], z: Sequence[float] | None = None) -> tuple:
    (row,) = with_holm([associate(x, y, z)])
    return row, judge(row, 1.0, Params())


def test_a_clear_association_is_a_warning():
    row, level = judged(F8, MISS8)
    assert (row["r"], row["r_lo"], row["r_hi"]) == pytest.approx((0.947836, 0.732230, 0.990764))
    assert (row["rho"], row["rho_lo"], row["rho_hi"]) == pytest.approx(
        (0.952381, 0.664056, 0.994124), rel=1e-6
    )
    assert association.permutation_p(F8, MISS8) == pytest.approx(24 / 40320)
    assert row["p_perm"] == pytest.approx(46 / 40320)
    assert row["delta_miss_pp"] == pytest.approx(18.0)
    assert level is Level.WARN, "without a covariate it is never critical"


def test_what_vanishes_with_the_bytes_held_fixed_is_never_critical():
    z = [1, 2, 3, 4, 5, 6, 7, 8]
    x = [1.1, 1.9, 3.2, 3.8, 5.1, 5.9, 7.2, 7.8]
    y = [0.9, 2.1, 3.1, 3.9, 4.9, 6.1, 6.9, 8.1]
    row, level = judged(x, y, z)
    assert row["r"] == pytest.approx(0.995844, rel=1e-6)
    assert (row["partial_r"], row["partial_lo"], row["partial_hi"]) == pytest.approx(
        (-0.301945, -0.859555, 0.583876), rel=1e-5
    )
    assert level is Level.WARN


def test_an_association_beyond_the_bytes_is_critical():
    z = [5, 1, 4, 2, 8, 3, 7, 6]
    row, level = judged(F8, MISS8, z)
    assert row["partial_lo"] > 0
    assert level is Level.CRITICAL


@pytest.mark.parametrize(
    ("x", "y", "n", "why"),
    [
        ([512, 896], [0.237, 0.382], 2, "n = 2 is too few"),
        ([1.0] * 8, MISS8, 8, "the same in every layer"),
        (F8, [0.2] * 8, 8, "the miss share is the same in every layer"),
        ([math.nan] * 8, MISS8, 0, "not known for any layer"),
        ([*F8[:7], math.nan], [math.nan, *MISS8[1:]], 6, ""),
    ],
    ids=["b4", "b5", "constant-y", "nan-x", "nan-pairs"],
)
def test_no_coefficient_without_reason(x, y, n, why):
    row, level = judged(x, y)
    assert (row["n"], row["why"]) == (n, why)
    assert (row["rho"] is None) == bool(why)
    assert level is Level.UNKNOWN


def test_ties_share_their_rank():
    row, _ = judged([1, 2, 2, 3], [1, 3, 2, 4])
    assert row["rho"] == pytest.approx(0.948683, rel=1e-6)
    assert row["p_perm"] is None, "four layers cannot reach significance"


def test_serial_rows_are_worth_less():
    assert association.effective_n(100, 0.6, 0.5) == pytest.approx(53.846, rel=1e-4)


def test_no_association_is_ok_only_with_a_narrow_interval():
    layers = 60
    x = [i % 10 for i in range(layers)]
    y = [0.3 + 0.01 * ((7 * i) % 11) for i in range(layers)]
    row, level = judged(x, y)
    assert max(abs(row["rho_lo"]), abs(row["rho_hi"])) < 0.5
    assert level is Level.OK
    assert judge(row, 0.5, Params()) is Level.UNKNOWN, "half of the layers are not known"


def test_layers_pool_samples_not_ratios(diagnose):
    """Two kernels of one layer: 100 us at 10 % and 10 us at 50 % misses."""
    e = Export().gpu().range(1, 9, "layer=0")
    e.kernel(100 * US, 200 * US, "read", launch=2).kernel(300 * US, 310 * US, "read", launch=4)
    times = [10 * US * i for i in range(40)]
    values = [90 if t < 200 * US else 50 for t in times]
    frames, _ = diagnose(e.metric(HIT, times, values))
    row = frames["layers"].row(0, named=True)
    assert row["miss_frac"] == pytest.approx((10 * 0.1 + 1 * 0.5) / 11)


def test_an_association_in_a_trace(diagnose):
    frames, found = diagnose(sampled(MISS8, broken=[0, 1, 2, 3, 4, 5, 6, 7]))
    assert frames["layers"].sort("layer")["frag_frac"].to_list() == pytest.approx(F8)
    assert frames["layers"].sort("layer")["miss_frac"].to_list() == pytest.approx(MISS8)
    row = frames["associations"].row(0, named=True)
    assert (row["x_name"], row["rho"]) == ("frag_frac", pytest.approx(0.952381, rel=1e-6))
    finding = found["association-gpu0"]
    assert finding.level is Level.WARN
    assert "misses are associated with" in finding.title
    assert "+18.0 pp" in finding.title
    assert "Test it" in finding.advice
    assert "caus" not in finding.title


def test_holm_counts_the_tests_that_were_made(diagnose):
    frames, _ = diagnose(sampled(MISS8, broken=[0, 1, 2, 3, 4, 5, 6, 7]))
    made = frames["associations"].drop_nulls("severity").drop_nulls("p_perm")
    assert made.height >= 1
    smallest = made.sort("p_perm").row(0, named=True)
    assert smallest["p_holm"] == pytest.approx(min(1, smallest["p_perm"] * made.height))


def test_without_markers_the_hit_rates_stand_alone(diagnose):
    frames, found = diagnose(sampled(MISS8))
    finding = found["association-gpu0"]
    assert finding.level is Level.UNKNOWN
    assert "12% to" not in finding.title
    assert "L2 hit rate 67.0% to 88.0% over 8 layers" in finding.title
    assert "no KV-cache markers" in finding.title
    assert finding.missing[0].command == "tracekit run -- YOUR_COMMAND"
    assert frames["associations"].is_empty()


def test_few_layers_are_not_judged(diagnose):
    _, found = diagnose(sampled(MISS8[:5], broken=[0, 1, 2, 3, 4]))
    assert "5 layers are too few" in found["association-gpu0"].title


def test_permission(diagnose):
    e = sampled_without_metrics().add(
        "DIAGNOSTIC_EVENT", timestamp=1, severity=3, text="GPU Metrics: Insufficient privilege"
    )
    frames, found = diagnose(e)
    finding = found["not-sampled"]
    assert finding.level is Level.UNKNOWN
    assert "not collected: permission" in finding.title
    assert "NVreg_RestrictProfilingToAdminUsers=0" in finding.advice
    assert frames["associations"].is_empty(), "absent, not zero"


def test_counters_in_use(diagnose):
    e = sampled_without_metrics().add(
        "DIAGNOSTIC_EVENT", timestamp=1, severity=3, text="GPU counters are in use by another tool"
    )
    _, found = diagnose(e)
    assert "another tool holds the GPU counters" in found["not-sampled"].title
    assert "dcgmi profile --pause" in found["not-sampled"].advice


def sampled_without_metrics() -> Export:
    return Export().gpu().kernel(0, 100 * US, "read")


def test_values_off_the_scale_are_counted_and_names_match_exactly(diagnose):
    times = [10 * US * i for i in range(20)]
    e = Export().gpu().kernel(0, 200 * US, "read")
    e.metric("GPC Clock Frequency [MHz]", times, [1_710_000_000] * 20)
    e.metric("L2 Sector Hit Rate from L1 [Avg]", times, [7] * 20)
    e.metric(HIT, times, [101, -5, *[50] * 10, *[70] * 8])
    frames, _ = diagnose(e)
    counter = frames["counters"].row(0, named=True)
    assert (counter["samples"], counter["invalid"], counter["full_scale"]) == (20, 2, 100)
    row = frames["kernels"].row(0, named=True)
    assert (row["cells"], row["valid_cells"]) == (20, 18)
    assert row["hit_frac"] == pytest.approx((10 * 0.5 + 8 * 0.7) / 18)


def test_a_general_set_has_no_l2_hit_rate(diagnose):
    e = sampled_without_metrics().metric("DRAM Read Bandwidth [Throughput %]", [1, 2], [10, 20])
    _, found = diagnose(e)
    finding = found["not-sampled"]
    assert "L2 miss not available from this capture" in finding.title
    assert "--gpu-metrics-set=gh100-ct" in finding.missing[0].command
    assert "ncu" in finding.missing[1].command
    assert any("DRAM reads are no stand-in" in caveat for caveat in finding.caveats)


@pytest.mark.parametrize("name", ["L2 Hit Rate [Ratio %]", "L2 Hit Rate from L1 [Ratio %]"])
def test_a_sampled_ratio_is_labelled_as_such(diagnose, name):
    frames, found = diagnose(sampled([0.27], name=name))
    assert frames["layers"]["miss_frac"].to_list() == pytest.approx([0.27])
    assert frames["counters"]["name"].to_list() == [name]
    assert "(sampled)" in found["association-gpu0"].title


def test_another_chip_names_no_set_that_it_may_not_have(diagnose):
    e = Export().gpu(name="NVIDIA A100-SXM4-80GB", chipName="GA100").kernel(0, 100 * US, "read")
    _, found = diagnose(e.metric("GR Active [Throughput %]", [1, 2], [10, 20]))
    assert [m.command.split()[0] for m in found["not-sampled"].missing] == ["ncu"]
    assert "--gpu-metrics-set=help" in found["not-sampled"].advice


def test_half_scale_needs_twenty_samples_at_exactly_fifty(diagnose):
    times = [10 * US * i for i in range(40)]
    for at_top, scale in ((20, 50), (19, 100)):
        e = Export().gpu().kernel(0, 400 * US, "read")
        values = [*[50] * at_top, *[25] * (40 - at_top)]
        frames, _ = diagnose(e.metric(HIT, times, values))
        assert frames["counters"]["full_scale"].to_list() == [scale]


def test_one_sample_above_fifty_means_full_scale(diagnose):
    times = [10 * US * i for i in range(40)]
    e = Export().gpu().kernel(0, 400 * US, "read").metric(HIT, times, [51, *[50] * 39])
    frames, _ = diagnose(e)
    assert frames["counters"]["full_scale"].to_list() == [100]


def test_kernels_shorter_than_a_sample_are_weighed_by_overlap(diagnose):
    e = Export().gpu().kernel(12 * US, 18 * US, "read")
    frames, found = diagnose(e.metric(HIT, [0, 10 * US, 20 * US, 30 * US], [20, 60, 20, 20]))
    row = frames["kernels"].row(0, named=True)
    assert (row["subsample"], row["hit_frac"]) == (True, pytest.approx(0.6))
    assert found["association-gpu0"].level is Level.UNKNOWN


def test_mostly_invalid_samples_leave_a_kernel_unknown(diagnose):
    times = [10 * US * i for i in range(10)]
    e = Export().gpu().kernel(0, 100 * US, "read").metric(HIT, times, [-3] * 6 + [40] * 4)
    frames, found = diagnose(e)
    assert frames["kernels"]["hit_frac"].to_list() == [None]
    assert "6 of 10 samples invalid" in found["invalid-gpu0"].title


def test_occupancy_bins(diagnose):
    e = sampled([0.1, 0.5]).metric(
        "SM Warps Active [Throughput %]", [US * 10 * i for i in range(60)], [45] * 60
    )
    frames, _ = diagnose(e)
    bins = frames["occupancy"].select("miss_bin", "occupancy_bin", "n_kernels").rows()
    assert bins == [("0-20", "30-60", 1), ("40-100", "30-60", 1)]
    assert frames["occupancy"]["dram_frac"].to_list() == [None, None]
    assert frames["layers"]["occupancy_frac"].to_list() == pytest.approx([0.45, 0.45])


def test_nothing_is_claimed_about_traffic_that_was_not_measured(diagnose):
    e = (
        Export()
        .gpu()
        .kernel(0, 100 * US, "dequantize_int4_kernel")
        .kernel(110 * US, 200 * US, "nvjet_tst_64x8")
    )
    _, found = diagnose(e)
    said = " ".join([found["not-sampled"].title, found["not-sampled"].advice])
    assert "not available" in said
    assert "traffic" not in said


def test_the_chart_sets_hit_rates_against_what_differs_between_layers():
    row = {"gpu": 0, "span_bytes": 4_096, "hit_lo_frac": 0.4, "hit_hi_frac": 0.6}
    layers = [
        {**row, "layer": 0, "hit_frac": 0.5, "line_bytes": 1_000, "stride_median_bytes": 64.0},
        {**row, "layer": 1, "hit_frac": 0.2, "line_bytes": 8_000, "stride_median_bytes": None},
        {**row, "layer": 2, "hit_frac": None, "line_bytes": 9_000, "stride_median_bytes": None},
    ]
    counters = [{"gpu": 0, "l2_bytes": 50_000_000}]
    [panel] = chart(frames_of("l2_miss", layers=layers, counters=counters)).panels
    assert panel.x.title == "cache lines that the layer's KV blocks touch"
    rule, *points = panel.marks
    assert rule == Rule(50_000_000, "L2 50.0 MB")
    assert [(p.x, p.y, p.interval) for p in points if isinstance(p, Point)] == [
        (1_000, 0.5, (0.4, 0.6)),
        (8_000, 0.2, (0.4, 0.6)),
    ]
    assert chart(frames_of("l2_miss")) is None
