"""Views of communication against slow twins written without any of their tools."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.communication import ALL_REDUCE, NCCL
from tracekit.model.catalog import CATALOG
from tracekit.model.inputs import Gpu, Report
from tracekit.trace import Trace
from tracekit.views.collectives.dependents import JUST_AFTER_NS, JUST_BEFORE_NS, dependents
from tracekit.views.collectives.matching import instances, matching
from tracekit.views.collectives.overlap import comm_overlap
from tracekit.views.contention.windows import contention_windows, shared_time
from tracekit.views.nvtx.payloads import decode

SPAN = 400
GEMM = "nvjet_tst"


class Memory:
    """Canonical frames from memory."""

    def __init__(self, frames: Mapping[str, pl.DataFrame]) -> None:
        self.frames = frames

    def load(self, name: str) -> pl.DataFrame:
        """Return the frame `name`, its absent columns null."""
        table = CATALOG[name].table
        return table.conform(self.frames[name]) if name in self.frames else table.empty()

    def load_samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return no samples."""
        types = {"report": pl.UInt16, "gpu": pl.Int16, "name": pl.String}
        return pl.DataFrame(schema={**types, "t_ns": pl.Int64, "value": pl.Int64})


def trace_of(rows: list[tuple[int, int, int, int, bool]]) -> Trace:
    """Trace of kernels given as (gpu, stream, start, end, is communication)."""
    kernels = pl.DataFrame(
        [
            {
                "report": 0,
                "gpu": gpu,
                "pid": 100 + gpu,
                "context": 1,
                "stream": stream,
                "start_ns": start,
                "end_ns": end,
                "correlation": i,
                "name_id": 1 if comm else 2,
                "grid_x": 1,
                "grid_y": 1,
                "grid_z": 1,
            }
            for i, (gpu, stream, start, end, comm) in enumerate(rows)
        ]
    )
    strings = pl.DataFrame({"report": [0, 0], "id": [1, 2], "value": [ALL_REDUCE, GEMM]})
    tables = {"kernels": len(rows), "strings": 2}
    report = Report(0, "memory", "", tables=tables, present=tuple(tables))
    loader = Memory({"kernels": kernels, "strings": strings})
    return Trace(loader, (report,), (Gpu(0), Gpu(1)))


INTERVAL = st.tuples(st.integers(1, SPAN - 1), st.integers(1, 60)).map(
    lambda t: (t[0], min(t[0] + t[1], SPAN))
)


@st.composite
def one_gpu(draw):
    """Kernels of one GPU on three streams; on a stream nothing overlaps, as on a device."""
    rows = []
    for stream in (7, 8, 9):
        reached = 0
        for start, end in sorted(draw(st.lists(INTERVAL, max_size=6))):
            if start >= reached and end > start:
                rows.append((0, stream, start, end, draw(st.booleans())))
                reached = end
    if not any(row[4] for row in rows):
        rows.append((0, 7, SPAN + 1, SPAN + 5, True))
    return rows


def cover(rows) -> np.ndarray:
    """One flag a ns."""
    flags = np.zeros(SPAN + 10, np.bool_)
    for _, _, start, end, _ in rows:
        flags[start:end] = True
    return flags


@settings(deadline=None, max_examples=60)
@given(one_gpu())
def test_shared_time_against_a_bitmap(rows):
    trace = trace_of(rows)
    comm, other = [r for r in rows if r[4]], [r for r in rows if not r[4]]
    both = np.zeros(SPAN + 10, np.bool_)
    for stream in (7, 8, 9):
        mine = cover(r for r in comm if r[1] == stream)
        both |= mine & cover(r for r in other if r[1] != stream)
    found = dict(shared_time(trace).select("what", "time_ns").rows())
    assert found["contended"] == both.sum()
    assert found["pure_comm"] == (cover(comm) & ~both).sum()
    assert found["pure_compute"] == (cover(other) & ~cover(comm)).sum()
    assert found["contended"] + found["pure_comm"] == cover(comm).sum()
    windows = contention_windows(trace)
    assert windows["length_ns"].sum() == both.sum()
    assert windows["corunners"].null_count() == 0


