"""Offsets between clocks, and which event is which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics.clocks import Shift, best_shift, mad, offset


def test_offset_is_the_median_and_its_error_the_mad():
    differences = np.array([5003, 4999, 5001, 5000, 5002])
    reference = np.arange(5) * 1_000_000
    assert offset(reference, reference + differences) == (5001.0, 1.0)


def test_mad_of_one_value_is_zero():
    assert mad([7]) == 0


def test_shift_is_found_under_any_offset():
    longer = np.cumsum([100, 230, 170, 410, 90, 300, 120, 510])
    assert best_shift(longer, longer[3:7] + 10_000_000) == Shift(3, 0.0)


def test_even_spacing_has_no_unique_shift():
    assert best_shift(np.arange(10) * 100, np.arange(7) * 100 + 5) is None


def test_equal_lengths_have_one_candidate():
    assert best_shift([1, 5, 9], [2, 6, 10]) == Shift(0, 0.0)


def slow_best_shift(longer, shorter):
    """Every candidate by hand."""
    scatter = []
    for start in range(len(longer) - len(shorter) + 1):
        diffs = [s - longer[start + i] for i, s in enumerate(shorter)]
        middle = float(np.median(diffs))
        scatter.append(float(np.median([abs(d - middle) for d in diffs])))
    best = min(range(len(scatter)), key=lambda i: (scatter[i], i))
    others = [x for i, x in enumerate(scatter) if i != best]
    if others and not min(others) > 2 * scatter[best]:
        return None
    return Shift(best, scatter[best])


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 2000), min_size=1, max_size=30),
    st.data(),
    st.integers(-(10**12), 10**12),
)
def test_best_shift_agrees_with_trying_all(steps, data, shift):
    longer = np.cumsum(steps)
    size = data.draw(st.integers(1, len(steps)))
    start = data.draw(st.integers(0, len(steps) - size))
    jitter = data.draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
    shorter = np.sort(longer[start : start + size] + shift + np.array(jitter))
    assert best_shift(longer, shorter) == slow_best_shift(longer, shorter)


def test_long_sequences_stay_bounded():
    rng = np.random.default_rng(0)
    longer = np.cumsum(rng.integers(100, 10_000, 40_000))
    found = best_shift(longer, longer[1234:35_000] + 77)
    assert found is not None
    assert found.start == 1234
    assert found.mad == pytest.approx(0)
