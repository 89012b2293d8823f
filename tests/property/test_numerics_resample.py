"""Bootstrap against the same draws taken the plain way; percentiles against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import bootstrap, draws

DURATIONS = st.lists(st.floats(1, 1e6), min_size=5, max_size=9)


@settings(deadline=None, max_examples=25)
@given(DURATIONS, DURATIONS, DURATIONS)
def test_draws_are_one_matrix_each_baselines_first(
    base: list[float], first: list[float], second: list[float]
) -> None:
    rng = np.random.default_rng(0)
    medians = [
        np.median(np.array(values)[rng.integers(0, len(values), (2000, len(values)))], axis=1)
        for values in (base, first, second)
    ]
    found = bootstrap.median_ratios([base], [first, second], [0, 0])
    for group in (0, 1):
        ratios = medians[1 + group] / medians[0]
        ends = np.percentile(ratios, [2.5, 97.5])
        np.testing.assert_allclose(found.estimate(group)[1:], ends, rtol=1e-12)
    weights = np.array([len(first), len(second)]) / (len(first) + len(second))
    mixed = (medians[1] / medians[0]) ** weights[0] * (medians[2] / medians[0]) ** weights[1]
    np.testing.assert_allclose(found.rollup()[1:], np.percentile(mixed, [2.5, 97.5]), rtol=1e-9)


def test_large_samples_are_drawn_in_slices_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(3).gamma(2.0, 10.0, 50)
    whole = bootstrap.median_ratio(values, values * 2 + 1)
    monkeypatch.setattr(draws, "_CELLS_AT_ONCE", 150)
    draws._places.cache_clear()
    assert bootstrap.median_ratio(values, values * 2 + 1) == whole


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(1, 41)), st.integers(1, 40), st.integers(0, 3))
def test_middles_are_those_of_the_values_drawn(order: list[int], n: int, before: int) -> None:
    values = np.array(order[:n], np.float64) // 2
    plain, rng = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(before):
        plain.integers(0, 7, 3)
        rng.integers(0, 7, 3)
    expected = np.median(values[plain.integers(0, n, (draws.DRAWS, n))], axis=1)
    assert (draws.median_draws(values, rng) == expected).all()
    assert rng.bit_generator.state == plain.bit_generator.state


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(25)), st.integers(0, 99))
def test_counting_and_sorting_find_the_same_middles(order: list[int], seed: int) -> None:
    rows = np.array(order[: 20 + seed % 6], np.int64).argsort()
    drawn = np.random.default_rng(seed).integers(0, rows.size, (50, rows.size), dtype=np.uint32)
    low, high = np.empty(50, np.int64), np.empty(50, np.int64)
    draws._counted_middles(rows, drawn, low, high)
    for counted, by_sorting in zip((low, high), draws._sorted_middles(rows, drawn), strict=True):
        assert (counted == by_sorting).all()


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 100))
def test_percentile_equals_numpy(values: list[float], pct: float) -> None:
    assert bootstrap.percentile(values, pct).value == np.percentile(values, pct)
