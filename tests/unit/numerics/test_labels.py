"""Dense codes on small cases with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics import numbering


@pytest.mark.parametrize("values", [[], [5], [3, 3, 1, 1, 3, 2**62, -7]])
def test_distinct_equals_numpy(values: list[int]) -> None:
    array = np.array(values, np.int64)
    assert numbering.distinct(array).tolist() == np.unique(array).tolist()


def test_codes_of_unknown_values_are_minus_one() -> None:
    known = np.array([2, 5, 9])
    assert numbering.codes(known, np.array([9, 2, 4, 10, -1, 5])).tolist() == [2, 0, -1, -1, -1, 1]
    assert numbering.codes(known[:0], np.array([9])).tolist() == [-1]


@pytest.mark.parametrize("k", [1, 7, 5000])
def test_numbering_is_by_value_small_or_large(k: int) -> None:
    array = np.random.default_rng(0).integers(-k, k, 20_000) * (1 << 40)
    distinct, first, number = np.unique(array, return_index=True, return_inverse=True)
    for found, rows in (numbering.numbered(array), numbering._numbered_swept(array)):
        assert found.tolist() == number.tolist()
        assert rows.tolist() == first.tolist()
    assert (array[first] == distinct).all()
