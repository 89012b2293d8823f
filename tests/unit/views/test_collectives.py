"""Communication kernels and the host calls behind them."""

from __future__ import annotations

import lzma
import tomllib
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest

from tests.support.communication import (
    ALL_REDUCE,
    COMM,
    NCCL,
    collective,
    payload,
    ranks_export,
    ranks_stated,
)
from tracekit.opening import open_trace
from tracekit.views.collectives.facts import collective_counts
from tracekit.views.collectives.kernels import bus_factor, collectives, peer_copies
from tracekit.views.collectives.matching import instances, matching

RECORDINGS = Path(__file__).parents[3] / "fixtures" / "injector"
OLD_NAMES = [
    ("ncclAllReduceRingLLKernel_sum", "AllReduce"),
    ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", "AllReduce"),
    ("ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16", "ReduceScatter"),
    ("ncclDevKernel_AllGather_RING_LL", "AllGather"),
    ("ncclDevKernel_Broadcast_RING_LL", "Broadcast"),
    ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)", "AllReduce"),
    ("ncclSymkDevKernel_AllGather_STMC", "AllGather"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(...)", "AllReduce"),
    ("two_shot_all_reduce_kernel_inplace", "AllReduce"),
]


@pytest.fixture
def recording(tmp_path):
    """Return a function from a recording's name to (trace, truth)."""
    with ExitStack() as stack:

        def opened(name):
            path = tmp_path / f"{name}.sqlite"
            with lzma.open(RECORDINGS / f"{name}.sqlite.xz") as packed:
                path.write_bytes(packed.read())
            trace = stack.enter_context(open_trace([path]))
            return trace, tomllib.loads((RECORDINGS / f"{name}.toml").read_text())

        yield opened


@pytest.mark.parametrize(("name", "op"), OLD_NAMES)
def test_every_naming_era_is_communication(traced, name, op):
    export = collective(ranks_export(1), 100, 200, name=name, described=False)
    row = collectives(traced(export)).row(0, named=True)
    assert (row["op"], row["bytes"], row["comm_known"]) == (op, None, False)


def test_payload_and_launch_are_joined(traced):
    row = collectives(traced(collective(ranks_export(1), 100, 200, size=4096))).row(0, named=True)
    assert (row["op"], row["bytes"], row["dtype"]) == ("AllReduce", 4096, "bf16")
    assert (row["comm"], row["grid"], row["launch_start_ns"]) == (f"0x{COMM:016x}", "24x1x1", 90)
    assert (row["nranks"], row["nranks_at_least"], row["provenance"]) == (None, 1, 0.8)


def test_generic_and_sendrecv_names_take_the_operation_of_the_call(traced):
    export = ranks_export(1)
    collective(export, 100, 200, name="ncclDevKernel_SendRecv")
    collective(export, 300, 400, name="ncclDevKernel_Generic_1")
    collective(export, 500, 600, name="ncclDevKernel_Generic_1", described=False)
    trace = traced(export)
    rows = collectives(trace).sort("start_ns")
    assert rows["op"].to_list() == ["AllReduce", "AllReduce", None]
    assert collective_counts(trace).n_op_conflicts == 1


def test_suffix_of_a_name_is_not_part_of_the_key(traced):
    export = ranks_export(1)
    collective(export, 100, 200, size=256 << 20)
    row = collectives(traced(export)).row(0, named=True)
    assert row["bytes"] == 256 << 20
    assert "algorithm" not in row
    assert "protocol" not in row


def test_no_nccl_ranges_leaves_sizes_and_ranks_unknown(traced):
    export = collective(ranks_export(1), 100, 200, described=False)
    trace = traced(export)
    row = collectives(trace).row(0, named=True)
    assert (row["op"], row["bytes"], row["nranks"], row["provenance"]) == (
        "AllReduce",
        None,
        None,
        0.6,
    )
    assert not collective_counts(trace).has_nccl_ranges


