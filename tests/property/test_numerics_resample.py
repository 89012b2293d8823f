"""Medians of resamples against resamples that were really drawn; percentiles against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tracekit.numerics import bootstrap

DURATIONS = st.lists(st.floats(1, 1e6), min_size=5, max_size=9)


def drawn(values: list[float], seed: int, repeats: int) -> NDArray[np.float64]:
    """Medians of resamples, the plain way."""
    rng, data = np.random.default_rng(seed), np.array(values)
    return np.median(data[rng.integers(0, data.size, (repeats, data.size))], axis=1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_medians_are_distributed_as_those_of_all_resamples(n: int) -> None:
    values = np.array([3.0, 10.0, 4.0, 25.0, 7.0])[:n]
    every = np.median(np.array(list(itertools.product(values, repeat=n))), axis=1)
    found = np.concatenate(
        [bootstrap.median_draws(values, np.random.default_rng(seed)) for seed in range(20)]
    )
    for median in np.unique(every):
        assert np.mean(found <= median) == pytest.approx(np.mean(every <= median), abs=0.01)
    assert set(found.tolist()) <= set(every.tolist())


@settings(deadline=None, max_examples=15)
@given(st.integers(6, 300), st.integers(0, 1000))
def test_quantiles_are_those_of_resamples(n: int, seed: int) -> None:
    values = np.random.default_rng(seed).gamma(9, 10, n)
    place = np.sort(values)
    many = [bootstrap.median_draws(values, np.random.default_rng(seed + i)) for i in range(10)]
    for pct in (2.5, 50, 97.5):
        found = np.searchsorted(place, np.percentile(np.concatenate(many), pct)) / n
        plain = np.searchsorted(place, np.percentile(drawn(values.tolist(), seed, 5_000), pct)) / n
        assert abs(found - plain) <= 1 / n + 0.25 / np.sqrt(n)


@settings(deadline=None, max_examples=25)
@given(DURATIONS, DURATIONS, DURATIONS)
def test_groups_with_one_baseline_share_its_draws(
    base: list[float], first: list[float], second: list[float]
) -> None:
    rng = np.random.default_rng(0)
    medians = [bootstrap.median_draws(np.array(v), rng) for v in (base, first, second)]
    found = bootstrap.median_ratios([base], [first, second], [0, 0])
    for group in (0, 1):
        ends = np.percentile(medians[1 + group] / medians[0], [2.5, 97.5])
        np.testing.assert_allclose(found.estimate(group)[1:], ends, rtol=1e-12)
    weights = np.array([len(first), len(second)]) / (len(first) + len(second))
    mixed = (medians[1] / medians[0]) ** weights[0] * (medians[2] / medians[0]) ** weights[1]
    np.testing.assert_allclose(found.rollup()[1:], np.percentile(mixed, [2.5, 97.5]), rtol=1e-9)


def test_values_that_are_not_known_have_no_median() -> None:
    rng = np.random.default_rng(0)
    assert np.isnan(bootstrap.median_draws(np.array([1.0, np.nan, 2.0]), rng)).all()
    assert np.isnan(bootstrap.median_draws(np.array([]), rng)).all()


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 100))
def test_percentile_equals_numpy(values: list[float], pct: float) -> None:
    assert bootstrap.percentile(values, pct).value == np.percentile(values, pct)
