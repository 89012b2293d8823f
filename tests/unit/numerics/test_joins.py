"""Matching by (process, id) on small cases with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics import numbering


def match(a: tuple[list[int], object], b: tuple[list[int], object]) -> list[int]:
    """Match rows given by process and id, each from a place of its own."""
    (process_a, ids_a), (process_b, ids_b) = a, b
    keys_a = (range(len(process_a)), process_a, ids_a)
    return numbering.match(keys_a, (range(len(process_b)), process_b, ids_b)).tolist()


def test_places_share_their_process() -> None:
    found = numbering.match(
        ([0, 1, 1, 2], [1, 0, -1], [5, 5, 6, 5]), ([0, 1, 0], [1, 0], [5, 5, 6])
    )
    assert found.tolist() == [0, 1, -1, -1]


def test_equal_ids_of_two_processes_stay_apart() -> None:
    a = ([1, 1, 1, 2, 2, 2], [1, 2, 3, 1, 2, 3])
    b = ([2, 2, 2, 1, 1, 1], [1, 2, 3, 1, 2, 3])
    assert match(a, b) == [3, 4, 5, 0, 1, 2]


@pytest.mark.parametrize("spread", [1, 10**8])
def test_first_row_wins_and_the_rest_is_minus_one(spread: int) -> None:
    ids_b = np.array([7, 7, 3]) * spread
    ids_a = np.array([3, 7, 5, 0, 9]) * spread
    found = match(([1] * 5, ids_a), ([1] * 3, ids_b))
    assert found == [2, 0, -1, -1, -1]


@pytest.mark.parametrize("far", [5, 2**32 - 2])
def test_missing_ids_and_unknown_processes_match_nothing(far: int) -> None:
    none = numbering.NO_ID
    found = match(([1, 1, 3], [none, far, 5]), ([1, 1, 1], [none, far, 0]))
    assert found == [-1, 1, -1]


def test_without_rows() -> None:
    assert match(([1], [1]), ([], [])) == [-1]
    assert match(([], []), ([1], [1])) == []
