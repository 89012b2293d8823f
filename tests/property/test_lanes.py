"""Lanes against filters of the rows of `activity`."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import intervals
from tracekit.views.device.activity import WORK_KIND, activity, queues
from tracekit.views.device.lanes import COMM_KINDS, lanes
from tracekit.views.keys import row_numbers

work = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.integers(1, 9),
        st.sampled_from(["gemm", "comm", "custom_comm", "memset"]),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, 7, 8]),
        st.sampled_from([None, 0, 1]),
    ),
    min_size=1,
    max_size=25,
)


def _frame(rows: list) -> pl.DataFrame:
    schema = {"start_ns": pl.Int64, "length": pl.Int64, "kind": pl.String, "pid": pl.UInt32}
    schema |= {"stream": pl.Int64, "gpu": pl.Int16}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    frame = frame.with_columns(
        (pl.col("start_ns") + pl.col("length")).alias("end_ns"),
        pl.lit(0, pl.UInt16).alias("report"),
        pl.lit(0, pl.Int64).alias("context"),
    )
    return frame.sort("gpu", "start_ns", "end_ns").with_row_index("row")


class _TwoViews:
    """A trace that only has the views `activity` and `queues`."""

    def __init__(self, frame: pl.DataFrame) -> None:
        queue, self.queues = row_numbers(frame.select("gpu", "report", "pid", "context", "stream"))
        self.frame = frame.with_columns(pl.col("kind").cast(WORK_KIND), pl.Series("queue", queue))

    def view(self, which: object) -> pl.DataFrame:
        assert which in (activity, queues)
        return self.frame if which is activity else self.queues


def _time_in(rows: pl.DataFrame, windows: intervals.Intervals) -> list[int]:
    union = intervals.union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return intervals.overlap_ns(*windows, *union).tolist()


@settings(deadline=None)
@given(
    work,
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 7, 8]),
    st.lists(st.tuples(st.integers(-5, 60), st.integers(-3, 30)), max_size=8),
)
def test_what_ran_beside_a_stream(
    rows: list, pid: int | None, stream: int | None, edges: list[tuple[int, int]]
) -> None:
    frame = _frame(rows)
    begin = np.array([start for start, _ in edges], np.int64)
    windows = begin, begin + np.array([length for _, length in edges], np.int64)
    found = lanes.compute(_TwoViews(frame))  # type: ignore[arg-type]
    assert sum(lane.start.size for lane in found.values()) == frame.height
    for gpu, lane in found.items():
        own = frame.filter(pl.col("gpu").eq_missing(gpu))
        assert own["row"][0] == lane.first
        mine = pl.col("pid").eq_missing(pid) & pl.col("stream").eq_missing(stream)
        other = own.filter(~mine & ~pl.col("kind").is_in(COMM_KINDS))
        whole, by_kind = lane.overlap_by_kind(windows, lane.not_on(pid, stream))
        assert whole.tolist() == _time_in(other, windows)
        assert whole.tolist() == lane.overlap_time(windows, lane.not_on(pid, stream)).tolist()
        assert sorted(by_kind) == sorted(other["kind"].unique())
        for kind, time in by_kind.items():
            assert time.tolist() == _time_in(other.filter(pl.col("kind") == kind), windows)
        process = own.filter(pl.col("pid").eq_missing(pid) & ~pl.col("kind").is_in(COMM_KINDS))
        expected = intervals.union(process["start_ns"].to_numpy(), process["end_ns"].to_numpy())
        union = lane.busy_union(lane.in_process(0, pid))
        assert [a.tolist() for a in union] == [a.tolist() for a in expected]
        before = pl.col("end_ns").cum_max().shift(1).over("pid", "stream")
        free = own.select(before.fill_null(np.iinfo(np.int64).min)).to_series()
        assert lane.stream_free(np.arange(own.height)).tolist() == free.to_list()
