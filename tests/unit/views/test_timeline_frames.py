"""Frames behind timelines and maps: nothing is lost when they are thinned."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import Export
from tracekit.views.kv import address_map
from tracekit.views.kv.address_map import RUNS, kv_map
from tracekit.views.overview import pictures
from tracekit.views.overview.pictures import (
    SAMPLES,
    WORK,
    timeline_samples,
    timeline_work,
)

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def test_work_is_sorted_into_tracks(traced):
    export = Export().gpu()
    export.kernel(100, 300, NCCL, stream=13)
    export.kernel(150, 250, "nvjet_sm90_tst_128x8", stream=7)
    export.memcpy(260, 280, stream=7)
    rows = traced(export).view(timeline_work)
    assert rows.schema == WORK.schema
    assert rows.select("gpu", "lane", "stream", "track", "start_ns", "end_ns", "n").rows() == [
        (0, "communication", 13, 0, 100, 300, 1),
        (0, "compute", 7, 1, 150, 250, 1),
        (0, "copies", 7, 2, 260, 280, 1),
    ]


def test_streams_beyond_the_busiest_share_a_track(traced):
    export = Export().gpu()
    for stream in range(9):
        export.kernel(100 * stream, 100 * stream + 10 + stream, "sgemm", stream=stream)
    rows = traced(export).view(timeline_work)
    assert rows["stream"].null_count() == 3
    assert rows["track"].n_unique() == 7


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 2_000)), min_size=1, max_size=80),
    st.integers(1, 40),
)
def test_thinning_keeps_time_counts_and_order(gaps, most):
    start, rows = 0, []
    for gap, length in gaps:
        start += gap
        rows.append((0, 0, "compute", 7, start, start + length, f"k{length}", "gemm"))
        start += length
    names = ("track", "gpu", "lane", "stream", "start_ns", "end_ns", "name", "kind")
    frame = pl.DataFrame(rows, schema=names, orient="row")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "MOST_BOXES", most)
        thin = pictures._thinned(frame).sort("start_ns")
    assert thin.height <= most
    assert thin["n"].sum() == frame.height
    assert thin["busy_ns"].sum() == (frame["end_ns"] - frame["start_ns"]).sum()
    assert (thin["start_ns"].min(), thin["end_ns"].max()) == (rows[0][4], rows[-1][5])
    assert (thin["start_ns"][1:] >= thin["end_ns"][:-1]).all()


def sampled(values, names):
    export = Export().gpu()
    export.kernel(0, 1_000 * len(values), "sgemm")
    for name in names:
        export.metric(name, range(0, 1_000 * len(values), 1_000), values)
    return export


DRAM = ("DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]")


def test_samples_add_up_and_equal_neighbours_are_one(traced):
    trace = traced(sampled([10, 10, 10, 40, 10], DRAM))
    rows = trace.view(timeline_samples)
    assert rows.schema == SAMPLES.schema
    assert rows["what"].unique().to_list() == ["DRAM read + write"]
    assert rows["mean_frac"].to_list() == pytest.approx([0.2, 0.8, 0.2])
    assert rows["end_ns"][0] == rows["start_ns"][1]


def test_many_samples_are_merged_with_their_maximum(traced, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_CELLS", 4)
    values = [10 + 20 * (i % 2) for i in range(64)]
    rows = traced(sampled(values, DRAM)).view(timeline_samples)
    assert rows.height <= 4
    assert rows["max_frac"].to_list() == pytest.approx([0.6] * rows.height)
    length = rows["end_ns"] - rows["start_ns"]
    mean = (rows["mean_frac"] * length).sum() / length.sum()
    assert mean == pytest.approx(0.4, abs=0.01)


def test_without_samples_or_blocks_frames_are_empty(traced):
    trace = traced(Export().gpu().kernel(0, 10, "sgemm"))
    assert trace.view(timeline_samples).is_empty()
    assert trace.view(kv_map).schema == RUNS.schema
    assert trace.view(kv_map).is_empty()


def live(blocks):
    """Blocks of 64 bytes at the addresses given, one list."""
    rows = [(0, 0, "kv", 0, i, 64 * a, 64, 0) for i, a in enumerate(blocks)]
    names = ("list_id", "layer", "kind", "seq", "block", "addr", "bytes", "t_alloc_ns")
    return pl.DataFrame(rows, schema=names, orient="row")


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([0, 1, 2], [(0, 2, 0, 192)]),
        ([0, 2, 3], [(0, 0, 0, 64), (1, 2, 128, 256)]),
        ([3, 2, 1], [(0, 0, 192, 256), (1, 1, 128, 192), (2, 2, 64, 128)]),
    ],
)
def test_runs_are_consecutive_in_index_and_address(addresses, expected):
    runs = address_map._runs(live(addresses))
    columns = ("first_block", "last_block", "start_addr", "end_addr")
    assert runs.select(columns).rows() == expected


def test_every_kth_of_too_many_runs_is_kept(monkeypatch):
    monkeypatch.setattr(address_map, "MOST_RUNS", 10)
    runs = address_map._runs(live(range(0, 50, 2)))
    runs = runs.with_columns(pl.lit(0).alias("pool"), pl.lit(0).alias("gpu"))
    kept = address_map._few(runs)
    assert kept["run"].to_list() == list(range(0, 25, 3))
    assert kept["position"].to_list() == list(range(0, 25, 3))
    assert set(kept["n_runs"]) == set(kept["n_blocks"]) == {25}
