"""All-reduce traffic: worked examples, growth with its interval, and what two runs do not show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tracekit.errors import InputError
from tracekit.sizing.bounds.traffic import all_reduce_bytes, growth, step_traffic
from tracekit.sizing.models import known_shape
from tracekit.sizing.student import t_quantile

LLAMA_70B = known_shape("llama-3-70b")


def test_decode_step_of_70b():
    step = step_traffic(LLAMA_70B, "decode", 16, 8)
    assert (step.message_bytes, step.sent_bytes_each, step.n_all_reduces) == (262144, 458752, 160)
    assert step.sent_bytes == 73_400_320


def test_prefill_sends_twice_what_a_reduce_scatter_does():
    step = step_traffic(LLAMA_70B, "prefill", 16 * 512, 8)
    assert step.sent_bytes_each == 234_881_024
    reduce_scatter_alone = 16 * 512 * 8192 * 2 * 7 / 8
    assert reduce_scatter_alone == 117_440_512
    assert step.sent_bytes_each == 2 * reduce_scatter_alone


def test_two_ranks_send_the_message_once():
    assert all_reduce_bytes(1000, 2) == 1000


def test_the_time_of_the_link():
    step = step_traffic(LLAMA_70B, "decode", 16, 8, link_bytes_per_s=450e9)
    assert step.link_s == pytest.approx(73_400_320 / 450e9)


def test_two_runs_show_no_growth_but_their_slope_is_linear():
    found = growth([16 * 512, 32 * 1024], [18.2, 73.6])
    assert found.exponent == pytest.approx(math.log(73.6 / 18.2) / math.log(4), rel=1e-6)
    assert round(found.exponent, 3) == 1.008
    assert found.verdict == "unknown"
    assert "at least 3 runs, there are 2" in str(found.missing[0])


def test_linear_traffic_is_called_linear():
    tokens = [512, 1024, 2048, 4096, 8192]
    assert growth(tokens, [3.7 * t for t in tokens]).verdict == "linear"
    noise = [1.01, 0.99, 1.02, 0.98, 1.0]
    found = growth(tokens, [3.7 * t * n for t, n in zip(tokens, noise, strict=True)])
    assert found.verdict == "linear"
    assert found.low < 1 < found.high


@pytest.mark.parametrize(
    ("power", "verdict"), [(1.3, "more than linear"), (0.7, "less than linear")]
)
def test_other_growth(power, verdict):
    tokens = [512, 1024, 2048, 4096]
    assert growth(tokens, [t**power for t in tokens]).verdict == verdict


def test_a_wide_interval_decides_nothing():
    found = growth([512, 1024, 2048], [1.0, 5.0, 3.0])
    assert found.verdict == "unknown"
    assert "too wide" in str(found.missing[0])


def test_one_level_has_no_slope():
    found = growth([512, 512, 512], [1.0, 1.1, 0.9])
    assert (found.exponent, found.verdict) == (None, "unknown")


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_values_must_be_positive(bad):
    with pytest.raises(InputError, match="must be positive"):
        growth([1, 2, 3], [1.0, bad, 2.0])


def test_the_interval_is_that_of_scipy():
    rng = np.random.default_rng(0)
    tokens = np.geomspace(128, 8192, 9)
    traffic = 2.0 * tokens**0.95 * np.exp(rng.normal(0, 0.05, 9))
    found = growth(list(tokens), list(traffic))
    other = stats.linregress(np.log(tokens), np.log(traffic))
    half = stats.t.ppf(0.975, 7) * other.stderr
    assert found.exponent == pytest.approx(other.slope, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((other.slope - half, other.slope + half))


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 29, 30, 200])
@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975, 0.9995])
def test_quantiles_are_those_of_scipy(probability, degrees):
    expected = stats.t.ppf(probability, degrees)
    assert t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-9)


def test_the_command(said, answered, tmp_path):
    words = ("size", "traffic", "--model", "llama-3-70b", "--tp", 8, "--batch", 16, "--gpu", "H100")
    decode = answered(*words)["predicted"][1]
    assert decode["sent_bytes"] == 73_400_320
    assert decode["link_s"] == pytest.approx(73_400_320 / 450e9)
    runs = tmp_path / "runs.csv"
    runs.write_text("batch,seq,bytes_per_s\n" + "".join(f"{b},512,{b}e9\n" for b in (4, 8, 16, 32)))
    code, out, _ = said("size", "traffic", "--runs", runs, "-o", tmp_path / "g.svg")
    assert code == 0
    assert "linear" in out
    assert (tmp_path / "g.svg").exists()


def test_what_reports_recorded(said, answered, fixture_path):
    reports = [w for r in (0, 1) for w in ("--trace", fixture_path(f"tp_decode_rank{r}"))]
    found = answered("size", "traffic", *reports)
    assert {row["sent_bytes_per_step"] for row in found["recorded"]} == {8_388_608}
    assert found["bandwidth"][0]["bus_gb_per_s"] == pytest.approx(33.44, abs=0.01)
    code, out, _ = said("size", "traffic", *reports[:2])
    assert code == 0
    assert "Give the reports of all ranks." in out


def test_rates_of_link_counters(answered, said, tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("time_s,gpu,tx_kib\n0,0,1000000\n0.1,0,5000000\n0.2,0,7\n0,1,n/a\n1,1,5\n")
    found = answered("size", "traffic", "--link-counters", path)["links"]
    assert found[0]["median_bytes_per_s"] == pytest.approx(40.96e9, rel=1e-6)
    assert (found[0]["n"], found[0]["n_lost"]) == (1, 1)
    assert (found[1]["median_bytes_per_s"], found[1]["n_lost"]) == (None, 1)
    path.write_text("time_s,x\n0,1\n")
    code, _, error = said("size", "traffic", "--link-counters", path)
    assert code == 3
    assert "no column tx_kib or rx_kib" in error


def test_nothing_to_work_out(said):
    code, _, error = said("size", "traffic", "--model", "llama-3-8b")
    assert code == 2
    assert "give --model with --tp, --runs FILE" in error
