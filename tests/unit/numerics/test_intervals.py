"""Interval algebra on small cases with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics import intervals
from tracekit.numerics.excess import assign_excess

US = 1000


def rows(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def pairs(union: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, int]]:
    return list(zip(union[0].tolist(), union[1].tolist(), strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([(5, 5), (7, 3)], []),
        ([(0, 10), (10, 20)], [(0, 20)]),
        ([(30, 40), (0, 10), (5, 8)], [(0, 10), (30, 40)]),
        ([(0, 100), (1, 2), (99, 101), (102, 103)], [(0, 101), (102, 103)]),
        ([(-5, -1), (-3, 2)], [(-5, 2)]),
    ],
)
def test_union(given: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    assert pairs(intervals.union(*rows(*given))) == expected


def test_contended_and_pure_time() -> None:
    comm = intervals.union(*rows((0, 100 * US), (200 * US, 260 * US)))
    other = intervals.union(*rows((50 * US, 150 * US), (150 * US, 220 * US)))
    contended = intervals.intersect(*comm, *other)
    assert pairs(contended) == [(50 * US, 100 * US), (200 * US, 220 * US)]
    assert intervals.total_ns(*contended) == 70 * US
    assert intervals.total_ns(*intervals.subtract(*comm, *other)) == 90 * US
    assert pairs(intervals.subtract(*other, *comm)) == [(100 * US, 200 * US)]
    overlap = intervals.overlap_ns(*comm, *other)
    assert (overlap / (comm[1] - comm[0])).tolist() == pytest.approx([0.5, 1 / 3])


def test_excess_goes_to_co_running_kernels_by_shared_time() -> None:
    assigned, weight = assign_excess(
        [0], [100 * US], [40 * US], [0, 30 * US, 500 * US], [50 * US, 100 * US, 600 * US]
    )
    assert weight.tolist() == pytest.approx([40 * US, 60 * US, 0])
    assert assigned.tolist() == pytest.approx([16 * US, 24 * US, 0])


def test_excess_of_a_row_alone_is_given_to_nobody() -> None:
    assigned, weight = assign_excess([0, 50], [10, 60], [5.0, 7.0], [55], [70])
    assert assigned.tolist() == [7.0]
    assert weight.tolist() == [5.0]
    assigned, weight = assign_excess([0], [10], [5.0], [], [])
    assert assigned.size == weight.size == 0


def test_merge_windows_closes_small_gaps_only() -> None:
    union = rows((0, 10), (12, 20), (23, 30))
    assert pairs(intervals.merge_windows(*union, 2)) == [(0, 20), (23, 30)]
    assert pairs(intervals.merge_windows(*union, 0)) == pairs(union)
    assert pairs(intervals.merge_windows(*rows(), 5)) == []


def test_overlap_of_empty_rows_and_empty_union_is_zero() -> None:
    assert intervals.overlap_ns([5, 9], [5, 1], [0], [10]).tolist() == [0, 0]
    assert intervals.overlap_ns([5, 9], [7, 11], [], []).tolist() == [0, 0]


def test_max_concurrency_counts_half_open() -> None:
    assert intervals.max_concurrency(*rows((0, 10), (10, 20))) == 1
    assert intervals.max_concurrency(*rows((0, 10), (5, 20), (6, 7), (4, 4))) == 3
    assert intervals.max_concurrency(*rows()) == 0


def test_read_only_input_is_accepted() -> None:
    starts, ends = rows((0, 10), (5, 20))
    starts.flags.writeable = ends.flags.writeable = False
    assert pairs(intervals.union(starts, ends)) == [(0, 20)]
