"""Nesting of ranges on small cases with known answers, and at sizes that break naive ways."""

from __future__ import annotations

import resource
import sys

import numpy as np

from tracekit.numerics import stacks


def test_outer_range_is_found_after_an_inner_one_has_ended() -> None:
    found = stacks.innermost([0, 10], [100, 20], [1, 1], [5, 15, 20, 50, 100], [1] * 5)
    assert found.tolist() == [0, 1, 0, 0, -1]


def test_groups_do_not_see_each_other() -> None:
    starts, ends, groups = [0, 10], [100, 120], [0, 2]
    assert stacks.nest(starts, ends, groups)[0].tolist() == [-1, -1]
    assert stacks.innermost(starts, ends, groups, [50, 50, 50], [0, 2, 7]).tolist() == [0, 1, -1]


def test_crossing_ranges_use_the_latest_start_still_open() -> None:
    starts, ends = [0, 5, 12], [10, 20, 15]
    parent, depth = stacks.nest(starts, ends, [0, 0, 0])
    assert parent.tolist() == [-1, 0, 1]
    assert depth.tolist() == [0, 1, 2]
    assert stacks.innermost(starts, ends, [0] * 3, [7, 11, 13, 16], [0] * 4).tolist() == [
        1, 1, 2, 1
    ]  # fmt: skip


def test_equal_starts_nest_the_shorter_inside_and_equal_ranges_by_row() -> None:
    parent, depth = stacks.nest([0, 0, 0], [10, 30, 30], [0, 0, 0])
    assert parent.tolist() == [2, -1, 1]
    assert depth.tolist() == [2, 0, 1]
    assert stacks.innermost([0, 0, 0], [10, 30, 30], [0] * 3, [5, 20], [0, 0]).tolist() == [0, 2]


def test_zero_length_ranges_contain_nothing() -> None:
    parent, _ = stacks.nest([0, 5, 5], [10, 5, 8], [0, 0, 0])
    assert parent.tolist() == [-1, 2, 0]
    assert stacks.innermost([0, 5], [10, 5], [0, 0], [5], [0]).tolist() == [0]


def test_without_ranges_or_points() -> None:
    assert stacks.innermost([], [], [], [1, 2], [0, 0]).tolist() == [-1, -1]
    assert stacks.innermost([0], [1], [0], [], []).tolist() == []
    assert [column.size for column in stacks.nest([], [], [])] == [0, 0]


def test_ten_thousand_open_ranges() -> None:
    n = 10_000
    parent, depth = stacks.nest(np.arange(n), np.full(n, 2 * n), np.zeros(n))
    assert parent.tolist() == list(range(-1, n - 1))
    assert depth[-1] == n - 1


def test_200k_points_in_200k_ranges_stay_within_300_mb() -> None:
    n = 200_000
    starts = np.arange(n) * 10
    ends = np.where(np.arange(n) % 2 == 0, 10 * n, starts + 5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = stacks.innermost(starts, ends, np.zeros(n), starts + 7, np.zeros(n))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.tolist() == (np.arange(n) // 2 * 2).tolist()
    assert grown * (1 if sys.platform == "darwin" else 1024) < 300 << 20
