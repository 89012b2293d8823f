"""Collectives beside other work: worked examples, field cases and the verdict."""

from __future__ import annotations

import pytest

from tests.support.communication import ALL_REDUCE, collective, ranks_export, ranks_stated
from tests.support.communication import COMM as COMM_ID
from tests.support.diagnoses import frames_of
from tracekit.analyses import load
from tracekit.analyses.allreduce_contention.chart import chart, tracks
from tracekit.engine import run
from tracekit.model.chart import Point, Role, Rule
from tracekit.model.finding import Level, cap_by_confidence
from tracekit.numerics.association import theil_sen
from tracekit.numerics.bootstrap import median_ratios
from tracekit.numerics.excess import assign_excess
from tracekit.views.collectives.overlap import comm_overlap, contention_cases
from tracekit.views.contention.windows import contention_windows, shared_time
from tracekit.views.counters import metrics

US = 1_000
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"
ALONE = (100, 102, 98, 101, 99)
BESIDE = (150, 160, 155, 149, 158)
READ, WRITE = metrics.DRAM[0]


@pytest.fixture
def judge(traced):
    """Return a function from exports to (frames, findings by id)."""

    def go(*exports, **params):
        analysis = load("allreduce_contention")
        frames, found = run(analysis, traced(*exports), analysis.params(**params))
        return frames, {f.id: cap_by_confidence(f) for f in found}

    return go


def pair(export, start_us, length_us, **values):
    """One collective of two ranks that start and end together."""
    for rank in range(2):
        collective(export, start_us * US, (start_us + length_us) * US, rank=rank, **values)


def two_phases(alone=ALONE, beside=BESIDE, *, kind="copy", span_us=10_000, steps=False):
    """Collectives alone, then beside copies or GEMMs that cover them; device span as given."""
    export = ranks_export(2)
    at = 500
    for length in alone:
        pair(export, at, length)
        at += 300
    for length in beside:
        pair(export, at, length)
        for rank in range(2):
            begin, end = (at - 20) * US, (at + length + 20) * US
            if kind == "copy":
                export.memcpy(begin, end, device=rank, pid=100 + rank, stream=14, nbytes=1 << 30)
            else:
                export.kernel(begin, end, GEMM, device=rank, pid=100 + rank, stream=14)
        at += 300
    for rank in range(2):
        common = {"device": rank, "pid": 100 + rank, "stream": 20, "launch_tid": 100 + rank}
        export.kernel(100 * US, 101 * US, "foo", launch=100 * US - 5, **common)
        export.kernel(
            (100 + span_us - 1) * US, (100 + span_us) * US, "foo", launch=100 * US - 4, **common
        )
        if steps:
            pid = 100 + rank
            export.range(100 * US - 10, (100 + span_us) * US, "step 3", pid=pid, tid=pid)
    return export


def sampled(export, read, write=0, link=None):
    """Counters of both GPUs, constant over the first 20 ms, 20 us apart."""
    times = range(0, 20_000_000, 20_000)
    for device in range(2):
        export.metric(READ, times, [read] * 1000, device=device)
        export.metric(WRITE, times, [write] * 1000, device=device)
        if link is not None:
            for name in (*metrics.LINK_TX, *metrics.LINK_RX):
                value = link if "Requests User" in name else 0
                export.metric(name, times, [value] * 1000, device=device)
    return export


# Worked examples.


def test_interval_algebra_and_overlap(traced):
    export = ranks_export(1)
    for start, end in ((1000, 1100), (1200, 1260)):
        collective(export, start, end)
    for start, end in ((1050, 1150), (1150, 1220)):
        export.kernel(start, end, GEMM, stream=9)
    trace = traced(export)
    times = dict(shared_time(trace).select("what", "time_ns").rows())
    assert times == {"contended": 70, "pure_comm": 90, "pure_compute": 100}
    assert contention_windows(trace).select("start_ns", "end_ns", "corunners").rows() == [
        (1050, 1100, "gemm"),
        (1200, 1220, "gemm"),
    ]
    shares = comm_overlap(trace).kernels["overlap_frac"].to_list()
    assert shares == [0.5, pytest.approx(1 / 3)]


@pytest.mark.parametrize("steps", [False, True], ids=["capture", "step"])
def test_slowdown_interval_and_loss(judge, steps):
    frames, found = judge(two_phases(steps=steps))
    row = frames["groups"].row(0, named=True)
    assert row["slowdown_ratio"] == pytest.approx(1.55)
    assert row["slowdown_lo_ratio"] == pytest.approx(1.47525, abs=0.02)
    assert row["slowdown_hi_ratio"] == pytest.approx(1.61224, abs=0.02)
    assert row["lost_ns"] == 272_000
    roll_up = frames["mechanisms"].row(0, named=True)
    assert roll_up["lost_frac"] == pytest.approx(0.0272)
    assert roll_up["lost_group"] == ("step N" if steps else "capture")
    (finding,) = found.values()
    assert (finding.level, finding.at_stake_ns) == (Level.WARN, 272_000)
    assert finding.at_stake_frac == pytest.approx(0.0272)