def test_per_rank_sizes_are_multiplied_by_the_ranks(traced):
    export = ranks_export(1)
    ranks_stated(export, COMM, 8, 0)
    collective(
        export, 100, 200, op="AllGather", name="ncclDevKernel_AllGather_RING_LL", size=8 << 20
    )
    row = collectives(traced(export)).row(0, named=True)
    assert (row["bytes"], row["nranks"], row["provenance"], row["rank"]) == (64 << 20, 8, 1.0, 0)
    algorithm = row["bytes"] / 200_000
    assert algorithm == pytest.approx(335.544, rel=1e-5)
    assert algorithm * bus_factor("AllGather", 8) == pytest.approx(293.601, rel=1e-5)


def test_bus_bandwidth():
    assert pytest.approx(191.740, rel=1e-5) == (64 << 20) / 350_000
    assert (64 << 20) / 350_000 * bus_factor("AllReduce", 8) == pytest.approx(335.544, rel=1e-5)
    assert 100_000_000 / 1_000_000 * bus_factor("AllReduce", 8) == pytest.approx(175.0)
    assert bus_factor("ReduceScatter", 4) == 0.75
    assert bus_factor("AllReduce", 1) == 0
    assert (bus_factor("Broadcast", 4), bus_factor(None, 4), bus_factor("AllReduce", 0)) == (
        1.0,
        None,
        None,
    )


def test_graph_kernels_are_counted_by_executions(traced):
    export = ranks_export(1)
    export.range(10, 20, "ncclAllReduce", pid=100, tid=100, domain=NCCL)
    for i in range(200):
        export.kernel(
            1000 + 10 * i, 1005 + 10 * i, ALL_REDUCE, correlation=7, graphNodeId=5 + (i << 32)
        )
    export.call(900, 910, "cudaGraphLaunch_v10000", correlation=7)
    trace = traced(export)
    counts = collective_counts(trace)
    assert (counts.n_kernels, counts.n_host_calls) == (200, 1)
    assert collectives(trace)["in_graph"].all()
    assert collectives(trace)["bytes"].null_count() == 200


def test_graph_kernels_find_the_call_that_was_captured(traced):
    export = ranks_export(1)
    blob = payload("AllReduce", COMM, 2048)
    export.range(10, 20, "ncclAllReduce", pid=100, tid=100, domain=NCCL, binaryData=blob)
    events = ((12, 1, None), (30, 1 << 33, 1), (31, 1 << 34, 1 << 33))
    for at, node, original in events:
        export.add(
            "CUDA_GRAPH_NODE_EVENTS",
            start=at,
            end=at,
            globalTid=(1 << 56) | (100 << 24) | 100,
            graphNodeId=node,
            originalGraphNodeId=original,
        )
    export.call(900, 910, "cudaGraphLaunch_v10000", correlation=7)
    for i in range(3):
        export.kernel(1000 + i, 1001 + i, ALL_REDUCE, correlation=7, graphNodeId=1 << 34)
    rows = collectives(traced(export))
    assert rows["bytes"].to_list() == [2048] * 3
    assert rows["comm"].to_list() == [f"0x{COMM:016x}"] * 3


def test_kernels_of_unknown_calls_take_the_communicator_of_their_stream(traced):
    export = collective(ranks_export(1), 100, 200)
    collective(export, 300, 400, described=False)
    collective(export, 500, 600, described=False, stream=9)
    rows = collectives(traced(export)).sort("start_ns")
    assert rows["comm"].to_list() == [f"0x{COMM:016x}"] * 2 + ["~nccl#0"]
    assert rows["bytes"].to_list() == [1 << 20, None, None]
    assert rows["provenance"].to_list() == [0.8, 0.6, 0.6]