@settings(deadline=None, max_examples=60)
@given(one_gpu())
def test_overlap_of_each_kernel_against_a_bitmap(rows):
    found = comm_overlap(trace_of(rows))
    comm = sorted((r for r in rows if r[4]), key=lambda r: (r[2], r[3]))
    expected = []
    for _, stream, start, end, _ in comm:
        beside = cover(r for r in rows if not r[4] and r[1] != stream)
        expected.append(int(beside[start:end].sum()))
    kernels = found.kernels.sort("window_start_ns", "activity")
    assert sorted(kernels["overlap_ns"].to_list()) == sorted(expected)
    assert found.by_kind["overlap_ns"].sum() == sum(expected)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 900), st.integers(0, 900), st.integers(1, 500), st.integers(0, 40)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_waits_and_transfers_against_plain_python(steps):
    rows, expected = [], []
    at = 10
    for late0, late1, length, ragged in steps:
        starts = (at + late0, at + late1)
        ends = (max(starts) + length, max(starts) + length + ragged)
        rows += [(gpu, 7, starts[gpu], ends[gpu], True) for gpu in range(2)]
        expected.append((max(ends) - max(starts), max(starts) - min(starts)))
        at = max(ends) + 5
    trace = trace_of(rows)
    found = instances(trace)
    assert found.select("transfer_ns", "skew_ns").rows() == expected
    members = matching(trace).members
    assert (members["wait_ns"].max() or 0) == max(skew for _, skew in expected)
    assert (members["xfer_ns"] >= 0).all()


ENTRIES = pl.DataFrame(
    {
        "report": [0] * 3,
        "domain": [NCCL] * 3,
        "schema": [7] * 3,
        "index": [0, 1, 2],
        "type": [18, 22, 5],
        "name": ["NCCL communicator ID", "Message size [bytes]", "Rank"],
        "offset_bytes": [None, 8, 16],
    },
    schema={
        "report": pl.UInt16,
        "domain": pl.Int64,
        "schema": pl.Int64,
        "index": pl.Int64,
        "type": pl.Int64,
        "name": pl.String,
        "offset_bytes": pl.Int64,
    },
)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**62),
            st.integers(-(2**31), 2**31 - 1),
            st.integers(0, 60),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_payloads_against_struct(calls):
    blobs, expected = [], []
    for row, (comm, size, rank, cut, text) in enumerate(calls):
        blob = struct.pack("<QQQQQQi", NCCL, 7, 20, 32, comm, size, rank)[: max(cut, 40)]
        if len(blob) == 52:
            expected.append((row, comm, size, rank))
        blobs.append(blob.hex().encode() if text else blob)
    rows = pl.DataFrame(
        {
            "nvtx_row": range(len(blobs)),
            "report": [0] * len(blobs),
            "domain": [NCCL] * len(blobs),
            "payload": blobs,
        },
        schema={
            "nvtx_row": pl.UInt32,
            "report": pl.UInt16,
            "domain": pl.Int64,
            "payload": pl.Binary,
        },
    )
    found = decode(rows, ENTRIES)
    assert found.records.select("nvtx_row", "comm", "bytes", "rank").rows() == expected
    assert found.n_undecodable == len(calls) - len(expected)


def waited_from(rows, kernel, scale):
    """When the first other stream had nothing to do but wait for `kernel`; None without one."""
    found = []
    for stream in {row[1] for row in rows}:
        own = sorted(r[2:4] for r in rows if r[1] == stream and not r[4])
        later = [s * scale for s, _ in own if s * scale >= kernel[3] - JUST_BEFORE_NS]
        before = [e * scale for s, e in own if s * scale < kernel[3] - JUST_BEFORE_NS]
        free = max(before, default=0)
        if later and later[0] - kernel[3] <= JUST_AFTER_NS and free < kernel[3]:
            found.append(max(free, kernel[2]))
    return min(found, default=None)


@settings(deadline=None, max_examples=60)
@given(one_gpu(), st.sampled_from([500, 1_500, 20_000]))
def test_dependents_against_a_search_stream_by_stream(rows, scale):
    # Only the last communication kernel of each stream: chains are another rule.
    last = {}
    for row in rows:
        if row[4]:
            last[row[1]] = max(last.get(row[1], row), row, key=lambda r: r[2])
    scaled = [(g, s, a * scale, b * scale, c) for g, s, a, b, c in rows]
    found = dependents(trace_of(scaled))
    starts = dict(zip(found["activity"], found["waited_from_ns"], strict=True))
    order = sorted(scaled, key=lambda r: (r[2], r[3]))
    for stream, (_, _, start, end, _) in last.items():
        kernel = (0, stream, start * scale, end * scale, True)
        at = [i for i, r in enumerate(order) if r == kernel]
        assert starts[at[0]] == waited_from(rows, kernel, scale)
