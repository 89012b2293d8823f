"""SLO fits: worked examples, planted queues, guards, and no extrapolation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.sizing.slo import Samples, fit_queue, fit_slo, levels_of
from tracekit.sizing.slo.isotonic import crossing, isotonic
from tracekit.sizing.slo.levels import coarser

EXACT = 1e-6


def queue(q, mu=100.0, base=20.0, scale=5.0):
    rho = np.asarray(q, float) / mu
    return base + scale * rho / (1 - rho)


def sampled(qps, latency, util=None, kv=None, time=None):
    nothing = [math.nan] * len(qps)
    return Samples(
        *(
            np.array(column, float)
            for column in (
                range(len(qps)) if time is None else time,
                qps,
                latency,
                nothing if util is None else util,
                nothing if kv is None else kv,
            )
        )
    )


Q = np.linspace(10, 90, 9)


def test_utilisation_is_made_to_rise():
    curve = isotonic([0.16, 0.34, 0.30, 0.62, 0.76], [1] * 5)
    assert curve == pytest.approx([0.16, 0.32, 0.32, 0.62, 0.76], rel=EXACT)
    q = [10, 20, 30, 40, 50]
    assert crossing(q, curve, 0.68) == pytest.approx(40 + 10 * 0.06 / 0.14, rel=EXACT)
    assert crossing(q, curve, 0.85) is None


def test_capacity_and_rates():
    q = [10, 30, 50, 70, 80, 90]
    found = fit_queue(q, queue(q))
    assert found.capacity_qps == pytest.approx(100, rel=EXACT)
    assert (found.base_s, found.scale_s) == pytest.approx((20, 5), rel=EXACT)
    assert found.rate_at(40) == pytest.approx(80, rel=EXACT)
    assert found.rate_at(50) == pytest.approx(600 / 7, rel=EXACT)
    assert found.latency_at(90) == pytest.approx(65, rel=EXACT)


def test_a_log_linear_form_misses_what_the_queue_finds():
    q = np.array([10.0, 30, 50, 70])
    slope, level = np.polyfit(np.log(q), queue(q), 1)
    assert level + slope * math.log(90) == pytest.approx(29.88, abs=0.001)
    assert fit_queue(q, queue(q)).latency_at(90) == pytest.approx(65, rel=1e-4)


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_a_planted_capacity_is_found_within_five_percent(noise):
    rng = np.random.default_rng(3)
    q = np.linspace(8, 90, 12)
    found = fit_queue(q, queue(q) * (1 + rng.normal(0, noise, 12)))
    assert found.capacity_qps == pytest.approx(100, rel=0.05)
    assert found.capacity_low_qps <= found.capacity_qps <= found.capacity_high_qps
    assert found.capacity_low_qps > 90


def test_latency_that_does_not_rise_places_no_capacity():
    found = fit_slo(levels_of(sampled(Q, [3.0] * 9)), latency_s=5.0)
    assert found.queue.capacity_qps is None
    assert "measure higher rates" in str(found.missing[0])
    assert (found.qps.qps, found.qps.at_least) == (90, True)
    never = fit_slo(levels_of(sampled(Q, [3.0] * 9)), latency_s=2.0)
    assert (never.qps.qps, never.qps.at_least) == (0, False)


def test_nothing_is_extrapolated():
    found = fit_slo(levels_of(sampled(Q, queue(Q))), latency_s=500.0)
    assert (found.qps.qps, found.qps.at_least) == (90, True)
    inside = fit_slo(levels_of(sampled(Q, queue(Q))), latency_s=40.0)
    assert inside.qps.qps == pytest.approx(80, rel=EXACT)
    assert inside.qps.low_qps <= inside.qps.qps <= inside.qps.high_qps < 80.1


def test_headroom_and_the_tighter_of_two_limits():
    levels = levels_of(sampled(Q, queue(Q), util=0.008 * Q))
    found = fit_slo(levels, latency_s=40.0, beta=0.15)
    assert found.by_headroom.qps == pytest.approx(85, rel=EXACT)
    assert found.qps == found.by_latency
    tight = fit_slo(levels, latency_s=40.0, beta=0.5)
    assert tight.qps.qps == pytest.approx(50, rel=EXACT)
    assert [h.beta for h in found.headroom] == pytest.approx(list(1 - Q / 100))


def test_headroom_of_the_whole_counter_is_not_reached():
    levels = levels_of(sampled(Q, queue(Q), util=0.008 * Q))
    found = fit_slo(levels, latency_s=None, beta=0.15, achievable_frac=1.0)
    assert (found.qps.qps, found.qps.at_least) == (90, True)


def test_without_dram_activity_the_rate_is_unknown():
    found = fit_slo(levels_of(sampled(Q, queue(Q))), latency_s=40.0, beta=0.15)
    assert found.by_headroom is None
    assert found.qps is None
    assert found.by_latency.qps == pytest.approx(80)
    assert "needs DRAM activity at every level" in str(found.missing[0])


@pytest.mark.parametrize("n", [1, 4, 7])
def test_too_few_levels_are_refused(n):
    q = np.linspace(10, 90, n)
    found = fit_slo(levels_of(sampled(q, queue(q), util=0.008 * q)), latency_s=40.0, beta=0.1)
    assert found.guards == (f"{n} distinct levels of load, 8 are needed",)
    assert (found.queue, found.by_latency, found.by_headroom, found.qps) == (None,) * 4
    assert len(found.missing) == 2


def test_repeated_measurements_are_one_level():
    q = np.repeat(Q, 3) * np.tile([1.0, 1.01, 0.99], 9)
    found = levels_of(sampled(q, queue(q)))
    assert [v.n for v in found.levels] == [3] * 9
    assert [v.qps for v in found.levels] == pytest.approx(list(Q))


def test_load_that_fell_is_refused_unless_accepted():
    levels = levels_of(sampled(Q[::-1], queue(Q[::-1])))
    assert not levels.rises
    refused = fit_slo(levels, latency_s=40.0)
    assert "load rose and fell" in refused.guards[0]
    assert refused.qps is None
    assert fit_slo(levels, latency_s=40.0, any_order=True).qps.qps == pytest.approx(80)


def test_transitions_between_levels_are_left_out():
    q = [v for level in (10, 20, 40) for v in [level * 0.75, *[level] * 5]]
    found = levels_of(sampled(q, [1.0] * len(q)))
    assert found.n_transitions == 3
    assert [(v.qps, v.n) for v in found.levels] == [(10, 5), (20, 5), (40, 5)]


def simulated(seed, capacity=20.0, minutes=10):
    """Rates and 95th percentiles a minute of a queue with random arrivals and service times."""
    rng = np.random.default_rng(seed)
    qps, latencies, begin, free = [], [], 0.0, 0.0
    for rate in (2, 4, 6, 8, 10, 12, 14, 16, 17, 18):
        arrivals = begin + np.cumsum(rng.exponential(1 / rate, rate * minutes * 60))
        ends = np.empty(len(arrivals))
        for i, (arrival, service) in enumerate(
            zip(arrivals, rng.exponential(1 / capacity, len(arrivals)), strict=True)
        ):
            free = ends[i] = max(free, arrival) + service
        for minute in range(minutes):
            inside = (ends >= begin + 60 * minute) & (ends < begin + 60 * (minute + 1))
            qps.append(inside.sum() / 60)
            latencies.append(np.percentile((ends - arrivals)[inside], 95))
        begin = arrivals[-1]
    return sampled(qps, latencies)


@pytest.mark.parametrize("seed", range(6))
def test_a_simulated_queue_with_random_arrivals(seed):
    found = fit_slo(levels_of(simulated(seed)), latency_s=0.5)
    assert 8 <= len(found.levels.levels) <= 10
    assert found.guards == ()
    assert found.queue.capacity_qps == pytest.approx(20, rel=0.07)
    assert found.qps.qps == pytest.approx(20 - math.log(20) / 0.5, rel=0.05)


def test_an_overloaded_level_is_left_out():
    q = np.repeat(Q, 5)
    latency = queue(q)
    latency[-5:] *= [1, 2, 4, 8, 16]
    found = levels_of(sampled(q, latency))
    assert found.unsteady_qps == (90,)
    assert len(found.levels) == 8
    assert "latency kept rising there: 90 requests/s" in fit_slo(found, latency_s=40.0).notes[0]


def test_gaps_and_nan_are_counted_not_used():
    q = [*Q, math.nan, 95, 0.0]
    latency = [*queue(Q), 30.0, math.nan, 20.0]
    found = levels_of(sampled(q, latency))
    assert (len(found.levels), found.n_incomplete, found.n_samples) == (9, 3, 12)
    assert fit_slo(found, latency_s=40.0).notes == ("3 samples without load or latency left out",)
    nothing = fit_slo(levels_of(sampled([math.nan], [1.0])), latency_s=1.0)
    assert nothing.guards == ("0 distinct levels of load, 8 are needed",)


def test_a_full_cache_and_a_poor_fit_are_said():
    found = fit_slo(levels_of(sampled(Q, queue(Q), kv=Q / 90)), latency_s=40.0)
    assert found.notes == (
        "the KV cache is full from 90 requests/s on: preemption may set latency there",
    )
    rng = np.random.default_rng(0)
    poor = fit_slo(levels_of(sampled(Q, queue(Q) * rng.uniform(0.5, 1.5, 9))), latency_s=40.0)
    assert "it fits poorly" in poor.notes[-1]


def test_the_finer_series_is_averaged_on_the_coarser_clock():
    time, slow, fast = coarser([0, 10, 20], [1, 2, 3], range(21), range(21))
    assert list(time) == [0, 10, 20]
    assert list(slow) == [1, 2, 3]
    assert list(fast) == [0, 5.5, 15.5]
    again = coarser(range(21), range(21), [0, 10, 20], [1, 2, 3])
    assert (list(again[1]), list(again[2])) == ([0, 5.5, 15.5], [1, 2, 3])
    _, _, gap = coarser([0, 10, 20], [1, 2, 3], [0, 1, 2, 3, 19], [1, 1, 1, 1, 5])
    assert gap == pytest.approx([1, 1, 5])


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0.1, 10.0)), min_size=1, max_size=20))
def test_the_isotonic_curve_rises_and_keeps_its_mean(pairs):
    values, weights = (list(part) for part in zip(*pairs, strict=True))
    curve = isotonic(values, weights)
    assert np.all(np.diff(curve) >= 0)
    mean = np.average(values, weights=weights)
    assert np.average(curve, weights=weights) == pytest.approx(mean, rel=1e-9, abs=1e-6)


@settings(deadline=None, max_examples=20)
@given(
    mu=st.floats(5, 500),
    base=st.floats(0.01, 1),
    scale=st.floats(0.1, 10),
    top=st.floats(0.5, 0.98),
)
def test_an_exact_queue_is_found_again(mu, base, scale, top):
    q = mu * np.linspace(0.05, top, 9)
    found = fit_queue(q, queue(q, mu, base, scale))
    assert found.residual_frac < 1e-3
    assert found.latency_at(q[-1]) == pytest.approx(queue(q[-1], mu, base, scale), rel=5e-3)
