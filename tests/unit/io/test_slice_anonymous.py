"""Numbers, payloads and names of an anonymous trace."""

from __future__ import annotations

import struct

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import Export
from tracekit.bundle.anonymous import (
    TextNumbers,
    anonymous,
    bases,
    hashed_name,
    known_payloads,
    number_processes,
    shifted,
)
from tracekit.model.catalog import CATALOG
from tracekit.model.kernels import Classifier, KernelKind, classify
from tracekit.model.nvtx import PAYLOAD_FIELDS
from tracekit.opening import OpenOptions, open_trace
from tracekit.views.nvtx.markers import markers
from tracekit.views.nvtx.payloads import decode

SCHEMA = {"report": pl.UInt16, "pid": pl.UInt32, "tid": pl.UInt32}
GIB = 1 << 30


def test_processes_and_threads_are_numbered_and_the_main_thread_is_its_process():
    frame = pl.DataFrame(
        [(0, 77, 77), (0, 77, 80), (0, 77, 79), (0, 9000, 9001), (1, 77, 77), (0, None, None)],
        schema=SCHEMA,
        orient="row",
    )
    found = number_processes([frame, frame.select("report", "pid")]).renumbered(frame)
    assert found.rows() == [
        (0, 1000, 1000),
        (0, 1000, 1002),
        (0, 1000, 1001),
        (0, 2000, 2001),
        (1, 3000, 3000),
        (0, None, None),
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5), st.integers(1, 9)), max_size=20))
def test_renumbering_keeps_what_is_equal_and_what_is_not(rows):
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    new = number_processes([frame]).renumbered(frame)
    pairs = set(zip(frame.rows(), new.rows(), strict=True))
    assert len({old for old, _ in pairs}) == len(pairs) == len({n for _, n in pairs})
    assert all((old[1] == old[2]) == (n[1] == n[2]) for old, n in pairs)


def numbers(rows, allocations=()):
    texts = pl.DataFrame(
        rows, schema={"report": pl.UInt16, "pid": pl.UInt32, "text": pl.String}, orient="row"
    )
    frame = pl.DataFrame(
        list(allocations),
        schema={"report": pl.UInt16, "pid": pl.UInt32, "addr": pl.Int64},
        orient="row",
    )
    processes = number_processes([texts.select("report", "pid")])
    return TextNumbers(texts, processes, bases(frame, texts)).column(texts).to_list()


def test_addresses_keep_distance_and_alignment_and_lose_where_they_were():
    low, high = 0x7F5B_BA00_8000, 0x7F5B_BA00_8000 + 5 * GIB
    one, other = numbers(
        [(0, 7, f"KV_BLOCK layer=0 addr=0x{a:x} bytes=32768") for a in (low, high)]
    )
    first, second = (int(t.split("addr=")[1].split()[0], 16) for t in (one, other))
    assert second - first == 5 * GIB
    assert 1 << 32 <= first < 2 << 32
    assert first % (1 << 32) == low % (1 << 32)
    assert one == f"KV_BLOCK layer=0 addr=0x{first:x} bytes=32768"


def test_allocations_and_markers_of_a_process_share_a_base_and_processes_do_not():
    base = 0x7F00_0000_0000
    rows = [(0, 7, f"FREE addr=0x{base + 9 * GIB:x}"), (0, 8, f"FREE addr=0x{base:x}")]
    texts = numbers(rows, [(0, 7, base)])
    assert texts == [
        f"FREE addr=0x{(1 << 32) + 9 * GIB:x}",
        f"FREE addr=0x{1 << 32:x}",
    ]
    assert shifted(0, base) == 0


def test_pointers_and_process_ids_are_numbered_and_clocks_start_at_zero():
    rows = [
        (0, 7, "META version=1 grammar=tk1 pid=7 markers=text"),
        (0, 7, "SYNC mono_ns=123456789"),
        (0, 7, "SYNC mono_ns=123456999"),
        (0, 7, "COLL op=AllReduce comm=0x55aa10 seq=0 stream=0x55bb20"),
        (0, 7, "COLL op=AllReduce comm=0x55aa00 seq=1 stream=0x0"),
        (0, 7, "COMM event=init comm=0x55aa10 pid=8 rank=zebra"),
        (0, 7, "COLL op=AllReduce comm=zebra"),
        (0, 7, "layer 3 addr=0x1234"),
    ]
    assert numbers(rows) == [
        "META version=1 grammar=tk1 pid=1000 markers=text",
        "SYNC mono_ns=0",
        "SYNC mono_ns=210",
        "COLL op=AllReduce comm=0x2 seq=0 stream=0x1",
        "COLL op=AllReduce comm=0x1 seq=1 stream=0x0",
        "COMM event=init comm=0x2 pid=0 rank=zebra",
        "COLL op=AllReduce comm=0x0",
        "layer 3 addr=0x1234",
    ]


def entries(rows):
    schema = CATALOG["nvtx_schema_entries"].table.schema
    return pl.DataFrame(rows, schema=schema, orient="row")


