"""Sampled counters of one GPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.builders import Export
from tracekit.numerics.samples import sampling
from tracekit.views.counters import metrics

READ, WRITE = metrics.DRAM[0]
WINDOW = (np.array([150]), np.array([350]))


def export(**counters) -> Export:
    """GPU with counters: name to (times, values)."""
    e = Export().gpu(0).kernel(0, 1000)
    for name, (times, values) in counters.items():
        e.metric(name, times, values)
    return e


def test_mean_is_weighted_by_time(traced):
    trace = traced(export(**{READ: (range(100, 600, 100), [80, 80, 20, 20, 80])}))
    found = metrics.counter(trace, 0, READ)
    level = metrics.level_over([found], WINDOW)
    assert (level.mean_frac, level.coverage_frac) == (pytest.approx(0.65), 1.0)


def test_low_coverage_is_unknown(traced):
    trace = traced(export(**{READ: ([100, 200, 300, 1000], [50, 50, 50, 90])}))
    counters = [metrics.counter(trace, 0, READ)]
    level = metrics.level_over(counters, (np.array([0]), np.array([1000])))
    assert (level.mean_frac, level.coverage_frac) == (None, pytest.approx(0.3))


def test_exact_names_scales_and_bad_values(traced):
    warps = "Compute Warps in Flight [Avg Warps per Cycle]"
    trace = traced(
        export(
            **{
                "GPC Clock Frequency [MHz]": ([100, 200], [1_710_000_000, 1_710_000_000]),
                READ: ([100, 200, 300], [101, -5, 50]),
                warps: ([100, 200], [4_000_000, 4_000_000]),
            }
        )
    )
    assert metrics.clock_hz(trace, 0) == 1_710_000_000
    found = metrics.counter(trace, 0, READ)
    assert (found.n_samples, found.n_over, found.n_negative) == (3, 1, 1)
    assert found.cells.value.tolist() == [1.0, 0.5]
    # The negative sample left a hole: its neighbours did not grow into it.
    assert list(zip(found.cells.start, found.cells.end, strict=True)) == [(100, 200), (300, 400)]
    assert metrics.counter(trace, 0, "Compute Warps in Flight") is None


def test_windows_after_the_sampler_stopped_have_no_value(traced):
    times = range(0, 1_000_000, 100_000)
    trace = traced(export(**{READ: (times, [40] * 10)}).kernel(2_000_000, 10_000_000))
    counters = [metrics.counter(trace, 0, READ)]
    after = metrics.level_over(counters, (np.array([2_000_000]), np.array([3_000_000])))
    assert (after.mean_frac, after.coverage_frac) == (None, 0.0)
    whole = metrics.level_over(counters, (np.array([0]), np.array([10_000_000])))
    assert (whole.mean_frac, whole.coverage_frac) == (None, pytest.approx(0.1))


def test_short_windows_are_judged_together_with_their_number(traced):
    times = range(0, 4_000_000, 100_000)
    values = [30 if i % 2 else 70 for i in range(40)]
    trace = traced(export(**{READ: (times, values)}))
    starts = np.arange(20) * 200_000 + 35_000
    level = metrics.level_over([metrics.counter(trace, 0, READ)], (starts, starts + 30_000))
    assert level.subsample
    assert (level.n_windows, level.mean_frac) == (20, pytest.approx(0.7))
    assert level.lo_frac == pytest.approx(0.7)
    mean, coverage = metrics.means_over(
        [metrics.counter(trace, 0, READ)], starts + 50_000, starts + 80_000
    )
    # [85, 115) us: 15 of the 30 lie in the next sample; edges count by overlap.
    assert mean[0] == pytest.approx((15 * 0.7 + 15 * 0.3) / 30)
    assert coverage.tolist() == [1.0] * 20


def test_counter_that_reads_zero_throughout_is_unavailable(traced):
    trace = traced(export(**{READ: ([100, 200, 300], [0, 0, 0]), WRITE: ([100], [0])}))
    assert metrics.counter(trace, 0, READ) is None
    assert metrics.dram(trace, 0) == ()


def test_dram_is_read_plus_write_of_the_asked_gpu(traced):
    e = export(**{READ: ([100, 200], [30, 30]), WRITE: ([100, 200], [12, 12])}).gpu(1)
    e.metric(READ, [100, 200], [99, 99], device=1)
    trace = traced(e)
    level = metrics.level_over(metrics.dram(trace, 0), (np.array([100]), np.array([200])))
    assert level.mean_frac == pytest.approx(0.42)
    assert metrics.dram(trace, 1) == ()


def test_combined_dram_counter_serves_where_the_parts_are_absent(traced):
    trace = traced(export(**{metrics.DRAM[1][0]: ([100, 200], [55, 55])}))
    assert [c.name for c in metrics.dram(trace, 0)] == list(metrics.DRAM[1])


def test_link_adds_requests_and_responses(traced):
    counters = {name: ([100, 200], [10 * i, 10 * i]) for i, name in enumerate(metrics.LINK_TX)}
    trace = traced(export(**counters))
    receiving, sending = metrics.link(trace, 0)
    assert receiving == ()
    level = metrics.level_over(sending, (np.array([100]), np.array([200])))
    assert level.mean_frac == pytest.approx(0.6)


def test_no_metrics_at_all(traced):
    trace = traced(Export().gpu(0).kernel(0, 100))
    assert metrics.metric_names(trace, 0) == frozenset()
    assert metrics.clock_hz(trace, 0) is None
    assert metrics.level_over((), WINDOW) is None
    mean, coverage = metrics.means_over((), *WINDOW)
    assert np.isnan(mean).all()
    assert coverage.tolist() == [0.0]


def test_interval_over_windows_matches_a_bootstrap():
    rng = np.random.default_rng(1)
    times = np.arange(0, 200_000, 100)
    cells = sampling.cells(times, rng.uniform(0, 1, times.size))
    counter = metrics.Counter("x", cells, times.size, 0, 0)
    starts = np.arange(0, 199_000, 2_000)
    level = metrics.level_over([counter], (starts, starts + 700))
    means, _ = metrics.means_over([counter], starts, starts + 700)
    draws = [means[rng.integers(0, means.size, means.size)].mean() for _ in range(2000)]
    lo, hi = np.percentile(draws, [2.5, 97.5])
    assert level.lo_frac == pytest.approx(lo, abs=0.01)
    assert level.hi_frac == pytest.approx(hi, abs=0.01)