def test_collective_described_twice_is_counted_once(traced):
    export = ranks_export(1).domain(2, "tracekit")
    for i in range(10):
        at = 1000 * i + 100
        text = f"COLL op=AllReduce comm=0x55aa seq={i} bytes=4096 dtype=bfloat16 nranks=2 rank=1"
        export.range(at - 20, at + 20, text, pid=100, tid=100, domain=2)
        collective(export, at, at + 50, size=4096)
    trace = traced(export)
    rows = collectives(trace)
    assert rows.height == 10
    assert rows.select("bytes", "nranks", "rank", "provenance").unique().rows() == [
        (4096, 2, 1, 1.0)
    ]
    assert collective_counts(trace).n_host_calls == 10


def test_markers_alone_tell_size_and_ranks(traced):
    export = ranks_export(1).domain(2, "tracekit")
    text = "COLL op=AllGather comm=0x55aa seq=0 bytes=4096 dtype=float16 nranks=4 rank=3"
    export.range(80, 120, text, pid=100, tid=100, domain=2)
    collective(export, 100, 150, name="ncclDevKernel_Generic_1", described=False)
    row = collectives(traced(export)).row(0, named=True)
    assert (row["op"], row["bytes"], row["dtype"], row["nranks"]) == ("AllGather", 4096, "f16", 4)
    assert (row["comm"], row["rank"], row["provenance"]) == ("~nccl#0", 3, 1.0)


def grouped(n_calls: int, n_kernels: int):
    """A group call: start, n calls of 100 B, 200 B, ..., an end that launches n kernels."""
    export = ranks_export(1)
    export.range(10, 11, "ncclGroupStart", pid=100, tid=100, domain=NCCL)
    for i in range(n_calls):
        blob = payload("AllReduce", COMM, 100 * (i + 1))
        export.range(
            20 + i, 20 + i + 1, "ncclAllReduce", pid=100, tid=100, domain=NCCL, binaryData=blob
        )
    export.range(100, 200, "ncclGroupEnd", pid=100, tid=100, domain=NCCL)
    for i in range(n_kernels):
        collective(export, 1000 + 100 * i, 1050 + 100 * i, launch=110 + 10 * i, described=False)
    return export


@pytest.mark.parametrize(
    ("n_calls", "n_kernels", "sizes", "fused"),
    [
        (1, 1, [100], False),
        (3, 1, [600], True),
        (3, 3, [100, 200, 300], False),
        (3, 2, [None, None], True),
    ],
)
def test_group_launches_belong_to_the_calls_of_the_group(traced, n_calls, n_kernels, sizes, fused):
    rows = collectives(traced(grouped(n_calls, n_kernels))).sort("start_ns")
    assert rows["bytes"].to_list() == sizes
    assert rows["fused_group"].to_list() == [fused] * n_kernels
    assert rows["op"].to_list() == ["AllReduce"] * n_kernels


@pytest.mark.parametrize(
    ("n_calls", "n_kernels", "sizes", "fused"),
    [(1, 1, [100], False), (3, 1, [600], True), (3, 3, [100, 200, 300], False)],
)
def test_groups_told_by_markers_alone(traced, n_calls, n_kernels, sizes, fused):
    export = ranks_export(1).domain(2, "tracekit")
    where = {"pid": 100, "tid": 100, "domain": 2}
    export.mark(10, "GROUP event=start depth=1 rc=0", **where)
    for i in range(n_calls):
        text = f"COLL op=AllReduce comm=0x55aa seq={i} bytes={100 * (i + 1)} nranks=2 depth=1"
        export.range(20 + i, 20 + i + 1, text, **where)
    export.mark(200, "GROUP event=end depth=0 rc=0", **where)
    for i in range(n_kernels):
        collective(export, 1000 + 100 * i, 1050 + 100 * i, launch=110 + 10 * i, described=False)
    rows = collectives(traced(export)).sort("start_ns")
    assert rows["bytes"].to_list() == sizes
    assert rows["fused_group"].to_list() == [fused] * n_kernels
    assert rows["nranks"].to_list() == [2] * n_kernels


