"""Bootstrap ratios and percentiles with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics import bootstrap

BASE = [100, 102, 98, 101, 99]
CONTENDED = [150, 160, 155, 149, 158]


def test_slowdown_with_interval_and_lost_time() -> None:
    found = bootstrap.median_ratio(BASE, CONTENDED)
    assert found == pytest.approx((1.55, 1.47525, 1.61224), rel=1e-5)
    assert bootstrap.lost(BASE, CONTENDED) == 272


def test_one_observation_each_has_no_interval() -> None:
    found = bootstrap.median_ratio([124], [497])
    assert found.value == pytest.approx(4.008065, rel=1e-6)
    assert np.isnan([found.lo, found.hi]).all()


def test_rollup_is_weighted_and_geometric() -> None:
    found = bootstrap.median_ratios([[100] * 5], [[155] * 5, [120] * 15], [0, 0])
    assert found.rollup() == pytest.approx((1.27929,) * 3, rel=1e-5)
    assert found.rollup([1]) == pytest.approx((1.2,) * 3)


def test_groups_share_the_draws_of_a_common_baseline() -> None:
    spread = np.linspace(50, 200, 7)
    found = bootstrap.median_ratios([spread], [[100] * 6, [300] * 6], [0, 0])
    np.testing.assert_allclose(found.draws[:, 1], 3 * found.draws[:, 0])
    one, other = found.estimate(0), found.estimate(1)
    rolled = found.rollup()
    assert rolled.hi == pytest.approx(np.sqrt(one.hi * other.hi))


def test_unknown_groups_are_left_out_of_the_rollup() -> None:
    found = bootstrap.median_ratios([BASE, []], [CONTENDED, [9.0], CONTENDED], [0, 0, 1])
    assert found.known.tolist() == [True, False, False]
    assert np.isnan(found.ratio[2])
    assert found.rollup() == found.estimate(0)
    assert np.isnan(found.rollup([1, 2])).all()
    assert np.isnan(bootstrap.median_ratios([], [], []).rollup()).all()


def test_lost_without_baseline_is_unknown() -> None:
    assert np.isnan(bootstrap.lost([], CONTENDED))
    assert bootstrap.lost(BASE, []) == 0.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(np.arange(1, 21), [(10.5, False), (19.05, False), (19.81, True)], id="d04"),
        pytest.param([10, 20, 30, 40, 50], [(30, False), (48, True), (49.6, True)], id="d09"),
    ],
)
def test_percentiles(values: np.ndarray, expected: list[tuple[float, bool]]) -> None:
    found = [bootstrap.percentile(values, pct) for pct in (50, 95, 99)]
    assert [p.value for p in found] == pytest.approx([value for value, _ in expected], rel=1e-9)
    assert [p.insufficient_n for p in found] == [flag for _, flag in expected]


def test_percentile_needs_a_hundred_values_for_p99_and_some_for_any() -> None:
    assert not bootstrap.percentile(np.arange(100), 99).insufficient_n
    assert bootstrap.percentile(np.arange(99), 99).insufficient_n
    nothing = bootstrap.percentile([], 50)
    assert np.isnan(nothing.value)
    assert nothing.insufficient_n
