"""One pass over the rows of a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import intervals, jit
from tracekit.numerics.rows import overlapping

MOST, LEAST = 0.05, 0.95
UNKNOWN = np.iinfo(np.int64).min
ROWS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 12),
        st.integers(0, 2),
        st.integers(0, 2),
        st.one_of(st.just(UNKNOWN), st.integers(0, 60)),
    ),
    max_size=14,
)
WINDOWS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=6)
CHOSEN = st.lists(st.booleans(), min_size=9, max_size=9)


def _work(rows: list[tuple[int, ...]], chosen: list[bool]) -> overlapping.Followers:
    start, length, queue, kind, launch = (
        np.array(column, np.int64) for column in np.array(sorted(rows)).reshape(-1, 5).T
    )
    which = np.array(chosen).reshape(3, 3)
    codes = queue.astype(np.uint32), kind.astype(np.uint8)
    return overlapping.Followers(
        start, start + length, *codes, which, np.array([0, 1, 0], np.int32), launch
    )


@settings(deadline=None)
@given(ROWS, CHOSEN, WINDOWS)
def test_rows_beside_a_union(
    rows: list[tuple[int, ...]], chosen: list[bool], windows: list[tuple[int, int]]
) -> None:
    work = _work(rows, chosen)
    at = np.array(windows, np.int64).reshape(-1, 2)
    union = intervals.union(at[:, 0], at.sum(axis=1))
    asked = (work.start, work.end, work.queue, work.kind, work.chosen)
    found = overlapping._overlapping_rows(*asked, *union)
    assert found.tolist() == overlapping.overlapping_rows(*asked, union).tolist()


@settings(deadline=None)
@given(ROWS, CHOSEN, st.lists(st.integers(0, 70), max_size=6))
def test_what_waited_for_an_end(
    rows: list[tuple[int, ...]], chosen: list[bool], ends: list[int]
) -> None:
    work, sought = _work(rows, chosen), np.array(sorted(ends), np.int64)
    found = overlapping._waited(*work, sought, 2, 10)
    assert found.tolist() == overlapping.waited_since(work, sought, 2, 10).tolist()


def test_many_rows_are_swept_and_ends_may_come_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(10 * k, 8, k % 3, 0, 10 * k - 30) for k in range(40)]
    work, ends = _work(rows, [True] * 9), np.array([311, 90, 200], np.int64)
    plain = overlapping.waited_since(work, ends, 2, 10)
    monkeypatch.setattr(jit, "WORTH_COMPILING", 1)
    assert overlapping.waited_since(work, ends, 2, 10).tolist() == plain.tolist()
    assert (plain < ends).any()


@settings(deadline=None)
@given(ROWS)
def test_rows_by_queue_and_kind(rows: list[tuple[int, ...]]) -> None:
    work = _work(rows, [True] * 9)
    count = overlapping._counted(work.queue, work.kind, 3, 3)
    assert count.tolist() == overlapping.counted(work.queue, work.kind, 3, 3).tolist()
    assert count[0, 1] == sum((queue, kind) == (0, 1) for _, _, queue, kind, _ in rows)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-1, 20), st.integers(0, 3))))
def test_sides_of_rows(rows: list[tuple[int, int, int]]) -> None:
    length, covered, name = np.array(rows, np.int64).reshape(-1, 3).T
    covered = np.minimum(covered, length)
    start, names = np.zeros(length.size, np.int64), name.astype(np.uint32)
    side, count = overlapping._sides(start, length.copy(), covered, names, 4, MOST, LEAST)
    expected = overlapping.sides((start, length), covered, names, 4, (MOST, LEAST))
    assert side.tolist() == expected[0].tolist()
    assert count.tolist() == expected[1].tolist()
