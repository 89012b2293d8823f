"""Ranks that wait for each other: who is late, why, and collectives that queue."""

from __future__ import annotations

import pytest

from tests.support.communication import COMM, collective, ranks_export, ranks_stated, wait_for_event
from tests.support.diagnoses import frames_of
from tracekit.analyses import load
from tracekit.analyses.collective_skew.chart import chart, time_parts
from tracekit.engine import run
from tracekit.model.chart import Bar, Role
from tracekit.model.diagnosis import TimePart
from tracekit.model.finding import Level, cap_by_confidence
from tracekit.views.waiting.lateness import HOST_LATE, QUEUED
from tracekit.views.waiting.queueing import queueing

US = 1_000
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"


@pytest.fixture
def judge(traced):
    """Return a function from exports to (frames, findings by id)."""

    def go(*exports, **params):
        analysis = load("collective_skew")
        frames, found = run(analysis, traced(*exports), analysis.params(**params))
        return frames, {f.id: cap_by_confidence(f) for f in found}

    return go


def decode(n: int, late_us: float, *, work: bool = True, period_us: int = 400, steps: bool = False):
    """n collectives of two ranks; rank 1 comes late by `late_us`.

    With `work` a kernel of rank 1 runs that much longer before each; else its host launches late.
    """
    export = ranks_export(2)
    for i in range(n):
        at = (100 + period_us * i) * US
        joined = at + int((100 + late_us) * US)
        for rank in range(2):
            late = int(late_us * US) if rank else 0
            busy = at + 100 * US + (late if work else 0)
            export.kernel(at, busy - 10, GEMM, device=rank, pid=100 + rank, launch=at - 20)
            start = at + 100 * US + late
            launch = at + 10 if work else start - 10
            collective(export, start, joined + 20 * US, rank=rank, launch=launch)
        if steps:
            for rank in range(2):
                pid = 100 + rank
                group = "prefill" if i % 2 else "decode"
                export.range(
                    at - 50, at + period_us * US - 60, f"{group} step {i}", pid=pid, tid=pid
                )
    return export


def test_late_kernels_are_the_reason(judge):
    frames, found = judge(decode(24, 30))
    waits = frames["rank_waits"].select("rank", "wait_median_ns", "n_last").rows()
    assert waits == [("rank 0", 30_000.0, 0), ("rank 1", 0.0, 24)]
    row = frames["skew"].row(0, named=True)
    assert (row["skew_median_ns"], row["transfer_median_ns"]) == (30_000, 20_000)
    finding = found["collective_skew/all-reduce"]
    assert finding.level is Level.CRITICAL
    assert "median skew 30.0 us, transfer 20.0 us; rank 0 waits" in finding.title
    assert "rank 1 is late: its GEMMs take longer (100% of rank 1's lateness)" in finding.title
    assert "Rank 1 is late, the others wait" in finding.advice
    # The first collective only shows how far apart the recordings began.
    assert frames["rank_waits"]["wait_ns"].to_list() == [23 * 30_000, 0]
    assert row["mean_wait_ns"] == 23 * 15_000


def test_late_launches_are_the_reason(judge):
    frames, found = judge(decode(24, 30, work=False))
    assert "rank 1 is late: its host launches late" in found["collective_skew/all-reduce"].title
    top = frames["lateness"].row(0, named=True)
    assert (top["late_rank"], top["what"]) == ("rank 1", HOST_LATE)
    assert top["extra_frac"] == pytest.approx(1, abs=0.01)
    assert "CUDA graphs" in found["collective_skew/all-reduce"].advice


@pytest.mark.parametrize(
    ("late_us", "period_us", "level"),
    [
        (1, 400, Level.OK),  # skew over transfer below 0.2
        (10, 4000, Level.OK),  # half the transfer, but 0.25 % of the time
        (10, 400, Level.WARN),
        (30, 4000, Level.OK),
        (30, 2000, Level.WARN),  # 1.5 % of the time
        (30, 400, Level.CRITICAL),
    ],
)
def test_level_needs_skew_and_time(judge, late_us, period_us, level):
    _, found = judge(decode(24, late_us, period_us=period_us))
    assert found["collective_skew/all-reduce"].level is level


def test_one_collective_warns_only_with_the_time_gate(judge):
    us = 1000
    export = ranks_export(4)
    for rank, (start, end) in enumerate(
        zip((100, 105, 140, 110), (220, 221, 222, 221), strict=True)
    ):
        collective(export, start * us, end * us, rank=rank)
    frames, found = judge(export)
    row = frames["skew"].row(0, named=True)
    assert (row["skew_median_ns"], row["transfer_median_ns"]) == (40_000, 82_000)
    assert row["skew_over_transfer"] == pytest.approx(0.488, abs=5e-4)
    finding = found["collective_skew/all-reduce"]
    assert finding.level is Level.WARN
    assert finding.confidence.label == "low"
    assert finding.title.startswith("hint, from 1 collective only: ranks wait for each other")


