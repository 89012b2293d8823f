"""Tensor-parallel decode on two H200s, one report a rank: skew, and no contention."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit import engine
from tracekit.model.analysis import Level

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
    assert "rank 0 waits 36 % of its step time" in found.title
    assert "its host launches late (84 % of the lateness)" in found.title
    assert found.confidence.clk == 0.8


def test_there_is_no_contention(both):
    (found,) = (f for f in both.findings if f.id.startswith("allreduce_contention/"))
    assert (found.id, found.level) == ("allreduce_contention/unharmed", Level.OK)
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
