"""Interval algebra against a bitmap with one cell per nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import intervals
from tracekit.numerics.excess import assign_excess

SPAN = 60
ROWS = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)), max_size=12)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(rows, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def counts(rows: list[tuple[int, int]]) -> np.ndarray:
    cells = np.zeros(SPAN, np.int64)
    for start, end in rows:
        cells[start:end] += 1
    return cells


def bitmap(rows: list[tuple[int, int]]) -> np.ndarray:
    return counts(rows) > 0


def same(union: tuple[np.ndarray, np.ndarray], cells: np.ndarray) -> bool:
    starts, ends = union
    canonical = bool((ends > starts).all() and (starts[1:] > ends[:-1]).all())
    found = bitmap(list(zip(starts.tolist(), ends.tolist(), strict=True)))
    return canonical and bool((found == cells).all())


@settings(deadline=None)
@given(ROWS, ROWS)
def test_set_operations(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    u, v = intervals.union(*columns(a)), intervals.union(*columns(b))
    assert same(u, bitmap(a))
    assert same(intervals.intersect(*u, *v), bitmap(a) & bitmap(b))
    assert same(intervals.subtract(*u, *v), bitmap(a) & ~bitmap(b))
    both = intervals.total_ns(*intervals.intersect(*u, *v))
    only = intervals.total_ns(*intervals.subtract(*u, *v))
    assert both + only == intervals.total_ns(*u)


@settings(deadline=None)
@given(ROWS, ROWS)
def test_overlap_of_each_row(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    expected = [int(bitmap(b)[start:end].sum()) for start, end in a]
    assert intervals.overlap_ns(*columns(a), *intervals.union(*columns(b))).tolist() == expected


@settings(deadline=None)
@given(ROWS, st.integers(0, 10))
def test_merged_windows(a: list[tuple[int, int]], gap: int) -> None:
    u = intervals.union(*columns(a))
    expected: list[list[int]] = []
    for start, end in zip(u[0].tolist(), u[1].tolist(), strict=True):
        if expected and start - expected[-1][1] <= gap:
            expected[-1][1] = end
        else:
            expected.append([start, end])
    starts, ends = intervals.merge_windows(*u, gap)
    assert [[*pair] for pair in zip(starts.tolist(), ends.tolist(), strict=True)] == expected


@settings(deadline=None)
@given(ROWS)
def test_max_concurrency(a: list[tuple[int, int]]) -> None:
    assert intervals.max_concurrency(*columns(a)) == counts(a).max()


@settings(deadline=None)
@given(ROWS, ROWS)
def test_excess_is_shared_cell_by_cell(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    excess = np.arange(1.0, len(a) + 1)
    active = counts(b)
    expected = np.zeros(len(b))
    given_away = 0.0
    for (start, end), amount in zip(a, excess, strict=True):
        weight = np.zeros(len(b))
        for t in range(start, end):
            running = [k for k, (s, e) in enumerate(b) if s <= t < e]
            weight[running] += 1 / max(active[t], 1)
        if weight.sum() > 0:
            expected += amount * weight / weight.sum()
            given_away += amount
    assigned, _ = assign_excess(*columns(a), excess, *columns(b))
    np.testing.assert_allclose(assigned, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(assigned.sum(), given_away, rtol=1e-9, atol=1e-9)