def test_steps_are_judged_by_group(judge):
    export = decode(40, 30, steps=True)
    frames, found = judge(export)
    assert frames["skew"]["step_group"].to_list() == ["decode step N", "prefill step N"]
    assert frames["skew"]["n"].to_list() == [20, 20]
    assert 'device time in steps "' in found["collective_skew/all-reduce"].title


def test_ranks_that_take_turns_are_jitter(judge):
    export = ranks_export(2)
    for i in range(24):
        at = (100 + 400 * i) * US
        for rank in range(2):
            late = 30 * US if (i + rank) % 2 else 0
            collective(export, at + late, at + 50 * US, rank=rank, launch=at + late - 10)
    _, found = judge(export)
    finding = found["collective_skew/all-reduce"]
    assert "whoever is late" in finding.title
    assert "jitter, not one slow rank" in finding.advice


def test_one_rank_is_unknown(judge):
    export = ranks_export(1)
    for i in range(5):
        collective(export, 1000 + 1000 * i, 1500 + 1000 * i)
    _, found = judge(export)
    finding = found["collective_skew/one_rank"]
    assert finding.level is Level.UNKNOWN
    assert "tracekit analyze rank0.sqlite rank1.sqlite" in finding.missing[0].command


def test_no_imbalance_without_all_ranks(judge):
    export = ranks_stated(ranks_export(1), COMM, 4, 0)
    collective(export, 100, 200)
    frames, found = judge(export)
    assert "1 of 4 ranks have device activity" in found["collective_skew/one_rank"].title
    assert frames["skew"].is_empty()


def test_no_collectives_is_ok(judge):
    _, found = judge(ranks_export(1).kernel(0, 100, GEMM))
    assert found["collective_skew/none"].level is Level.OK


def test_sends_and_receives_alone_are_not_judged(judge):
    export = ranks_export(2)
    for rank in range(2):
        collective(export, 100, 200, rank=rank, name="ncclDevKernel_SendRecv", blob="")
    for row in export.rows["NVTX_EVENTS"]:
        row["text"] = "ncclSend" if row["text"] == "ncclAllReduce" else row["text"]
    _, found = judge(export)
    assert {(f.id, f.level) for f in found.values()} == {
        ("collective_skew/point_to_point", Level.UNKNOWN)
    }


def test_library_s_own_rank_numbers_are_used(judge):
    export = decode(6, 30)
    for rank in range(2):
        ranks_stated(export, COMM, 2, rank, number=1 - rank)
    frames, _ = judge(export)
    assert frames["ranks"].select("rank", "rank_known").rows() == [
        ("rank 1", True),
        ("rank 0", True),
    ]
    assert frames["communicators"]["nranks"].to_list() == [2]


# Queueing.


def queued_export(n_ranks=1, *, told=False, gemm_launch=0):
    """A collective launched at 10 us that starts at 5 ms, right when a GEMM ends."""
    export = ranks_export(n_ranks)
    for rank in range(n_ranks):
        pid = 100 + rank
        export.kernel(
            5 * US, 5_000 * US, GEMM, device=rank, pid=pid, stream=9, launch=gemm_launch + 1
        )
        if told:
            wait_for_event(export, 9 * US, pid=pid)
        collective(export, 5_001 * US, 5_021 * US, rank=rank, launch=10 * US)
    return export


def test_b_queued_behind_compute_is_a_candidate_and_no_contention(judge, traced):
    frames, found = judge(queued_export())
    finding = found["collective_skew/queued-all-reduce-gemm"]
    assert "ready but not started for a median of 4.99 ms" in finding.title
    assert "candidate" in finding.title
    assert finding.level is Level.UNKNOWN
    row = frames["queueing"].row(0, named=True)
    assert (row["queued_ns"], row["dependency"], row["one_rank"]) == (4_991_000, False, True)


def test_b_it_is_no_contention_window(traced):
    analysis = load("allreduce_contention")
    frames, _ = run(analysis, traced(queued_export(2)), analysis.params())
    assert frames["windows"].is_empty()
    assert frames["collectives"]["state"].to_list() == ["alone"]


def test_queueing_that_nothing_waits_for_costs_nothing(judge):
    frames, found = judge(queued_export(2))
    finding = found["collective_skew/queued-all-reduce-gemm"]
    assert (finding.level, finding.at_stake_ns) == (Level.OK, None)
    assert "nothing is seen to wait for them, so it may cost nothing" in finding.title
    row = frames["queueing"].row(0, named=True)
    assert (row["n"], row["queued_ns"], row["blocking_ns"]) == (1, 4_991_000, 0)


