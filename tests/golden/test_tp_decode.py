"""Tensor-parallel decode on two H200s, one report a rank: skew, and no contention."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit import engine
from tracekit.model.finding import Level
from tracekit.report import summary

ONLY = ("allreduce_contention", "collective_skew")
MODES = ("clean", "copy", "offload")


@pytest.fixture(scope="module")
def both(fixture_path):
    return engine.analyze(
        [fixture_path("tp_decode_rank0"), fixture_path("tp_decode_rank1")], only=ONLY
    )


@pytest.fixture(scope="module")
def one(fixture_path):
    return engine.analyze([fixture_path("tp_decode_rank0")], only=ONLY)


def waits(diagnosis, rank, mode):
    rows = diagnosis.frames["collective_skew"]["rank_waits"]
    mine = (pl.col("rank_id") == rank) & pl.col("step_group").str.ends_with(f"mode={mode}")
    return rows.filter(mine).row(0, named=True)


def test_clocks_are_aligned_on_collectives(both):
    found = both.alignment[1]
    assert (found.method, found.n) == ("collectives", 576)
    assert found.mad_ns == pytest.approx(90, abs=5)
    wall = 1796005381007065981 - 1796005380919373176
    assert found.offset_ns - wall == pytest.approx(30, abs=5)


@pytest.mark.parametrize("mode", MODES)
def test_transfer_is_the_same_in_every_mode(both, mode):
    rows = both.frames["collective_skew"]["skew"]
    row = rows.filter(pl.col("step_group").str.ends_with(f"mode={mode}")).row(0, named=True)
    assert row["n"] == 192
    assert row["transfer_median_ns"] == pytest.approx(7_830, rel=0.01)


@pytest.mark.parametrize(
    ("rank", "mode", "wait_us"), [(0, "clean", 111.1), (0, "copy", 9.5), (1, "offload", 39.5)]
)
def test_median_waits(both, rank, mode, wait_us):
    assert waits(both, rank, mode)["wait_median_ns"] / 1e3 == pytest.approx(wait_us, rel=0.01)


def test_skew_is_critical_and_its_reason_is_told(both):
    found = next(f for f in both.findings if f.id == "collective_skew/all-reduce")
    assert (found.level, found.downgraded_from) == (Level.CRITICAL, None)
    assert "median skew 146 us, transfer 7.83 us" in found.title
    assert "rank 0 waits 20.7 ms (36.2% of the 57.1 ms of device time in steps" in found.title
    assert "whoever is late (rank 1 most: 62.0%): its host launches late" in found.title
    assert "(84.3% of all ranks' lateness)" in found.title
    assert "rank 1 last at 121 of 192, with 62.0% of the lateness" in found.advice
    assert found.at_stake_ns / 1e6 == pytest.approx(45.3, rel=0.01)
    assert found.at_stake_of == "the device time in all steps, 175 ms a rank"
    assert any("without the profiler" in c for c in found.caveats)
    assert any("judged are the starts" in c for c in found.caveats)
    assert found.confidence.clock == 0.8


@pytest.mark.parametrize(("rank", "share"), [(0, 0.362), (1, 0.223)])
def test_the_first_collective_is_in_neither_part_of_a_share(both, rank, share):
    row = waits(both, rank, "clean")
    assert row["wait_frac"] == pytest.approx(row["wait_ns"] / row["time_ns"])
    assert row["wait_frac"] == pytest.approx(share, rel=0.01)
    assert row["time_ns"] / 1e6 == pytest.approx(57, rel=0.01)


def test_communication_says_how_much_of_it_waits(both):
    first, second = (summary.gpu_line(both, time) for time in both.overview.gpus)
    assert "communication 47.0% of busy (55.7 ms, of which 51.2 ms waiting for other" in first
    assert "(79.7 ms, of which 75.1 ms waiting for other ranks)" in second


def test_without_the_other_ranks_waiting_is_included(one):
    line = summary.gpu_line(one, one.overview.gpus[0])
    assert "(55.7 ms, waiting for other ranks included)" in line


def test_most_waiting_holds_something_up(both):
    rows = both.frames["collective_skew"]["rank_waits"]
    assert (rows["wait_blocking_ns"] / rows["wait_ns"]).min() > 0.94


def test_a_handful_of_queued_collectives_is_no_warning(both):
    (found,) = (f for f in both.findings if "queued" in f.id)
    assert (found.level, found.at_stake_ns) == (Level.OK, None)
    assert "5 all-reduces of 576 queue behind" in found.title
    assert "wait for them for 44.8 us of it" in found.title


def test_late_ranks_are_all_in_the_table(both):
    rows = both.frames["collective_skew"]["lateness"].filter(pl.col("weighty"))
    clean = rows.filter(pl.col("step_group").str.ends_with("mode=clean"))
    assert clean["late_rank"].unique(maintain_order=True).to_list() == ["rank 1", "rank 0"]
    assert clean["extra_frac"].min() >= 0.01


def test_there_is_no_contention(both):
    (found,) = (f for f in both.findings if f.id.startswith("allreduce_contention/"))
    assert (found.id, found.level) == ("allreduce_contention/not_slowed", Level.OK)
    offload = both.frames["allreduce_contention"]["groups"].filter(
        pl.col("partner") == "memcpy DtoH"
    )
    assert offload["slowdown_ratio"].item() == pytest.approx(0.99, abs=0.01)


def test_one_rank_alone_claims_nothing(one):
    assert {(f.id, f.level) for f in one.findings} == {
        ("allreduce_contention/one_rank", Level.UNKNOWN),
        ("collective_skew/one_rank", Level.UNKNOWN),
        ("collective_skew/queued-all-reduce-memcpy_DtoD", Level.UNKNOWN),
    }
    assert one.frames["allreduce_contention"]["groups"].is_empty()
    raw = one.frames["allreduce_contention"]["raw_durations"]
    assert raw["n"].sum() == 576


def test_both_orders_of_the_reports_agree(fixture_path, both):
    swapped = engine.analyze(
        [fixture_path("tp_decode_rank1"), fixture_path("tp_decode_rank0")], only=ONLY
    )
    assert waits(swapped, 1, "clean")["wait_median_ns"] == pytest.approx(
        waits(both, 0, "clean")["wait_median_ns"], abs=2
    )


def test_advice_is_short_enough_for_every_format(both):
    assert max(len(f.advice) for f in both.findings) <= 600


def test_before_a_rank_was_recorded_its_gpu_is_not_called_idle(both):
    spans = {time.gpu: time.span_ns for time in both.overview.gpus}
    # Rank 1 worked from -15.4 ms on; rank 0's recording began at 0.
    assert spans == {0: 195_140_614, 1: 195_140_614 + 15_433_325}
    assert all(time.idle_ns == time.span_ns - time.busy_ns for time in both.overview.gpus)
