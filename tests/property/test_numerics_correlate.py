"""Association against SciPy and against permutations counted one by one."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from tracekit.numerics import association

PAIRS = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=12)


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.array(pairs, np.float64).T
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    return x, y


@settings(deadline=None)
@given(PAIRS)
def test_coefficients_equal_scipy(pairs: list[tuple[int, int]]) -> None:
    x, y = columns(pairs)
    np.testing.assert_allclose(association.pearson(x, y).r, stats.pearsonr(x, y)[0], atol=1e-12)
    np.testing.assert_allclose(association.spearman(x, y).r, stats.spearmanr(x, y)[0], atol=1e-12)
    np.testing.assert_array_equal(association.average_ranks(x), stats.rankdata(x))


@settings(deadline=None)
@given(PAIRS)
def test_theil_sen_by_pairs(pairs: list[tuple[int, int]]) -> None:
    x, y = columns(pairs)
    couples = itertools.combinations(zip(x, y, strict=True), 2)
    slopes = [(d - b) / (c - a) for (a, b), (c, d) in couples if a != c]
    slope, start = association.theil_sen(x, y)
    assert slope == np.median(slopes)
    assert start == np.median(y - slope * x)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=3, max_size=5))
def test_permutations_counted_in_exact_arithmetic(pairs: list[tuple[int, int]]) -> None:
    x, y = columns(pairs)
    centre = Fraction(int(x.sum() * y.sum()), len(pairs))

    def product(order: tuple[float, ...]) -> Fraction:
        return abs(sum(Fraction(int(a * b)) for a, b in zip(x, order, strict=True)) - centre)

    every = [product(order) >= product(tuple(y)) for order in itertools.permutations(y)]
    assert association.permutation_p(x, y) == np.mean(every)


def test_p_is_uniform_when_y_is_shuffled() -> None:
    x = np.array([0.0, 1.0, 3.0, 7.0, 20.0])
    found = [association.permutation_p(x, y) for y in itertools.permutations([1, 2, 4, 8, 16])]
    for level in sorted(set(found)):
        assert np.mean(np.array(found) <= level) == level


@settings(deadline=None)
@given(PAIRS)
def test_circular_shifts_one_by_one(pairs: list[tuple[int, int]]) -> None:
    x, y = columns(pairs)
    observed = abs(np.corrcoef(x, y)[0, 1])
    reached = [abs(np.corrcoef(x, np.roll(y, k))[0, 1]) >= observed - 1e-9 for k in range(x.size)]
    assert association.circular_shift_p(x, y) == np.mean(reached)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_by_definition(p: list[float]) -> None:
    adjusted = association.holm(p)
    for i, value in enumerate(p):
        # The smallest level at which the step-down procedure still rejects test i.
        earlier = [q for j, q in enumerate(p) if (q, j) <= (value, i)]
        steps = [(len(p) - rank) * q for rank, q in enumerate(sorted(earlier))]
        np.testing.assert_allclose(adjusted[i], min(1, max(steps)))
