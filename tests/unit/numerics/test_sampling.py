"""Sampled counters on small cases with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.numerics.samples import sampling

S1_TIMES = [100, 200, 300, 400, 500]
S1_VALUES = [80, 80, 20, 20, 80]


def test_time_weighted_not_naive_mean() -> None:
    means = sampling.over_windows(sampling.cells(S1_TIMES, S1_VALUES), [150], [350])
    assert means.mean.tolist() == [65.0]
    assert means.coverage.tolist() == [1.0]
    assert means.subsample.tolist() == [False]


def test_lost_samples_leave_time_uncovered() -> None:
    samples = sampling.cells([100, 200, 300, 1000], [50, 50, 50, 90])
    assert samples.period_ns == 100
    means = sampling.over_windows(samples, [0], [1000])
    assert means.coverage.tolist() == [0.3]
    assert means.integral[0] / means.covered_ns[0] == 50.0
    assert np.isnan(means.mean).all()


def test_bandwidth_by_class_of_window() -> None:
    means = sampling.over_windows(sampling.cells(S1_TIMES, S1_VALUES), [100, 300], [300, 500])
    assert means.mean.tolist() == [80.0, 20.0]
    assert means.mean[1] / means.mean[0] - 1 == -0.75


def test_saturation_by_share_of_time() -> None:
    length = np.array([10, 10, 20, 40, 20])
    end = np.cumsum(length)
    samples = sampling.Cells(end - length, end, np.array([90, 85, 70, 95, 40]), 20)
    assert sampling.over_windows(samples, [0], [100]).mean.tolist() == [77.5]
    high = samples.with_value(samples.value >= 80)
    assert sampling.over_windows(high, [0], [100]).mean.tolist() == [0.6]


@pytest.mark.parametrize(
    ("edge", "starts", "ends"),
    [
        ("leading", [100, 200, 300, 1000], [200, 300, 400, 1100]),
        ("trailing", [0, 100, 200, 900], [100, 200, 300, 1000]),
    ],
)
def test_cells_under_both_edges(edge: sampling.Edge, starts: list[int], ends: list[int]) -> None:
    samples = sampling.cells([300, 100, 200, 1000], [3, 1, 2, 4], edge)
    assert samples.start.tolist() == starts
    assert samples.end.tolist() == ends
    assert samples.value.tolist() == [1, 2, 3, 4]


def test_invalid_sample_leaves_a_hole() -> None:
    samples = sampling.cells([0, 100, 200, 300], [50, -7, 50, 50])
    valid = samples.keep(samples.value >= 0)
    means = sampling.over_windows(valid, [0], [400])
    assert means.coverage.tolist() == [0.75]
    assert means.mean.tolist() == [50.0]


def test_window_set_is_the_pool_of_its_windows() -> None:
    samples = sampling.cells(S1_TIMES, S1_VALUES)
    pooled = sampling.over_windows(samples, [150, 550], [350, 750]).pooled()
    assert pooled.length_ns.tolist() == [400]
    assert pooled.coverage.tolist() == [0.625]
    assert pooled.mean.tolist() == [(65 * 200 + 80 * 50) / 250]


def test_only_cells_fully_inside() -> None:
    samples = sampling.cells(S1_TIMES, S1_VALUES)
    means, count = sampling.inside_windows(samples, [150, 100, 210, 550], [450, 600, 290, 560])
    assert count.tolist() == [2, 5, 0, 0]
    assert means.mean[:2].tolist() == [50.0, 56.0]
    assert np.isnan(means.mean[2:]).all()


def test_short_window_is_flagged_and_empty_one_is_unknown() -> None:
    means = sampling.over_windows(sampling.cells(S1_TIMES, S1_VALUES), [210, 300], [220, 300])
    assert means.subsample.tolist() == [True, True]
    assert means.mean[0] == 80.0
    assert np.isnan(means.mean[1])
    assert np.isnan(means.coverage[1])


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_samples_cover_nothing(count: int) -> None:
    samples = sampling.cells([100][:count], [5][:count])
    assert sampling.over_windows(samples, [0], [1000]).coverage.tolist() == [0.0]
    means, inside = sampling.inside_windows(samples, [500], [1000])
    assert inside.tolist() == [0]
    assert np.isnan(means.mean).all()


def test_huge_values_do_not_overflow() -> None:
    hertz = 1_980_000_000
    times = np.arange(1000) * 10**10
    means = sampling.over_windows(sampling.cells(times, np.full(1000, hertz)), [0], [10**13])
    assert means.mean[0] == pytest.approx(hertz, rel=1e-12)


def square_wave(shift: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    starts = np.arange(30) * 1000
    ends = starts + np.arange(30) * 7 + 300
    times = np.arange(300) * 100
    busy = np.zeros(30_000)
    for start, end in zip(starts, ends, strict=True):
        busy[start:end] = 100
    return times + shift, busy.reshape(300, 100).mean(axis=1), starts, ends


def test_edge_that_follows_activity_is_recognised() -> None:
    leading = sampling.edge_fit(*square_wave(0))
    trailing = sampling.edge_fit(*square_wave(100))
    assert leading.leading_r == pytest.approx(1.0)
    assert not leading.trailing_is_better
    assert trailing.trailing_r == pytest.approx(1.0)
    assert trailing.trailing_is_better


def test_edge_is_unknown_with_few_samples_or_no_variation() -> None:
    times, values, starts, ends = square_wave(0)
    few = sampling.edge_fit(times[:49], values[:49], starts, ends)
    flat = sampling.edge_fit(times, np.full(300, 7.0), starts, ends)
    for fit in (few, flat):
        assert np.isnan(fit).all()
        assert not fit.trailing_is_better


def test_runs_need_two_periods() -> None:
    samples = sampling.cells(np.arange(6) * 10, [1, 1, 0, 1, 0, 1])
    starts, ends = sampling.runs(samples, samples.value == 1)
    assert (starts.tolist(), ends.tolist()) == ([0], [20])
