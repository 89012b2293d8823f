from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.wording import numbers


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (0, "0 ns"),
        (7, "7 ns"),
        (7.83, "7.83 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (31_600, "31.6 us"),
        (999_499, "999 us"),
        (999_600, "1.00 ms"),
        (2_557_100, "2.56 ms"),
        (-2_557_100, "-2.56 ms"),
        (3_600_000_000_000, "3,600 s"),
    ],
)
def test_durations_have_three_digits_and_their_unit(ns, text):
    assert numbers.duration(ns) == text


@pytest.mark.parametrize(
    ("frac", "text"),
    [
        (0.344, "34.4%"),
        (0.07, "7.00%"),
        (0.0, "0%"),
        (0.005, "0.50%"),
        (1.0, "100%"),
        (2.9e-5, "0.0029%"),
        (1e-9, "<0.001%"),
        (None, "-"),
    ],
)
def test_shares_are_percent(frac, text):
    assert numbers.share(frac) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_073_152, "bytes", "1.07 MB"),
        (128, "bytes", "128 B"),
        (278.2, "GB/s", "278 GB/s"),
        (4.8e12, "B/s", "4.80 TB/s"),
        (1.65, "x", "1.65x"),
        (87.6, "%", "87.6%"),
        (31.6, "us", "31.6 us"),
        (80, "", "80"),
        (1_234_567, "kernels", "1,234,567 kernels"),
        ("bandwidth", "", "bandwidth"),
        (True, "", "yes"),
        (None, "ns", "-"),
        (math.inf, "x", "-"),
    ],
)
def test_quantity_follows_the_unit(value, unit, text):
    assert numbers.quantity(value, unit) == text


def test_intervals_carry_the_unit_twice():
    assert numbers.bounds(3.38, 3.58, "x") == "[3.38x, 3.58x]"
    assert numbers.bounds(None, None, "x") == ""


@pytest.mark.parametrize(
    ("name", "heading", "unit"),
    [
        ("gap_ns", "gap", "ns"),
        ("share_frac", "share", "1"),
        ("copied_bytes", "copied", "bytes"),
        ("bandwidth_bytes_per_s", "bandwidth", "B/s"),
        ("n_kernels", "n kernels", ""),
        ("_ns", " ns", ""),
    ],
)
def test_a_column_name_states_its_unit(name, heading, unit):
    assert numbers.unit_of_column(name) == (heading, unit)


def test_a_column_has_one_scale():
    scale = numbers.scale_of([12_200, 42_900, None, 398_400], "ns")
    assert (scale.unit, scale.cell(12_200), scale.cell(None)) == ("us", "12.2", "-")
    assert numbers.scale_of([1, 2, 3], "").cell(2) == "2"
    assert numbers.scale_of([0.5, 0.25], "1").cell(0.25) == "25.0"
    assert numbers.scale_of([], "ns").cell(0) == "0"


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_significant_is_within_half_a_percent_and_has_no_exponent(value):
    text = numbers.significant(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.0051)
