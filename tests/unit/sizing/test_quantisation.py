"""The speed-up of a lower precision, split into its factors."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import InputError
from tracekit.sizing.runs.quantisation import split

BEFORE, AFTER = (34.2, 0.78), (58.7, 0.92)


def test_fp16_to_int4():
    found = split(BEFORE, AFTER, weight_ratio=0.25)
    assert found.speedup == pytest.approx(58.7 / 34.2, rel=1e-6)
    assert round(found.speedup, 5) == 1.71637
    assert round(found.utilisation_factor, 5) == 1.17949
    assert round(found.bytes_ratio, 5) == 0.68720
    assert round(found.weight_share, 5) == 0.41707


def test_bytes_fall_by_31_percent_not_32():
    assert round(1 - split(BEFORE, AFTER).bytes_ratio, 3) == 0.313


def test_what_the_weights_cannot_have_saved_is_unknown():
    found = split((10, 0.8), (50, 0.8), weight_ratio=0.25)
    assert found.weight_share is None
    assert "more bytes were saved than weights have" in str(found.missing[0])
    worse = split((10, 0.5), (10, 0.8), weight_ratio=0.25)
    assert worse.weight_share is None
    assert worse.bytes_share is None
    assert "no bytes were saved" in str(worse.missing[0])


@pytest.mark.parametrize("ratio", [None, 1.0, 4.0])
def test_without_smaller_weights_their_share_is_unknown(ratio):
    found = split(BEFORE, AFTER, weight_ratio=ratio)
    assert found.weight_share is None
    assert "needs the formats of the weights" in str(found.missing[0])


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ((0, 0.5), "before: throughput must be positive"),
        ((math.nan, 0.5), "before: throughput must be positive"),
        ((1, 78), "must be in 0..1, not 78; divide percent by 100"),
        ((1, math.nan), "must be in 0..1"),
    ],
)
def test_runs_that_cannot_be_used(before, said):
    with pytest.raises(InputError, match=said):
        split(before, AFTER)


@given(*[st.floats(0.1, 1e4)] * 2, *[st.floats(0.01, 1)] * 2)
def test_the_factors_make_up_the_speed_up(rate, other, util, busy):
    found = split((rate, util), (other, busy))
    assert found.bytes_factor * found.utilisation_factor == pytest.approx(found.speedup)


def test_the_command(said):
    words = ("--before-rate", 34.2, "--before-util", 0.78, "--after-rate", 58.7)
    code, out, _ = said(
        *("size", "quant", *words, "--after-util", 0.92),
        *("--before-dtype", "fp16", "--after-dtype", "int4"),
    )
    assert code == 0
    assert "31.3% fewer a request" in out
    assert "41.7% of the traffic before" in out


def test_two_kinds_of_steps_of_a_report(answered, said, fixture_path):
    report = fixture_path("int4_dequant")
    words = (
        *("size", "quant", "--before-trace", report, "--before-steps", "bf16"),
        *("--after-trace", report, "--after-steps", "dequant", "--before-dtype", "bf16"),
        *("--after-dtype", "int4"),
    )
    found = answered(*words)
    assert found["before"] == pytest.approx([1 / 206.2695e-6, 0.72848], rel=1e-4)
    assert found["split"]["speedup"] == pytest.approx(206.2695 / 524.042, rel=1e-6)
    # Weights dequantised to memory are written and read again: more bytes, not fewer.
    assert found["split"]["bytes_ratio"] == pytest.approx(2.152, abs=0.001)
    assert found["split"]["weight_share"] is None
    code, _, error = said(*words[:6])
    assert code == 2
    assert "give --after-rate with --after-util, or --after-trace" in error


@pytest.mark.parametrize(
    ("text", "error"),
    [("", "2 kinds of steps on GPUs match ''; choose one of: decode"), ("x", "0 kinds of steps")],
)
def test_steps_that_are_not_one_kind(said, fixture_path, text, error):
    report = fixture_path("int4_dequant")
    words = ("--before-trace", report, "--before-steps", text)
    code, _, line = said("size", "quant", *words, "--after-rate", 1, "--after-util", 1)
    assert code == 3
    assert error in line
