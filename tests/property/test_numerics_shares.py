"""One-pass sweeps over rows with queue and kind against the NumPy forms for small inputs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import intervals
from tracekit.numerics.rows import shares

LANES = np.array([[0, -1, 2], [1, 0, -1]], np.int32)
rows = st.lists(
    st.tuples(
        st.integers(-20, 60),
        st.integers(-2, 15),
        st.integers(0, 1),
        st.integers(0, 2),
        st.integers(-30, 60),
    ),
    max_size=25,
).map(sorted)
spans = st.lists(st.tuples(st.integers(-20, 60), st.integers(-2, 25)), max_size=12)


def _columns(found: list[tuple[int, ...]]) -> list[np.ndarray]:
    table = np.array(found, np.int64).reshape(len(found), 5)
    start, length, queue, kind, launch = (np.ascontiguousarray(c) for c in table.T)
    return [start, start + length, queue.astype(np.uint32), kind.astype(np.uint8), launch]


def _lists(arrays: object) -> list:
    return [np.asarray(a).tolist() for a in arrays]  # type: ignore[attr-defined]


@settings(deadline=None)
@given(rows)
def test_unions_of_chosen_rows(found: list) -> None:
    s, e, queue, kind, _ = _columns(found)
    swept = shares._merged(s, e, queue, kind, LANES >= 0)
    assert _lists(swept) == _lists(shares.union_of(s, e, queue, kind, LANES >= 0))


@settings(deadline=None)
@given(rows)
def test_rows_and_time_of_kinds(found: list) -> None:
    s, e, _, kind, _ = _columns(found)
    assert _lists(shares._by_kind(s, e, kind, 4)) == _lists(shares.by_kind(s, e, kind, 4))


@settings(deadline=None)
@given(rows, spans)
def test_time_of_windows_by_lane(found: list, windows: list) -> None:
    s, e, queue, kind, _ = _columns(found)
    begin = np.array([start for start, _ in windows], np.int64)
    end = begin + np.array([length for _, length in windows], np.int64)
    times = np.concatenate((begin, np.maximum(begin, end)))
    order = np.argsort(times, kind="stable")
    swept = shares._swept(s, e, queue, kind, LANES, 3, times, order)
    assert _lists(swept) == _lists(shares.by_lane(s, e, queue, kind, LANES, (begin, end)))


@settings(deadline=None)
@given(rows, st.lists(st.integers(0, 24), max_size=10))
def test_when_streams_were_free(found: list, chosen: list[int]) -> None:
    _, e, queue, _, _ = _columns(found)
    at = np.array(sorted(i for i in chosen if i < e.size), np.int64)
    stream_of = np.array([1, 0], np.int32)
    expected = shares.finished_before(e, queue, stream_of, at)
    assert shares._finished(e, queue, stream_of, 2, at).tolist() == expected.tolist()


@settings(deadline=None)
@given(rows, spans)
def test_idle_time_is_divided_at_launches(found: list, windows: list) -> None:
    s, e, queue, _, launch = _columns([r for r in found if r[1] > 0])
    begin = np.array([start for start, _ in windows], np.int64)
    end = begin + np.array([length for _, length in windows], np.int64)
    for chosen in (np.array([True, True]), np.array([True, False])):
        swept = shares._idle(s, e, queue, launch, chosen)
        for union, expected in zip(swept, shares.idle(s, e, queue, launch, chosen), strict=True):
            covered = intervals.overlap_ns(begin, end, *union)
            assert covered.tolist() == intervals.overlap_ns(begin, end, *expected).tolist()
