"""The middle slope found among few, against all slopes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import slopes


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(2, 400), st.sampled_from([3, 50, 10**9]), st.booleans())
def test_the_middle_of_few_is_the_median_of_all(
    seed: int, n: int, distinct: int, rounded: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.integers(0, distinct, n)).astype(np.float64)
    y = rng.gamma(2.0, 10.0, n)
    y = y.round() if rounded else y
    above = np.searchsorted(x, x, side="right")
    every = slopes._slopes(x, y, above)
    if every.size == 0:
        assert np.isnan(slopes.median_slope(x, y))
        return
    assert slopes.median_slope(x, y) == np.median(every)
    middle = slopes._middle_of_few(x, y, above, every.size)
    if middle is not None:
        assert np.mean(middle) == np.median(every)


def test_slopes_of_one_value_are_all_kept_or_none() -> None:
    x, y = np.arange(300, dtype=np.float64), np.ones(300)
    assert slopes._middle_of_few(x, y, np.arange(1, 301), 300 * 299 // 2) is None
    assert slopes.median_slope(x, y) == 0


def test_slopes_of_many_points_are_told_by_few() -> None:
    rng = np.random.default_rng(5)
    x, y = np.sort(rng.random(500)), rng.random(500)
    above = np.arange(1, 501)
    middle = slopes._middle_of_few(x, y, above, 500 * 499 // 2)
    assert middle is not None
    assert np.mean(middle) == np.median(slopes._slopes(x, y, above))
