"""All-reduces of two H200s alone, beside device copies and beside GEMMs: what is true of it."""

from __future__ import annotations

import re

import polars as pl
import pytest

from tracekit import engine
from tracekit.model.finding import Level
from tracekit.report import text

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
    found = row["overlapped_ns"] if partner else row["alone_ns"]
    assert found / 1e3 == pytest.approx(expected_us, rel=0.01)


@pytest.mark.parametrize(("key", "expected"), SLOWDOWN.items())
def test_slowdowns_with_their_intervals(groups, key, expected):
    row = groups[key]
    assert row["slowdown_ratio"] == pytest.approx(expected[0], rel=0.01)
    assert row["slowdown_lo_ratio"] == pytest.approx(expected[1], rel=0.03)
    assert row["slowdown_hi_ratio"] == pytest.approx(expected[2], rel=0.03)
    assert (row["n_alone"], row["n_overlapped"]) == (8, 8)


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
    assert groups[64, "gemm"]["dram_alone_frac"] == pytest.approx(0.234, abs=0.02)
    assert groups[64, "memcpy DtoD"]["dram_overlapped_frac"] == pytest.approx(0.879, abs=0.02)
    assert groups[64, "gemm"]["dram_overlapped_frac"] == pytest.approx(0.324, abs=0.02)


def test_bus_bandwidth(groups):
    assert groups[64, "gemm"]["busbw_alone_gbps"] == pytest.approx(278, rel=0.01)
    assert groups[64, "memcpy DtoD"]["busbw_overlapped_gbps"] == pytest.approx(168, rel=0.01)
    assert groups[64, "gemm"]["busbw_overlapped_gbps"] == pytest.approx(192, rel=0.01)


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


def test_the_contention_findings_are_read_first(diagnosis):
    worst = [f.id for f in diagnosis.findings if f.level is Level.WARN]
    assert worst == [
        "allreduce_contention/all-reduce-bandwidth",
        "allreduce_contention/all-reduce-sm",
        "collective_skew/all-reduce",
    ]


@pytest.mark.parametrize(
    ("partner", "queued_ms", "n"), [("memcpy_DtoD", 7.68, 24), ("gemm", 21.6, 22)]
)
def test_queueing_is_told_but_claims_nothing(diagnosis, partner, queued_ms, n):
    found = finding(diagnosis, f"collective_skew/queued-all-reduce-{partner}")
    assert (found.level, found.at_stake_ns, found.at_stake_frac) == (Level.OK, None, None)
    values = {m.name: m.value for m in found.metrics}
    assert values["queued_ns"] / 1e6 == pytest.approx(queued_ms, rel=0.01)
    assert (values["n_queued"], values["blocking_ns"]) == (n, 0)
    assert "nothing is seen to wait for them, so it may cost nothing" in found.title
    assert "neither waiting for a rank nor a slower transfer" in found.advice


def test_waiting_is_reported_apart_with_what_is_felt_of_it(diagnosis):
    skew = finding(diagnosis, "collective_skew/all-reduce")
    assert skew.level is Level.WARN
    assert skew.at_stake_ns == pytest.approx(63_600, rel=0.02)
    assert "rank 1 waits 10.7 ms (8.63% of the 124 ms from first to last" in skew.title
    assert "of which only 85.2 us is seen to delay anything" in skew.title
    assert "(86.8% of rank 0's lateness)" in skew.title
    assert skew.advice.startswith("Little is to gain here: 63.6 us of the mean wait of 6.84 ms is")
    waits = diagnosis.frames["collective_skew"]["rank_waits"]
    assert waits["wait_blocking_ns"].to_list() == pytest.approx([42_062, 85_200], rel=0.02)


def test_findings_add_up_once(diagnosis):
    row = diagnosis.frames["collective_skew"]["combined_stake"].row(0, named=True)
    assert row["slower_ns"] / 1e6 == pytest.approx(2.29 + 1.17, rel=0.01)
    assert row["queueing_ns"] == 0
    assert row["combined_ns"] == pytest.approx(row["waiting_ns"] + row["slower_ns"], abs=2)
    for found in diagnosis.findings:
        if found.level is Level.WARN:
            assert "together put at most 3.52 ms at stake, each moment counted once" in found.advice


def test_sms_in_use_are_shown_beside_and_alone(diagnosis):
    found = finding(diagnosis, "allreduce_contention/all-reduce-sm")
    values = {m.name: m.value for m in found.metrics}
    assert values["sms_overlapped_frac"] == pytest.approx(0.969, abs=0.02)
    assert values["sms_alone_frac"] == pytest.approx(0.174, abs=0.02)
    assert "SMs 96.9% in use, alone 17.4%" in found.title


def test_an_uncertain_size_is_not_in_the_range_of_the_headline(diagnosis):
    title = finding(diagnosis, "allreduce_contention/all-reduce-sm").title
    assert "all-reduce is 1.26x to 1.44x slower while GEMMs run" in title
    assert "(1.05 MB uncertain, 1.20x to 4.50x from n=8)" in title


def test_each_number_says_of_what_it_is(diagnosis):
    words = {
        m.name: m.doc for m in finding(diagnosis, "allreduce_contention/all-reduce-sm").metrics
    }
    assert "3 sizes pooled, 8 each" in words["slowdown_ratio"]
    assert words["bus_bandwidth_alone_gbps"].endswith("67.1 MB")
    assert "warn from 1%, critical from 5%" in words["lost_to_all_frac"]
    assert "the 124 ms from first to last device work" in words["lost_frac"]


def test_headings_are_words(diagnosis):
    page = text.render(diagnosis)
    heading = next(
        line for line in page.splitlines() if line.split()[:3] == ["(MB)", "work", "alone"]
    )
    assert heading.split()[2:6] == ["alone", "overlap", "(us)", "(us)"]
    assert not re.search(r"\b(n|dram|link) (cont|base)\b", page)


def test_the_words_answer_what_how_much_why_and_what_to_do(diagnosis):
    found = finding(diagnosis, "allreduce_contention/all-reduce-bandwidth")
    for part in (
        "all-reduce is 1.65x to 3.51x slower while device-to-device copies run",
        "memory bandwidth (DRAM 87.9% busy, alone 23.4%)",
        "2.29 ms lost, 1.84% of the 124 ms from first to last device work",
    ):
        assert part in found.title
    assert "start sooner, but not move data faster" in found.advice
    assert any("gets shorter only where something waits" in c for c in found.caveats)
    assert "caused" not in " ".join(f.title + f.advice for f in diagnosis.findings)


def test_advice_is_short_enough_for_every_format(diagnosis):
    assert max(len(f.advice) for f in diagnosis.findings) <= 600
