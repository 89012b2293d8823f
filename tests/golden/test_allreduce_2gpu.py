"""All-reduces of two H200s alone, beside device copies and beside GEMMs: what is true of it."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit import engine
from tracekit.model.analysis import Level

MIB = 1 << 20
TRANSFER_US = {
    (1, None): 12.2,
    (1, "memcpy DtoD"): 42.9,
    (1, "gemm"): 21.9,
    (16, None): 70.5,
    (16, "memcpy DtoD"): 168.5,
    (16, "gemm"): 88.8,
    (64, None): 241.6,
    (64, "memcpy DtoD"): 398.4,
    (64, "gemm"): 348.6,
}
SLOWDOWN = {
    (1, "memcpy DtoD"): (3.51, 3.38, 3.58),
    (16, "memcpy DtoD"): (2.39, 2.33, 2.44),
    (64, "memcpy DtoD"): (1.65, 1.62, 1.67),
    (1, "gemm"): (1.79, 1.20, 4.50),
    (16, "gemm"): (1.26, 1.22, 1.30),
    (64, "gemm"): (1.44, 1.39, 1.50),
}


@pytest.fixture(scope="module")
def diagnosis(fixture_path):
    return engine.analyze(
        [fixture_path("allreduce_2gpu")], only=("allreduce_contention", "collective_skew")
    )


@pytest.fixture(scope="module")
def groups(diagnosis):
    rows = diagnosis.frames["allreduce_contention"]["groups"].iter_rows(named=True)
    return {(r["bytes"] // MIB, r["partner"]): r for r in rows}


def finding(diagnosis, name):
    return next(f for f in diagnosis.findings if f.id == name)


@pytest.mark.parametrize(("key", "expected_us"), TRANSFER_US.items())
def test_median_transfers(groups, key, expected_us):
    size, partner = key
    row = groups[size, partner or "gemm"]
    found = row["cont_ns"] if partner else row["base_ns"]
    assert found / 1e3 == pytest.approx(expected_us, rel=0.01)


@pytest.mark.parametrize(("key", "expected"), SLOWDOWN.items())
def test_slowdowns_with_their_intervals(groups, key, expected):
    row = groups[key]
    assert row["slowdown_ratio"] == pytest.approx(expected[0], rel=0.01)
    assert row["slowdown_lo_ratio"] == pytest.approx(expected[1], rel=0.03)
    assert row["slowdown_hi_ratio"] == pytest.approx(expected[2], rel=0.03)
    assert (row["n_base"], row["n_cont"]) == (8, 8)


@pytest.mark.parametrize(
    ("slug", "lost_ms", "share", "mechanism"),
    [("bandwidth", 2.29, 0.0184, "bandwidth"), ("sm", 1.17, 0.0094, "SM/scheduling")],
)
def test_two_contention_findings_with_their_loss(diagnosis, slug, lost_ms, share, mechanism):
    found = finding(diagnosis, f"allreduce_contention/all-reduce-{slug}")
    assert found.level is Level.WARN
    assert found.at_stake_ns / 1e6 == pytest.approx(lost_ms, rel=0.01)
    assert found.at_stake_frac == pytest.approx(share, rel=0.01)
    rows = diagnosis.frames["allreduce_contention"]["mechanisms"]
    assert rows.filter(pl.col("lost_ns") == found.at_stake_ns)["mechanism"].to_list() == [mechanism]


def test_there_are_no_other_contention_findings(diagnosis):
    found = [f for f in diagnosis.findings if f.id.startswith("allreduce_contention/")]
    assert [f.level for f in found] == [Level.WARN, Level.WARN]


def test_memory_traffic_in_the_transfer_windows(groups):
    assert groups[64, "gemm"]["dram_base_frac"] == pytest.approx(0.234, abs=0.02)
    assert groups[64, "memcpy DtoD"]["dram_cont_frac"] == pytest.approx(0.879, abs=0.02)
    assert groups[64, "gemm"]["dram_cont_frac"] == pytest.approx(0.324, abs=0.02)


def test_bus_bandwidth(groups):
    assert groups[64, "gemm"]["busbw_base_gbps"] == pytest.approx(278, rel=0.01)
    assert groups[64, "memcpy DtoD"]["busbw_cont_gbps"] == pytest.approx(168, rel=0.01)
    assert groups[64, "gemm"]["busbw_cont_gbps"] == pytest.approx(192, rel=0.01)


def test_kernels_not_ranges_are_counted(diagnosis):
    facts = diagnosis.frames["allreduce_contention"]["facts"].row(0, named=True)
    assert (facts["n_comm_kernels"], facts["n_host_calls"], facts["n_undecodable"]) == (144, 145, 0)
    cases = diagnosis.frames["allreduce_contention"]["collectives"]
    assert cases.height == 72
    alone = cases.filter(pl.col("state") == "alone")["overlap_frac"]
    beside = cases.filter(pl.col("state") == "contended")["overlap_frac"]
    assert (alone.len(), alone.max(), beside.len()) == (24, 0.0, 48)
    assert beside.min() >= 0.97


def test_lost_time_goes_with_the_copies_and_the_gemms(diagnosis):
    rows = diagnosis.frames["allreduce_contention"]["attribution"]
    for mechanism, kind in (("bandwidth", "memcpy DtoD"), ("SM/scheduling", "gemm")):
        own = rows.filter((pl.col("mechanism") == mechanism) & (pl.col("kind") == kind))
        assert own["excess_frac"].sum() > 0.99


def test_waiting_and_queueing_are_told_apart(diagnosis):
    skew = finding(diagnosis, "collective_skew/all-reduce")
    assert skew.level is Level.WARN
    copies = finding(diagnosis, "collective_skew/queued-all-reduce-memcpy_DtoD")
    gemms = finding(diagnosis, "collective_skew/queued-all-reduce-gemm")
    assert copies.at_stake_ns / 1e6 == pytest.approx(7.68, rel=0.01)
    assert gemms.at_stake_ns / 1e6 == pytest.approx(21.6, rel=0.01)
    assert "neither waiting for a rank nor a slower transfer" in gemms.advice


def test_the_words_answer_what_how_much_why_and_what_to_do(diagnosis):
    title = finding(diagnosis, "allreduce_contention/all-reduce-bandwidth").title
    for part in (
        "all-reduce is 1.65x to 3.51x slower while device-to-device copies run",
        "memory bandwidth (DRAM 88 % busy, alone 23 %)",
        "2.29 ms lost, 1.8 % of the capture",
    ):
        assert part in title
    assert "caused" not in " ".join(f.title + f.advice for f in diagnosis.findings)
