"""Clocks of several reports brought together on their collectives."""

from __future__ import annotations

import pytest

from tests.support.builders import Export
from tests.support.communication import COMM, collective, ranks_export
from tracekit.views.collectives.alignment import align
from tracekit.views.collectives.kernels import collectives
from tracekit.views.collectives.matching import instances, matching

SHIFT = 3_000_000
JITTER = (0, 1500, -2000, 800, -300, 1900)
PERIOD = (0, 50_000, 130_000, 190_000, 260_000, 400_000)


def report(rank: int, n: int, shift: int = 0, *, jitter: bool = True, utc: int | None = None, **kw):
    """One rank's report: n collectives of 10 us."""
    export = ranks_export(1, devices=[rank])
    for i in range(n):
        end = 100_000 + PERIOD[i] + shift + (JITTER[i] if jitter else 0)
        collective(export, end - 10_000, end, rank=rank, **kw)
    if utc is not None:
        export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=utc)
    return export


def test_offset_comes_from_collective_ends(traced):
    trace = traced(report(0, 5, jitter=False), report(1, 5, SHIFT))
    found = trace.alignment[1]
    assert found.offset_ns == pytest.approx(SHIFT, abs=2000)
    assert (found.method, found.n) == ("collectives", 5)
    assert found.mad_ns == 800
    assert instances(trace).height == 5


def test_too_few_collectives_do_not_align(traced):
    trace = traced(report(0, 4, jitter=False), report(1, 4, SHIFT))
    assert (trace.alignment[1].method, trace.alignment[1].n) == ("none", 4)
    assert not trace.alignment[1].aligned
    assert matching(trace).communicators["status"].to_list() == ["clocks not aligned"]
    assert instances(trace).is_empty()


def test_wall_clock_alone_shifts_but_claims_nothing(traced):
    trace = traced(report(0, 2, utc=1_000_000), report(1, 2, utc=1_700_000))
    found = trace.alignment[1]
    assert (found.method, found.offset_ns, found.aligned) == ("utc", -700_000, False)


def test_skew_below_three_mads_is_zero(traced):
    trace = traced(report(0, 6, jitter=False), report(1, 6, SHIFT))
    mad = trace.alignment[1].mad_ns
    assert mad is not None
    skews = instances(trace)["skew_ns"].to_list()
    assert all(s == 0 or s >= 3 * mad for s in skews)
    assert 0 in skews


def test_different_numbers_of_collectives_are_aligned_where_they_fit(traced):
    first, second = report(0, 6, jitter=False), ranks_export(1, devices=[1])
    for i in range(1, 6):
        end = 100_000 + PERIOD[i] + SHIFT
        collective(second, end - 10_000, end, rank=1)
    trace = traced(first, second)
    assert (trace.alignment[1].offset_ns, trace.alignment[1].n) == (SHIFT, 5)
    assert instances(trace).height == 5


def test_reports_without_shared_communicators_are_not_aligned(traced):
    trace = traced(report(0, 6), report(1, 6, SHIFT, comm=COMM + 1))
    assert trace.alignment[1].method == "none"


def test_unnamed_communicators_align_by_order(traced):
    trace = traced(report(0, 6, described=False), report(1, 6, SHIFT, described=False))
    assert (trace.alignment[1].method, trace.alignment[1].offset_ns) == ("collectives", SHIFT)


def test_ends_that_scatter_like_the_period_do_not_align(traced):
    first, second = ranks_export(1, devices=[0]), ranks_export(1, devices=[1])
    for i in range(8):
        collective(first, 100_000 * i + 50_000, 100_000 * i + 60_000)
        at = 100_000 * i + 50_000 + (80_000 if i % 2 else 0)
        collective(second, at, at + 10_000, rank=1)
    assert traced(first, second).alignment[1].method == "none"


def test_same_process_id_in_two_reports_is_two_ranks(traced):
    exports = []
    for i in range(2):
        export = Export()
        export.gpu(0, uuid=f"1000000{i}-0000-0000-0000-000000000000")
        for k in range(5):
            end = 100_000 + PERIOD[k]
            export.kernel(end - 9_000 - i, end, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", pid=100)
        exports.append(export)
    trace = traced(*exports)
    rows = collectives(trace)
    assert rows.select("rank_id", "report", "gpu", "pid").unique().sort("rank_id").rows() == [
        (0, 0, 0, 100),
        (1, 1, 1, 100),
    ]
    assert instances(trace)["n_seen"].to_list() == [2] * 5


def test_align_takes_traces_by_position(traced):
    trace = traced(report(0, 5), report(1, 5, SHIFT))
    assert [a.report for a in align([trace, trace])] == [0, 1]


def test_two_reports_give_the_numbers_of_one_that_holds_both(traced):
    late = (0, 7_000, 3_000, 0, 12_000, 5_000)
    together = ranks_export(2)
    apart = [ranks_export(1, devices=[rank]) for rank in range(2)]
    for i, begun in enumerate(PERIOD):
        for rank in range(2):
            start = 100_000 + begun + (late[i] if rank else 0)
            end = 100_000 + begun + late[i] + 10_000
            collective(together, start, end, rank=rank)
            shift = SHIFT if rank else 0
            collective(apart[rank], start + shift, end + shift, rank=rank)
    columns = ["instance", "transfer_ns", "skew_ns", "first_start_ns", "last_end_ns"]
    one, two = instances(traced(together)), instances(traced(*apart))
    assert one.select(columns).equals(two.select(columns))
    assert one["skew_ns"].to_list() == list(late)
