"""Energy: counters that start anew, gaps, NaN, and bounds that are called so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import InputError
from tracekit.sizing.runs.energy import efficiency, from_counter, from_limit, from_power, total


def test_tokens_a_joule_from_a_counter():
    energy = from_counter([0, 1000], [2.4e9, 3.0e9])
    assert energy.joules == 600_000
    cost = efficiency(energy, tokens=200_000)
    assert cost.tokens_per_j == pytest.approx(1 / 3, rel=1e-6)
    assert cost.j_per_token == pytest.approx(3, rel=1e-6)
    assert (cost.source, energy.mean_w) == ("counter", 600)


@pytest.mark.parametrize(
    ("tokens", "watts", "expected"), [(215, 700, 0.307), (168, 350, 0.480), (42, 72, 0.583)]
)
def test_a_power_limit_is_labelled_a_bound(tokens, watts, expected):
    cost = efficiency(from_limit(watts, 1.0), tokens=tokens)
    assert round(cost.tokens_per_j, 3) == expected
    assert cost.source == "power limit"


def test_a_counter_that_starts_anew_splits_the_series():
    energy = from_counter([0, 10, 20, 30], [5000, 15000, 1000, 11000])
    assert (energy.joules, energy.n_resets, energy.covered_s) == (20, 1, 20)
    assert energy.pieces == ((0, 10), (20, 30))
    assert not energy.is_complete
    cost = efficiency(energy, tokens=100)
    assert cost.tokens_per_j is None
    assert "covers only 20 of 30 s" in str(cost.missing[0])
    counted = efficiency(energy, token_time_s=[0, 10, 20, 30], token_count=[0, 40, 70, 130])
    assert counted.tokens == 100
    assert counted.tokens_per_j == 5


def test_power_is_integrated_between_close_samples():
    energy = from_power([0, 1, 2, 3], [100, 200, 200, 100])
    assert (energy.joules, energy.n_gaps) == (150 + 200 + 150, 0)
    gap = from_power([0, 1, 2, 12, 13], [100] * 5)
    assert (gap.joules, gap.n_gaps, gap.covered_s) == (300, 1, 3)


def test_failed_samples_are_left_out():
    assert from_counter([0, 1, 2], [0, math.nan, 2000]).joules == 2
    assert from_power([0, 1, 2, 3, 4], [100, math.nan, 100, 100, 100]).joules == 400


@pytest.mark.parametrize("read", [from_counter, from_power])
@pytest.mark.parametrize(
    ("time", "values", "said"),
    [
        ([0], [1], "fewer than two samples"),
        ([0, 1], [1, math.nan], "fewer than two samples"),
        ([0, 0], [1, 2], "times do not rise"),
        ([0, 1], [1, -2], "a value is negative"),
    ],
)
def test_series_that_cannot_be_used(read, time, values, said):
    with pytest.raises(InputError, match=said):
        read(time, values)


def test_devices_are_added():
    found = total([from_counter([0, 10], [0, 1000]), from_counter([0, 9], [0, 3000])])
    assert (found.joules, found.covered_s, found.pieces) == (4, 9, ((0, 9),))
    split = from_counter([0, 5, 10, 15], [5, 9, 0, 1])
    assert split.pieces == ((0, 5), (10, 15))
    lost = total([split, from_counter([0, 5, 10, 15], [0, 1, 2, 3])])
    assert (lost.n_resets, lost.pieces) == (1, ())
    cost = efficiency(lost, token_time_s=[0, 15], token_count=[0, 9])
    assert cost.tokens_per_j is None
    assert "lost samples at different times" in str(cost.missing[0])


def test_without_tokens_the_cost_is_unknown():
    cost = efficiency(from_limit(100, 1))
    assert cost.tokens_per_j is None
    assert "needs the number of tokens" in str(cost.missing[0])
    idle = efficiency(from_counter([0, 1], [5, 5]), tokens=3)
    assert "no energy or no token was counted" in str(idle.missing[0])


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20), st.integers(0, 10**6))
def test_a_counter_without_falls_counts_all_of_it(steps, start):
    counter = [start]
    for step in steps:
        counter.append(counter[-1] + step)
    energy = from_counter(range(len(counter)), counter)
    assert energy.joules == pytest.approx(sum(steps) / 1000)
    assert energy.is_complete


SMI = """timestamp, index, power.draw [W]
2026/12/07 12:00:00.000, 0, 300.00 W
2026/12/07 12:00:00.000, 1, 100.00 W
2026/12/07 12:00:01.000, 0, 300.00 W
2026/12/07 12:00:01.000, 1, 100.00 W
2026/12/07 12:00:02.000, 0, [N/A]
2026/12/07 12:00:02.000, 1, 100.00 W
2026/12/07 12:00:03.000, 0, 300.00 W
2026/12/07 12:00:03.000, 1, 100.00 W
"""


def test_what_nvidia_smi_prints(answered, tmp_path):
    (tmp_path / "power.csv").write_text(SMI)
    found = answered("size", "energy", tmp_path / "power.csv", "--tokens", 2400)
    assert found["energy"]["joules"] == 1200
    assert found["efficiency"]["tokens_per_j"] == pytest.approx(2)
    assert found["devices"]["1"]["joules"] == 300


def test_a_counter_with_tokens_beside_it(said, answered, tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("time_s,energy_mj,tokens\n0,0,0\n1,500000,1000\n2,1,1500\n3,500001,2500\n")
    found = answered("size", "energy", path)
    assert found["efficiency"]["tokens"] == 2000
    assert found["efficiency"]["tokens_per_j"] == 2
    _, out, _ = said("size", "energy", path)
    assert "the counter started anew 1 time(s)" in out


def test_the_bound_says_so(said):
    code, out, _ = said("size", "energy", "--gpu", "H100", "--seconds", 1, "--tokens", 215)
    assert code == 0
    assert "a bound, not a measurement" in out
    assert "at least 0.307 tokens/J" in out


@pytest.mark.parametrize(
    ("text", "words", "code", "said_"),
    [
        ("time_s,a\n0,1\n", (), 3, "no column energy_mj"),
        ("a,power_w\n0,1\n", (), 3, "no column time_s or timestamp"),
        ("timestamp,power_w\nnoon,1\n", (), 3, "'noon' is no date and time"),
        ("time_s,power_w\n0,1\n", (), 3, "GPU 0: power samples: fewer than two samples"),
        ("", ("--gpu", "H100"), 2, "one source is needed"),
    ],
)
def test_samples_that_cannot_be_used(said, tmp_path, text, words, code, said_):
    (tmp_path / "s.csv").write_text(text)
    found, out, error = said("size", "energy", tmp_path / "s.csv", *words)
    assert (found, out) == (code, "")
    assert said_ in error


def test_a_limit_needs_a_time(said):
    code, _, error = said("size", "energy", "--gpu", "H100")
    assert code == 2
    assert "give --seconds" in error
