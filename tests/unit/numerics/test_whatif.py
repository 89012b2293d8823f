"""Predicted lengths of a step after a change; times in us where nothing else is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracekit.model.gain import Gain, combined
from tracekit.numerics.idle import whatif
from tracekit.numerics.idle.waterfall import outlier_threshold

US = 1_000


def test_a_launch_bound_step_as_a_graph():
    assert whatif.graphed(1000 * US, 200 * US, 100) == (210 * US, 330 * US)


def test_a_copy_as_long_as_it_can_be_hidden():
    assert whatif.hidden_copy(100, 100, 60, 60, host_waits=False) == (60, 60)


def test_nothing_is_won_where_the_host_is_the_longer_chain():
    assert whatif.without_waits(100, 60, 95) == (95, 100)


def test_a_busy_step_has_nothing_to_gain_from_a_graph():
    assert whatif.graphed(1000 * US, 990 * US, 100) == (1000 * US, 1000 * US)


def test_a_graph_saves_no_more_than_the_idle_time():
    # Medians do not add up: the step is not idle for all that it is not busy.
    assert whatif.graphed(1000 * US, 200 * US, 100, idle=600 * US) == (400 * US, 400 * US)


def test_what_a_graph_does_not_remove_stays():
    assert whatif.graphed(1000 * US, 200 * US, 0, remains=50 * US, may_remain=100 * US) == (
        *(250 * US, 350 * US),
    )


def test_a_hidden_copy_saves_its_exposed_time_unless_the_host_waited_for_it():
    # 500 idle, 300 compute, 200 copy.
    assert whatif.hidden_copy(1000, 500, 200, 200, host_waits=False) == (800, 800)
    assert whatif.hidden_copy(1000, 500, 200, 200, host_waits=True) == (300, 800)


def test_a_pinned_copy_runs_at_70_to_100_percent_of_the_link():
    assert whatif.pinned(1000, 800, 7_000, 70.0) == pytest.approx((300, 1000 - 800 + 100 / 0.7))


def test_a_slow_link_is_no_gain():
    assert whatif.pinned(1000, 100, 70_000, 70.0) == (1000, 1000)


def test_dequantisation_gone_and_its_consumers_as_fast_as_elsewhere():
    assert whatif.without_dequant(524, 256, 10, 48) == (210, 268)


def test_allocations_moved_out():
    # The host works 900 of 1000, 300 of that in allocations that leave the device idle for 200.
    assert whatif.not_allocating(1000, 500, 900, 300, 200) == (600, 800)


def together(*gains: Gain) -> tuple[float, float]:
    (found,) = combined([replace(g, change=str(i)) for i, g in enumerate(gains)])
    return found.lo_ns, found.hi_ns


def gain(lo: float, hi: float, **values: float) -> Gain:
    return Gain(change="x", lo_ns=lo, hi_ns=hi, of_ns=1000, busy_ns=400, **values)


def test_gains_of_two_changes_do_not_add_beyond_the_devices_work():
    assert together(gain(400, 500), gain(100, 300)) == (400, 600)
    assert together(gain(100, 200), gain(100, 300)) == (100, 500)


def test_a_change_that_removes_work_lowers_what_is_left():
    hidden = gain(100, 300, removes_busy_ns=300)
    assert together(gain(400, 600), hidden) == (400, 900)


def test_only_several_changes_to_the_same_steps_are_combined():
    one, other = gain(400, 500), replace(gain(100, 300), step_group="prefill")
    assert combined([one, other, one]) == ()
    assert combined([one, replace(gain(0, 5), change="too little")]) == ()


def test_less_than_a_percent_of_the_step_is_not_ranked():
    assert not gain(0, 9.9).worth_ranking
    assert gain(0, 10).worth_ranking


def test_outliers():
    spans = np.array([10, 10, 11, 10, 30])
    limit = outlier_threshold(spans)
    assert limit == 10.5
    assert spans[spans > limit].tolist() == [11, 30]
    assert outlier_threshold(spans[:4]) is None
    # With a spread of 1 (MAD) around 100 the limit is 3 robust deviations, or 5 %.
    assert outlier_threshold(np.array([98, 99, 100, 101, 102])) == 105
    assert outlier_threshold(np.array([80, 90, 100, 110, 120])) == pytest.approx(100 + 44.478)
