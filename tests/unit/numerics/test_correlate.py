"""Association on small cases with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics import association

F = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
MISS = [0.12, 0.15, 0.13, 0.20, 0.22, 0.21, 0.30, 0.33]


def test_pearson_spearman_and_effect() -> None:
    assert association.pearson(F, MISS) == pytest.approx(
        (8, 0.947836, 0.732230, 0.990764), rel=2e-6
    )
    rho = association.spearman(F, MISS)
    assert rho == pytest.approx((8, 0.952381, 0.664056, 0.994124), rel=2e-6)
    assert association.permutation_p(F, MISS) == 24 / 40320
    ranks = association.average_ranks(F), association.average_ranks(MISS)
    assert association.permutation_p(*ranks) == 46 / 40320
    assert association.top_minus_bottom(F, MISS) == pytest.approx(0.18, rel=1e-9)


def test_partial_correlation_exposes_the_common_cause() -> None:
    z = np.arange(1, 9)
    x = [1.1, 1.9, 3.2, 3.8, 5.1, 5.9, 7.2, 7.8]
    y = [0.9, 2.1, 3.1, 3.9, 4.9, 6.1, 6.9, 8.1]
    assert association.pearson(x, y).r == pytest.approx(0.995844, rel=1e-6)
    found = association.partial(x, y, z)
    assert found == pytest.approx((8, -0.301945, -0.859555, 0.583876), rel=2e-6)
    assert np.isnan(association.partial(z, y, z).r)
    assert np.isnan(association.partial([2] * 8, y, z).r)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        pytest.param([512, 896], [0.237, 0.382], id="b04_two_points"),
        pytest.param([0.5] * 8, MISS, id="b05_constant"),
        pytest.param([1, 2, np.nan, 4], [1, 2, 3, np.inf], id="too_few_complete_rows"),
        pytest.param([], [], id="empty"),
    ],
)
def test_no_estimate_without_data(x: list[float], y: list[float]) -> None:
    for found in (association.pearson(x, y), association.spearman(x, y)):
        assert np.isnan(found[1:]).all()
    assert np.isnan(association.permutation_p(x, y))


def test_three_rows_have_no_interval() -> None:
    found = association.pearson([1, 2, 3], [1, 2, 4])
    assert found.r == pytest.approx(0.9819805060619659)
    assert np.isnan([found.lo, found.hi]).all()
    assert association.permutation_p([1, 2, 3, 4], [1, 2, 4, 9]) == 2 / 24


def test_perfect_correlation_has_a_point_interval() -> None:
    assert association.spearman([1, 2, 3, 4], [1, 4, 9, 16])[1:] == (1.0, 1.0, 1.0)


def test_average_ranks() -> None:
    assert association.average_ranks([1, 2, 2, 3]).tolist() == [1, 2.5, 2.5, 4]
    assert association.spearman([1, 2, 2, 3], [1, 3, 2, 4]).r == pytest.approx(0.948683, rel=1e-6)


def test_effective_rows_of_serial_data() -> None:
    assert association.effective_n(100, 0.6, 0.5) == pytest.approx(53.846154, rel=1e-7)
    assert association.effective_n(100, -0.6, 0.5) == 100
    wide, narrow = association.pearson(F, MISS, n_eff=5), association.pearson(F, MISS)
    assert wide.lo < narrow.lo < narrow.hi < wide.hi


def test_lag1_of_a_trend_and_of_a_constant() -> None:
    assert association.lag1([1, 2, 3, 4]) == pytest.approx(0.25)
    assert np.isnan(association.lag1([5, 5, 5]))


def test_slope_and_intercept() -> None:
    share = [0, 0, 0.25, 0.5, 0.5, 1]
    slope, start = association.theil_sen(share, [100, 102, 112, 125, 126, 150])
    assert (slope, start, slope / start) == (50, 100, 0.5)


def test_theil_sen_of_many_rows_and_of_one_x() -> None:
    x = np.arange(20_000.0)
    assert association.theil_sen(x, 3 * x + 1) == pytest.approx((3, 1))
    assert np.isnan(association.theil_sen([2, 2], [1, 5])).all()


def test_holm_steps_down_and_skips_missing_tests() -> None:
    adjusted = association.holm([0.01, np.nan, 0.04, 0.03, 0.5])
    np.testing.assert_allclose(adjusted, [0.04, np.nan, 0.09, 0.09, 0.5])
    assert association.holm([0.6, 0.7]).tolist() == [1.0, 1.0]
    assert association.holm([]).size == 0


def test_ties_at_the_cut_enter_by_their_mean() -> None:
    x, y = [0, 1, 1, 1, 5, 6], [0.0, 3.0, 6.0, 9.0, 10.0, 20.0]
    assert association.top_minus_bottom(x, y) == 15 - (0 + 6) / 2
    assert np.isnan(association.top_minus_bottom([1, 2], [1, 2]))


def test_circular_shift_keeps_the_memory_of_a_series() -> None:
    slow = np.sin(np.arange(40) * 2 * np.pi / 40)
    assert association.permutation_p(slow, slow) == 1 / 10_000
    assert association.circular_shift_p(slow, slow) == 2 / 40


def test_drawn_permutations_are_repeatable_and_sized_by_rows() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 300))
    assert association.permutation_p(x, y) == association.permutation_p(x, y)
    assert 0.05 < association.permutation_p(x, y) <= 1
