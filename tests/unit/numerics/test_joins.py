"""Matching by (process, id) on small cases with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics import joins


def test_d01_equal_ids_of_two_processes_stay_apart() -> None:
    a = ([1, 1, 1, 2, 2, 2], [1, 2, 3, 1, 2, 3])
    b = ([2, 2, 2, 1, 1, 1], [1, 2, 3, 1, 2, 3])
    assert joins.match(a, b).tolist() == [3, 4, 5, 0, 1, 2]


@pytest.mark.parametrize("spread", [1, 10**12])
def test_first_row_wins_and_the_rest_is_minus_one(spread: int) -> None:
    ids_b = np.array([7, 7, 3]) * spread
    ids_a = np.array([3, 7, 5, 0, 9]) * spread
    found = joins.match(([1] * 5, ids_a), ([1] * 3, ids_b))
    assert found.tolist() == [2, 0, -1, -1, -1]


@pytest.mark.parametrize("far", [5, 2**62])
def test_missing_ids_and_unknown_processes_match_nothing(far: int) -> None:
    found = joins.match(([1, 1, 3], [-1, far, 5]), ([1, 1, 1], [-1, far, 0]))
    assert found.tolist() == [-1, 1, -1]


def test_without_rows() -> None:
    assert joins.match(([1], [1]), ([], [])).tolist() == [-1]
    assert joins.match(([], []), ([1], [1])).tolist() == []
