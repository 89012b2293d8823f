"""What waited for a collective to end, and what a communicator's delays come to, counted once."""

from __future__ import annotations

import pytest

from tests.support.communication import collective, ranks_export
from tracekit.views.collectives.dependents import dependents
from tracekit.views.contention.loss import combined_stake
from tracekit.views.waiting.rank_waits import rank_waits, skews

US = 1_000
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"


def two_ranks():
    """Rank 0 starts at 100 us, rank 1 at 140 us, both end at 200 us."""
    export = ranks_export(2)
    collective(export, 100 * US, 200 * US, rank=0, launch=90 * US)
    return collective(export, 140 * US, 200 * US, rank=1, launch=90 * US)


def felt(trace):
    columns = ("rank_id", "waited_from_ns", "wait_blocking_ns", "delay_blocking_ns")
    return {row[0]: row[1:] for row in dependents(trace).select(columns).rows()}


NOTHING = (None, 0, 0)


def test_without_a_dependent_nothing_is_felt(traced):
    assert felt(traced(two_ranks())) == {0: NOTHING, 1: NOTHING}


def test_launched_work_that_begins_at_the_end_waited_for_it(traced):
    export = two_ranks().kernel(202 * US, 210 * US, GEMM, stream=9, launch=95 * US)
    assert felt(traced(export)) == {0: (100 * US, 40 * US, 60 * US), 1: NOTHING}


@pytest.mark.parametrize(
    ("launch_us", "begin_us"),
    [(201, 202), (95, 215)],
    ids=["launched after the end", "begins much later"],
)
def test_other_work_did_not_wait(traced, launch_us, begin_us):
    export = two_ranks().kernel(begin_us * US, 230 * US, GEMM, stream=9, launch=launch_us * US)
    assert felt(traced(export))[0] == NOTHING


def test_a_stream_waits_only_from_when_it_has_nothing_else_to_do(traced):
    export = two_ranks()
    export.kernel(90 * US, 150 * US, GEMM, stream=9, launch=80 * US)
    export.kernel(202 * US, 210 * US, GEMM, stream=9, launch=81 * US)
    assert felt(traced(export))[0] == (150 * US, 0, 50 * US)


def test_a_late_launch_waits_only_from_then_on(traced):
    export = two_ranks().kernel(202 * US, 210 * US, GEMM, stream=9, launch=120 * US)
    assert felt(traced(export))[0] == (120 * US, 20 * US, 60 * US)


def test_a_host_call_that_returns_at_the_end_waited(traced):
    export = two_ranks().call(130 * US, 210 * US, "cudaStreamSynchronize_v3020", pid=100)
    assert felt(traced(export)) == {0: (130 * US, 10 * US, 60 * US), 1: NOTHING}


@pytest.mark.parametrize("name", ["cudaStreamWaitEvent_v3020", "cudaDeviceSynchronize_v3020"])
def test_only_calls_that_block_the_host_count(traced, name):
    export = two_ranks().call(130 * US, 210 * US, name, pid=100)
    assert (felt(traced(export))[0] == NOTHING) == (name == "cudaStreamWaitEvent_v3020")


def test_what_waits_for_the_end_of_a_chain_waits_for_each_link(traced):
    export = two_ranks()
    for rank in range(2):
        collective(export, 203 * US, 250 * US, rank=rank, launch=91 * US)
    export.kernel(252 * US, 260 * US, GEMM, stream=9, launch=95 * US)
    rows = dependents(traced(export)).sort("rank_id", "waited_from_ns")
    mine = rows.filter(rows["rank_id"] == 0)
    assert mine["waited_from_ns"].to_list() == [100 * US, 203 * US]
    assert mine["wait_blocking_ns"].to_list() == [40 * US, 0]
    assert mine["delay_blocking_ns"].to_list() == [110 * US, 47 * US]


def test_waits_count_as_felt_in_the_means_over_ranks(traced):
    trace = traced(two_ranks().kernel(202 * US, 210 * US, GEMM, stream=9, launch=95 * US))
    assert rank_waits(trace).select("wait_ns", "wait_blocking_ns").rows() == [
        (40 * US, 40 * US),
        (0, 0),
    ]
    assert skews(trace).select("mean_wait_ns", "mean_wait_blocking_ns").rows() == [
        (20 * US, 20 * US)
    ]
    assert combined_stake(trace).drop("comm").rows() == [(20 * US, 0, 0, 20 * US)]


def test_the_first_collective_s_wait_is_not_in_the_time_of_the_share(traced):
    export = ranks_export(2)
    for i in range(20):
        at = (1_000 + 400 * i) * US
        early = at - 900 * US if i == 0 else at - 10 * US
        collective(export, early, at + 50 * US, rank=0)
        collective(export, at, at + 50 * US, rank=1)
    rows = rank_waits(traced(export))
    span = (1_000 + 400 * 19 + 50 - 100) * US
    assert rows["first_wait_ns"].to_list() == [900 * US, 0]
    assert rows["time_ns"].to_list() == [span - 900 * US, span]
    assert rows["wait_frac"][0] == pytest.approx(19 * 10 * US / (span - 900 * US))