def test_change_of_memory_traffic(traced):
    export = ranks_export(1)
    collective(export, 300, 500)
    export.kernel(100, 500, GEMM, stream=9)
    export.metric(READ, range(100, 600, 100), [40, 40, 10, 10, 40])
    export.metric(WRITE, range(100, 600, 100), [40, 40, 10, 10, 40])
    rows = {r["what"]: r for r in shared_time(traced(export)).iter_rows(named=True)}
    assert rows["pure_compute"]["dram_frac"] == pytest.approx(0.8)
    assert rows["contended"]["dram_frac"] == pytest.approx(0.2)
    assert rows["contended"]["change_ratio"] == pytest.approx(-0.75)


def test_one_observation_on_either_side_is_unknown(judge):
    frames, found = judge(two_phases((124,), (497,)))
    row = frames["groups"].row(0, named=True)
    assert row["slowdown_ratio"] == pytest.approx(4.008, abs=5e-4)
    assert (row["known"], row["slowdown_lo_ratio"]) == (False, None)
    (finding,) = found.values()
    assert (finding.id, finding.level) == ("allreduce_contention/no_baseline", Level.UNKNOWN)


def test_excess_is_shared_by_time_in_company():
    given, weights = assign_excess([0], [100], [40.0], [0, 30], [50, 100])
    assert (given.tolist(), weights.tolist()) == ([16.0, 24.0], [40.0, 60.0])


def test_slope_over_overlap():
    slope, start = theil_sen([0, 0, 0.25, 0.5, 0.5, 1], [100, 102, 112, 125, 126, 150])
    assert (slope, start) == (pytest.approx(50), pytest.approx(100))


def test_roll_up_is_weighted_by_observations():
    groups = median_ratios([[100.0] * 5, [100.0] * 5], [[155.0] * 5, [120.0] * 15], [0, 1])
    assert groups.rollup().value == pytest.approx(1.27929, abs=5e-6)


# The verdict.


def test_bandwidth_is_named_when_dram_is_full(judge):
    frames, found = judge(sampled(two_phases(), 48, 40, link=30))
    row = frames["groups"].row(0, named=True)
    assert (row["mechanism"], row["dram_overlapped_frac"]) == ("bandwidth", pytest.approx(0.88))
    finding = found["allreduce_contention/all-reduce-bandwidth"]
    assert "1.55x slower while device-to-device copies run" in finding.title
    assert "memory bandwidth (DRAM 88.0% busy" in finding.title
    assert "272 us lost, 2.72% of the 10.0 ms from first to last device work" in finding.title
    assert finding.missing == ()


def test_suffix_is_named_as_no_evidence(judge):
    _, found = judge(two_phases())
    (finding,) = found.values()
    said = next(m for m in finding.metrics if m.name == "kernel_name")
    assert (said.value, "says nothing on the protocol, not used" in said.doc) == ("RING_LL", True)
    assert "latency bound" not in finding.title + finding.advice


@pytest.mark.parametrize(
    ("read", "link", "mechanism", "words"),
    [
        (
            30,
            30,
            "SM/scheduling",
            "they share SMs, by elimination: memory and link have room (DRAM 30.0%, link 30.0%",
        ),
        (30, 90, "link", "the GPU link is full (90.0% busy)"),
        (30, None, "unknown", "candidate"),
    ],
)
def test_mechanism_follows_the_samples(judge, read, link, mechanism, words):
    frames, found = judge(sampled(two_phases(kind="gemm"), read, link=link))
    assert frames["groups"]["mechanism"].to_list() == [mechanism]
    (finding,) = found.values()
    assert words in finding.title
    assert "GEMMs" in finding.title


def test_a_without_samples_it_stays_a_candidate_with_the_command(judge):
    _, found = judge(two_phases())
    (finding,) = found.values()
    assert finding.id == "allreduce_contention/all-reduce-unknown"
    assert "bandwidth contention candidate" in finding.title
    assert finding.missing[0].command.startswith("nsys profile")
    assert "--gpu-metrics-device" in finding.missing[0].command


def test_missing_counters_are_unknown_never_zero(judge):
    export = two_phases()
    export.add("DIAGNOSTIC_EVENT", severity=3, text="Insufficient privilege to sample GPU metrics")
    frames, found = judge(export)
    row = frames["groups"].row(0, named=True)
    assert (row["dram_overlapped_frac"], row["link_overlapped_frac"], row["coverage_frac"]) == (
        None,
    ) * 3
    values = {m.name: m.value for m in next(iter(found.values())).metrics}
    assert values["dram_overlapped_frac"] is None