def many_queued(n, *, waiting):
    """n collectives that queue 200 us behind GEMMs; GEMMs that may have waited for each follow."""
    export = ranks_export(2)
    for i in range(n):
        at = (100 + 1_000 * i) * US
        for rank in range(2):
            own = {"device": rank, "pid": 100 + rank}
            export.kernel(at, at + 200 * US, GEMM, stream=9, launch=at - 5 * US, **own)
            collective(export, at + 201 * US, at + 251 * US, rank=rank, launch=at)
            if waiting:
                after = at + 253 * US
                export.kernel(after, after + 5 * US, GEMM, stream=12, launch=at + 10, **own)
    return export


def test_queueing_is_at_stake_as_far_as_something_waits(judge):
    frames, found = judge(many_queued(24, waiting=True))
    finding = found["collective_skew/queued-all-reduce-gemm"]
    # Each all-reduce queued for 201 us; what waited for it gains at most its 50 us.
    assert frames["queueing"]["blocking_ns"].to_list() == [24 * 50 * US]
    assert (finding.level, finding.at_stake_ns) == (Level.WARN, 24 * 50 * US)
    assert "is seen to wait for them for 1.20 ms of it" in finding.title
    _, found = judge(many_queued(24, waiting=False))
    assert found["collective_skew/queued-all-reduce-gemm"].at_stake_ns is None


def test_a_handful_that_queues_is_a_hint(judge):
    _, found = judge(many_queued(5, waiting=True))
    finding = found["collective_skew/queued-all-reduce-gemm"]
    assert (finding.level, finding.at_stake_ns) == (Level.UNKNOWN, None)
    assert finding.title.startswith("hint, too few to judge: 5 all-reduces of 5")
    assert "at least 10" in finding.missing[0].what


def test_event_wait_makes_it_a_possible_dependency(judge):
    _, found = judge(queued_export(2, told=True))
    finding = found["collective_skew/queued-all-reduce-gemm-event"]
    assert finding.level is Level.UNKNOWN
    assert "wait for an event" in finding.title


def test_event_wait_is_none_while_earlier_work_still_runs(traced):
    # The stream in front still has work launched before the wait: the event cannot have come last.
    export = queued_export(2, told=True)
    for rank in range(2):
        export.kernel(
            5_000 * US, 9_000 * US, GEMM, device=rank, pid=100 + rank, stream=9, launch=5 * US
        )
    assert queueing(traced(export))["dependency"].to_list() == [False]


def test_queueing_is_told_from_longer_kernels_in_lateness(judge):
    export = ranks_export(2)
    for i in range(24):
        at = (100 + 400 * i) * US
        for rank in range(2):
            held = 100 * US if rank else 40 * US
            export.kernel(at, at + held, GEMM, device=rank, pid=100 + rank, stream=9)
            collective(export, at + held + 100, at + 120 * US, rank=rank, launch=at + 1 * US)
    frames, found = judge(export)
    assert frames["lateness"].row(0, named=True)["what"] == QUEUED
    assert "it is ready, but other work holds its GPU" in found["collective_skew/all-reduce"].title


def waits(*rows):
    names = ("rank_id", "rank", "step_group", "wait_ns", "first_wait_ns", "wait_median_ns")
    return [dict(zip(names, row, strict=True)) for row in rows]


ROWS = waits((0, "rank 0", None, 10, 5, 2_000), (1, "rank 1", "decode step=N", 30, 0, 4_500))


def test_the_chart_shows_the_median_wait_of_each_rank():
    drawn = chart(frames_of("collective_skew", rank_waits=ROWS))
    [panel] = drawn.panels
    assert panel.y.labels == ("rank 0", "rank 1, decode step=N")
    assert [(b.row, b.end, b.role, b.label) for b in panel.marks if isinstance(b, Bar)] == [
        (0, 2_000, Role.WAIT, "2.00 us"),
        (1, 4_500, Role.WAIT, "4.50 us"),
    ]
    assert chart(frames_of("collective_skew")) is None


@pytest.mark.parametrize(("status", "is_least"), [("matched", False), ("one rank", True)])
def test_waiting_is_a_part_of_the_communication_of_each_gpu(status, is_least):
    ranks = [{"rank_id": 0, "gpu": 0}, {"rank_id": 1, "gpu": 0}, {"rank_id": 2, "gpu": 3}]
    communicators = [{"status": "matched"}, {"status": status}]
    frames = frames_of("collective_skew", rank_waits=ROWS, ranks=ranks, communicators=communicators)
    words = "waiting for other ranks"
    assert time_parts(frames) == (
        TimePart(0, words, 45, is_least),
        TimePart(3, words, 0, is_least),
    )
    assert time_parts(frames_of("collective_skew")) == ()