def nvtx(payloads, domain=1):
    schema = CATALOG["nvtx"].table.schema
    rows = [
        dict.fromkeys(schema) | {"report": 0, "domain": domain, "payload": p, "event_type": 59}
        for p in payloads
    ]
    return pl.DataFrame(rows, schema=schema)


NCCL = entries(
    [
        (0, 1, 5, 0, 18, "NCCL communicator ID", None),
        (0, 1, 5, 1, 22, "Message size [bytes]", 8),
        (0, 1, 5, 2, 16777236, "Reduction operation", 16),
        (0, 1, 6, 0, 5, "No. of ranks", 0),
        (0, 1, 6, 1, 1, "Secret", 4),
    ]
)


def blob(schema, payload):
    return struct.pack("<4Q", 1, schema, len(payload), 32) + payload


def test_payloads_are_written_anew_with_their_known_fields_only():
    rows = nvtx(
        [
            blob(5, struct.pack("<QQi", 0xF000_0000_0000_0001, 1 << 20, 3) + b"SECRET_MARK_"),
            blob(6, struct.pack("<i", 8) + b"SECRET_MARK"),
            b"SECRET_MARK" * 9,
            None,
        ]
    )
    found = known_payloads(rows, NCCL)
    assert not any(b"SECRET" in p for p in found.blobs if p is not None)
    assert [p is None for p in found.blobs] == [False, False, True, True]
    numbered = rows.select("report", "domain", "payload").with_row_index("nvtx_row")
    before = decode(numbered.drop_nulls("payload"), NCCL)
    after = decode(numbered.with_columns(found.blobs).drop_nulls("payload"), found.entries)
    fields = ["nvtx_row", *PAYLOAD_FIELDS]
    assert after.records.select(fields).equals(before.records.select(fields))
    assert after.n_undecodable == 0
    assert found.schemas.height == 2


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 63) - 1)), max_size=5)
)
def test_every_number_of_a_payload_survives(values):
    rows = nvtx([blob(5, struct.pack("<QQi", comm, size, -1)) for comm, size in values])
    found = known_payloads(rows, NCCL)
    renewed = rows.with_columns(found.blobs).select("report", "domain", "payload")
    records = decode(renewed.with_row_index("nvtx_row"), found.entries).records
    assert records.select("comm", "bytes").rows() == values
    assert records["redop"].to_list() == [-1] * len(values)


REAL = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)": "comm",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)": "comm",
    "ncclDevKernel_Generic_1(int)": "comm",
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(int)": "comm",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)": "custom_comm",
    "void multimem_all_reduce_fused_norm<float>(x)": "custom_comm",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)": (
        "elementwise"
    ),
    "void cutlass::device_kernel<flash::FlashAttnFwdSm90<secret>>(p)": "attention",
    "my_secret_kernel(float*)": "unclassified",
}


@pytest.mark.parametrize("name", REAL)
def test_a_hashed_name_says_the_same_without_the_name(name):
    new = hashed_name(name, Classifier())
    old_fields, new_fields = classify(name), classify(new)
    for field in ("kind", "op", "named_op", "reduction", "dtype", "fused", "multicast"):
        assert getattr(new_fields, field) == getattr(old_fields, field), field
    assert new_fields.kind == REAL[name]
    assert "secret" not in new
    assert new == hashed_name(name, Classifier())
    assert new != hashed_name(name + " ", Classifier())


@pytest.mark.parametrize("kind", KernelKind)
def test_every_class_has_words_that_keep_it(kind):
    name = hashed_name("my_secret_kernel(float*)", Classifier([(kind, "secret")]))
    assert classify(name).kind is kind
    assert "secret" not in name


@settings(deadline=None, max_examples=300)
@given(st.text(min_size=1, max_size=60))
def test_a_hash_keeps_the_class_of_any_name(name):
    assert classify(hashed_name(name, Classifier())).kind is classify(name).kind


def test_an_anonymous_trace_keeps_counters_and_numbers_beside_known_words(tmp_path):
    export = Export().gpu().kernel(0, 100, pid=4711, launch=-10, launch_tid=4712)
    export.range(0, 50, "tk.layer", pid=4711, int64Value=3)
    export.range(0, 60, "user bob", pid=4711, int64Value=31337)
    export.mark(5, "KV_BLOCK layer=0 block=1 addr=0x7f0000001000 bytes=64", pid=4711)
    export.metric("GR Active [Throughput %]", [0, 50], [1, 2])
    path = export.write(tmp_path / "a.sqlite")
    with open_trace(path, options=OpenOptions(redact="yes")) as trace:
        found, loader = anonymous(trace)
        rows = found.frame("nvtx").select("pid", "text", "int64").rows()
        assert rows == [
            (1000, "tk.layer", 3),
            (1000, "text-1", None),
            (1000, "KV_BLOCK layer=0 block=1 addr=0x100001000 bytes=64", None),
        ]
        assert found.frame("kernels")["pid"].to_list() == [1000]
        assert found.frame("runtime").select("pid", "tid").rows() == [(1000, 1002)]
        assert markers(found)["KV_BLOCK"]["addr"].to_list() == [0x1_0000_1000]
        assert found.samples(["GR Active [Throughput %]"]).height == 2
        assert loader.sampled == {"GR Active [Throughput %]"}