def test_critical_needs_both_a_large_ratio_and_a_large_loss(judge):
    slow = tuple(2 * b for b in BESIDE)
    export = sampled(two_phases(ALONE * 4, slow * 4, span_us=16_000), 48, 40, link=30)
    _, found = judge(export)
    finding = found["allreduce_contention/all-reduce-bandwidth"]
    assert (finding.level, finding.confidence.label) == (Level.CRITICAL, "high")


def test_little_loss_is_no_warning(judge):
    _, found = judge(two_phases(span_us=100_000))
    assert next(iter(found.values())).level is Level.OK


def test_equal_times_are_reported_as_unharmed(judge):
    _, found = judge(two_phases(ALONE, ALONE))
    (finding,) = found.values()
    assert (finding.id, finding.level) == ("allreduce_contention/not_slowed", Level.OK)
    assert "not slower while device-to-device copies run: transfer 1.00x" in finding.title


def test_nothing_beside_is_ok(judge):
    export = ranks_export(2)
    for i in range(6):
        pair(export, 100 + 200 * i, 100)
    _, found = judge(export)
    assert {(f.id, f.level) for f in found.values()} == {
        ("allreduce_contention/no_overlap", Level.OK)
    }


def test_always_beside_other_work_has_no_baseline(judge):
    _, found = judge(two_phases(()))
    assert {(f.id, f.level) for f in found.values()} == {
        ("allreduce_contention/no_baseline", Level.UNKNOWN)
    }


def test_partners_are_not_pooled(judge):
    export = two_phases()
    at = 5_000
    for length in (120, 121, 119, 122, 118):
        pair(export, at, length)
        for rank in range(2):
            begin, end = (at - 20) * US, (at + length + 20) * US
            export.kernel(begin, end, GEMM, device=rank, pid=100 + rank, stream=14)
        at += 300
    frames, found = judge(export)
    rows = frames["groups"].select("partner", "slowdown_ratio", "n_overlapped").rows()
    assert rows == [("gemm", 1.2, 5), ("memcpy DtoD", 1.55, 5)]
    assert len(found) == 1  # both unexplained without samples: one mechanism
    assert "GEMMs" in next(iter(found.values())).title


def test_sizes_are_not_mixed(judge):
    export = ranks_export(2)
    for i in range(5):
        pair(export, 100 + 400 * i, 50, size=1024)
        pair(export, 300 + 400 * i, 150, size=1 << 26)
        for rank in range(2):
            begin = (300 + 400 * i - 20) * US
            export.memcpy(begin, begin + 190 * US, device=rank, pid=100 + rank, stream=14)
    frames, found = judge(export)
    assert frames["groups"]["known"].to_list() == [False, False]
    assert next(iter(found.values())).level is Level.UNKNOWN


def test_single_rank_is_unknown_with_upper_bounds(judge):
    export = ranks_export(1)
    for i in range(6):
        collective(export, (100 + 300 * i) * US, (200 + 300 * i) * US)
        export.memcpy((90 + 300 * i) * US, (210 + 300 * i) * US, stream=14)
    frames, found = judge(export)
    (finding,) = found.values()
    assert (finding.id, finding.level) == ("allreduce_contention/one_rank", Level.UNKNOWN)
    assert any("upper bounds" in c and "waiting" in c for c in finding.caveats)
    assert frames["groups"].is_empty()
    assert frames["raw_durations"].select("n", "median_ns").rows() == [(6, 100_000.0)]


def test_missing_ranks_are_counted(judge):
    export = ranks_stated(ranks_export(1), COMM_ID, 4, 0)
    collective(export, 100, 200)
    _, found = judge(export)
    assert "1 of 4 ranks have device activity" in next(iter(found.values())).title


def test_a_without_blobs_says_what_to_export(judge):
    export = ranks_export(2)
    for i in range(6):
        for rank in range(2):
            collective(export, 100 + 300 * i, 200 + 300 * i, rank=rank, blob="")
    frames, found = judge(export)
    assert frames["facts"]["n_unsized"].to_list() == [12]
    (finding,) = found.values()
    assert "NCCL's NVTX payloads were not exported" in finding.confidence.why
    assert any("--include-blobs=true" in m.command for m in finding.missing)


def test_no_collectives_is_ok_only_when_everything_is_seen(judge):
    export = ranks_export(1).kernel(0, 100, GEMM)
    _, found = judge(export)
    assert found["allreduce_contention/none"].level is Level.OK


def test_no_collectives_among_unclassified_names_is_unknown(judge):
    export = ranks_export(1).kernel(0, 80, GEMM).kernel(100, 120, "mystery")
    _, found = judge(export)
    assert found["allreduce_contention/unclassified"].level is Level.UNKNOWN