def test_real_calls_of_every_operation(recording):
    trace, truth = recording("torch_collectives")
    rows = collectives(trace).filter(pl.col("rank_id") == 0)
    found = [list(row) for row in rows.sort("start_ns").select("op", "bytes").iter_rows()]
    # The last call was captured into a graph that was traced as a whole.
    assert found[2:] == truth["ranks"][0]["asked"][:-1]
    assert rows["nranks"].to_list() == [2] * rows.height
    assert collective_counts(trace).n_op_conflicts == 0


def test_real_group_calls_of_one_process_on_two_gpus(recording):
    trace, truth = recording("nccl_by_ctypes")
    rows = collectives(trace)
    assert rows.height == truth["asked"]["all_reduces"]
    assert set(rows["bytes"]) == {truth["asked"]["bytes"]}
    assert not rows["fused_group"].any()
    about = matching(trace).communicators.row(0, named=True)
    assert (about["status"], about["n_ranks"], about["n_matched"]) == ("matched", 2, 3)


def test_group_end_without_a_start_in_the_capture(traced):
    export = ranks_export(1)
    export.range(100, 200, "ncclGroupEnd", pid=100, tid=100, domain=NCCL)
    collective(export, 1000, 1050, launch=110, described=False)
    collective(export, 2000, 2050, size=64)
    assert collectives(traced(export)).sort("start_ns")["bytes"].to_list() == [None, 64]


def test_sequence_counts_kernels_not_calls(traced):
    export = ranks_export(1)
    for i in range(3):
        collective(export, 100 + 100 * i, 150 + 100 * i)
    blob = payload("AllReduce", COMM, 4)
    export.range(900, 910, "ncclAllReduce", pid=100, tid=100, domain=NCCL, binaryData=blob)
    trace = traced(export)
    assert collectives(trace)["seq"].to_list() == [0, 1, 2]
    assert collective_counts(trace).n_host_calls == 4


def test_peer_copies_are_listed_apart(traced):
    export = collective(ranks_export(1), 100, 200)
    export.memcpy(300, 400, kind=10, nbytes=1000)
    trace = traced(export)
    assert collectives(trace).height == 1
    assert peer_copies(trace).rows() == [(0, 1, 1000, 100, 1e10)]


def test_zero_length_rows_are_counted(traced):
    export = collective(ranks_export(1), 100, 200)
    collective(export, 300, 300)
    trace = traced(export)
    assert collectives(trace).height == 1
    assert collective_counts(trace).n_zero_len == 1


# Matching across ranks.


def four_ranks(starts, ends, *, described=True):
    export = ranks_export(4)
    for rank, (start, end) in enumerate(zip(starts, ends, strict=True)):
        collective(export, start, end, rank=rank, launch=max(start - 10, 20), described=described)
    return export


@pytest.mark.parametrize("described", [True, False], ids=["payload", "by order"])
def test_waiting_is_not_transfer(traced, described):
    starts = [1000, 11_000, 21_000, 61_000]
    trace = traced(four_ranks(starts, [73_000] * 4, described=described))
    row = instances(trace).row(0, named=True)
    assert (row["transfer_ns"], row["skew_ns"], row["late_rank_id"]) == (12_000, 60_000, 3)
    members = matching(trace).members
    assert members["wait_ns"].to_list() == [60_000, 50_000, 40_000, 0]
    assert members["xfer_ns"].to_list() == [12_000] * 4