def test_no_collectives_beside_opaque_graphs_is_unknown(judge):
    export = ranks_export(1).kernel(0, 80, GEMM).graph(100, 300)
    _, found = judge(export)
    finding = found["allreduce_contention/hidden"]
    assert (finding.level, finding.missing[0].tables) == (Level.UNKNOWN, ("graph_nodes",))


def test_collectives_beside_opaque_graphs_are_bounds(judge):
    export = ranks_export(1)
    for i in range(9):
        export.kernel(10_000_000 * i, 10_000_000 * i + 1_000_000, GEMM)
    export.kernel(90_000_000, 91_000_000, ALL_REDUCE)
    for i in range(10):
        export.graph(100_000_000 + 20_000_000 * i, 120_000_000 + 20_000_000 * i)
    _, found = judge(export)
    bounds = next(iter(found.values())).caveats[-1]
    assert "at least 0.48%" in bounds
    assert "up to 95.7%" in bounds


# Compute slowed by collectives.


def slowed_export(outside, inside):
    export = ranks_export(1)
    at = 1_000_000
    for length in outside:
        export.kernel(at, at + length, "attention_kernel_a", stream=9, grid=(64, 1, 1))
        at += 3_000_000
    for length in inside:
        export.kernel(at, at + length, "attention_kernel_a", stream=9, grid=(64, 1, 1))
        collective(export, at - 50_000, at + length + 50_000)
        at += 3_000_000
    return export


def test_compute_inside_collectives_against_the_same_outside(judge):
    frames, found = judge(slowed_export([1_180_000] * 10, [2_080_000] * 10))
    row = frames["slowed_compute"].row(0, named=True)
    assert row["slowdown_ratio"] == pytest.approx(1.763, abs=5e-4)
    assert (row["n_outside"], row["n_inside"], row["excess_ns"]) == (10, 10, 9_000_000)
    finding = found["allreduce_contention/slowed_compute"]
    assert "1.76x as long inside collectives (1.18 ms alone, 2.08 ms overlapping)" in finding.title
    assert finding.level is Level.WARN
    assert "Associated with" in finding.caveats[0]


def test_other_grids_are_not_compared(judge):
    export = slowed_export([], [2_080_000] * 10)
    for i in range(10):
        export.kernel(1 + i * 10_000, 5_000 + i * 10_000, "attention_kernel_a", stream=9)
    frames, found = judge(export)
    assert frames["slowed_compute"].is_empty()
    assert "allreduce_contention/slowed_compute" not in found


def test_kernels_on_the_collective_s_own_stream_are_no_company(traced):
    export = ranks_export(2)
    for rank in range(2):
        collective(export, 100, 200, rank=rank)
        export.kernel(150, 250, GEMM, device=rank, pid=100 + rank, stream=7)
    assert contention_cases(traced(export))["state"].to_list() == ["alone"]


def test_processes_that_share_a_gpu_lower_the_confidence(judge):
    export = two_phases(ALONE * 4, BESIDE * 4, span_us=16_000)
    export.kernel(50, 60, GEMM, device=0, pid=999)
    _, found = judge(export)
    (finding,) = found.values()
    assert finding.confidence.value <= 0.5
    assert "take turns" in finding.confidence.why


def test_the_chart_shows_slowdowns_with_their_intervals():
    row = {
        "op": "AllReduce",
        "bytes": 1_000_000,
        "partner": "gemm",
        "slowdown_ratio": 1.5,
        "slowdown_lo_ratio": 1.25,
        "slowdown_hi_ratio": 2.0,
    }
    unknown = {**row, "partner": "memcpy DtoD", "slowdown_lo_ratio": None}
    drawn = chart(frames_of("allreduce_contention", groups=[unknown, row]))
    [panel] = drawn.panels
    assert panel.y.labels == (
        "AllReduce 1.00 MB, gemm",
        "AllReduce 1.00 MB, memcpy DtoD",
    )
    rule, *points = panel.marks
    assert rule == Rule(1.0)
    assert [(p.x, p.y, p.role, p.interval) for p in points if isinstance(p, Point)] == [
        (1.5, 0, Role.MATRIX_PRODUCT, (1.25, 2.0)),
        (1.5, 1, Role.COPY, None),
    ]
    assert chart(frames_of("allreduce_contention")) is None


def test_windows_are_a_track_of_the_timeline():
    window = {"gpu": 0, "start_ns": 5, "end_ns": 9, "comm": "AllReduce", "corunners": None}
    [track] = tracks(frames_of("allreduce_contention", windows=[window]))
    name = "AllReduce overlapped by other work"
    assert track.spans.rows() == [(0, 5, 9, "contention window", name)]
    assert (track.roles, track.shaded) == ({"contention window": Role.WINDOW}, True)
    assert tracks(frames_of("allreduce_contention")) == ()