def test_waits_transfers_and_skew(traced):
    us = 1000
    starts, ends = [100, 105, 140, 110], [220, 221, 222, 221]
    trace = traced(four_ranks([s * us for s in starts], [e * us for e in ends]))
    members, row = matching(trace).members, instances(trace).row(0, named=True)
    assert [w // us for w in members["wait_ns"]] == [40, 35, 0, 30]
    assert [x // us for x in members["xfer_ns"]] == [80, 81, 82, 81]
    assert row["skew_ns"] == 40 * us
    median_transfer = pl.Series(members["xfer_ns"]).median()
    assert row["skew_ns"] / median_transfer == pytest.approx(0.494, abs=5e-4)
    assert row["transfer_ns"] == 82 * us


def ragged(n0: int, n1: int, skip: int, period) -> object:
    """Two ranks; rank 1 recorded only collectives skip .. skip + n1."""
    export = ranks_export(2)
    at = 10_000
    for i in range(n0):
        collective(export, at, at + 500)
        if skip <= i < skip + n1:
            collective(export, at + 3, at + 501, rank=1)
        at += period(i)
    return export


def test_different_counts_are_matched_where_the_ends_agree_best(traced):
    trace = traced(ragged(12, 9, 2, lambda i: 2000 + 137 * (i * i % 7)))
    found = matching(trace)
    assert found.communicators.select("status", "n_matched").row(0) == ("matched", 9)
    assert instances(trace)["skew_ns"].to_list() == [3] * 9


def test_different_counts_of_even_spacing_are_not_matched(traced):
    trace = traced(ragged(12, 9, 2, lambda _: 2000))
    assert matching(trace).communicators["status"].to_list() == ["counts differ"]
    assert instances(trace).is_empty()


def test_order_alone_is_not_believed_when_ranks_do_not_overlap(traced):
    export = ranks_export(2)
    for i in range(10):
        collective(export, 1000 * i + 100, 1000 * i + 200, described=False)
        collective(export, 1000 * i + 600, 1000 * i + 700, rank=1, described=False)
    found = matching(traced(export))
    assert found.communicators["status"].to_list() == ["one rank", "one rank"]
    assert found.members.is_empty()


def test_tensor_parallel_groups_side_by_side_are_told_apart(traced):
    export = ranks_export(4)
    for i in range(20):
        for rank in range(4):
            at = 1_000_000 + 100_000 * i + (47_000 if rank >= 2 else 0)
            collective(export, at + 500 * rank, at + 10_000, rank=rank, described=False)
    found = matching(traced(export)).communicators
    assert found.select("comm", "status", "n_ranks", "n_matched").rows() == [
        ("~nccl#0/0", "matched", 2, 20),
        ("~nccl#0/1", "matched", 2, 20),
    ]


def test_missing_ranks_are_said(traced):
    export = ranks_stated(ranks_export(1), COMM, 4, 0)
    collective(export, 100, 200)
    about = matching(traced(export)).communicators.row(0, named=True)
    assert (about["status"], about["n_ranks"], about["nranks"]) == ("one rank", 1, 4)


def test_two_of_four_ranks_are_matched_but_incomplete(traced):
    export = ranks_export(2)
    for rank in range(2):
        ranks_stated(export, COMM, 4, rank)
        collective(export, 100 + rank, 200, rank=rank)
    assert matching(traced(export)).communicators["status"].to_list() == ["missing ranks"]


def test_operations_that_differ_between_ranks_are_not_used(traced):
    export = ranks_export(2)
    collective(export, 100, 200)
    collective(export, 100, 200, rank=1, size=4)
    about = matching(traced(export)).communicators.row(0, named=True)
    assert (about["status"], about["n_matched"]) == ("operations differ", 0)
    assert about["n_mismatched"] == 1


def test_point_to_point_is_not_matched_as_a_collective(traced):
    export = ranks_export(2)
    for rank in range(2):
        collective(
            export, 100, 200, rank=rank, name="ncclDevKernel_SendRecv", op="AllReduce", blob=""
        )
    export.rows["NVTX_EVENTS"] = [
        r | ({"text": "ncclSend"} if r["text"] == "ncclAllReduce" else {})
        for r in export.rows["NVTX_EVENTS"]
    ]
    trace = traced(export)
    assert collectives(trace)["op"].to_list() == ["Send", "Send"]
    assert instances(trace).is_empty()
