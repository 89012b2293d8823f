"""The matrix of runs, and load stability from request records."""

from __future__ import annotations

import csv
import math
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import InputError
from tracekit.sizing.runs.matrix import COLUMNS, About, Seen, as_table, row
from tracekit.sizing.runs.stability import confidence, percentile, stability

SEEN = Seen(n_steps=40, p50_s=0.01, p99_s=0.02, dram_frac=0.8, coverage_frac=0.9)
ABOUT = About(
    model="m",
    batch=16,
    flops_per_step=2e12,
    tokens_per_step=16,
    gpus=2,
    mean_w=400,
    power_samples=100,
)


def test_every_number_with_n_and_confidence():
    found = row("run", "H200", 0, "decode", SEEN, ABOUT).cells
    assert found["effective_tflops"].value == pytest.approx(200)
    assert found["tokens_per_s"].value == pytest.approx(1600)
    assert found["tokens_per_j"].value == pytest.approx(1600 / 400 / 2)
    assert (found["dram_frac"].value, found["dram_frac"].confidence) == (0.8, 0.9)
    assert (found["p99_s"].n, found["p99_s"].confidence) == (40, 0.4)
    assert found["effective_tflops"].confidence == 0.6
    assert set(found) == set(COLUMNS)


def test_what_is_not_known_is_unknown():
    one = row(
        "run",
        "H200",
        0,
        "decode",
        Seen(n_steps=5, p50_s=1, p99_s=1, dram_frac=None, coverage_frac=0.1),
        About(),
    )
    unknown = {name for name, cell in one.cells.items() if cell.value is None}
    assert unknown == {"effective_tflops", "dram_frac", "tokens_per_s", "mean_w", "tokens_per_j"}
    assert all(one.cells[name].confidence == 0 for name in unknown)
    assert {m.quantity for m in one.missing} == unknown
    (table,) = as_table([one])
    assert table["mean_w"] is None
    assert table["mean_w_conf"] == 0


def test_confidence_is_the_least_of_its_parts():
    assert confidence(12, 20, 0.9, 1.0) == pytest.approx(0.6)
    assert confidence(50, 20, 0.9, 1.0) == 0.9
    assert confidence(50, 20, 1.0, 0.5) == 0.5


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([50, 95, 99]))
def test_percentiles_are_numpys(values, of_100):
    found = percentile(values, of_100)
    assert found.value == pytest.approx(float(np.percentile(values, of_100)))
    assert found.insufficient_n == (len(values) < {50: 1, 95: 20, 99: 100}[of_100])


def test_a_load_that_drifts():
    time = np.arange(0, 120)
    latency = 1.0 + time / 60 * 0.010
    found = stability(time, latency)
    assert found.drift_ms_per_min == pytest.approx(10)
    assert found.mean_s == pytest.approx(latency.mean())
    assert found.cv == pytest.approx(latency.std(ddof=1) / latency.mean())
    assert found.requests_per_s == pytest.approx(120 / 119)
    assert not found.p99.insufficient_n


def test_one_outlier_is_no_drift():
    latency = np.ones(101)
    latency[-1] = 1000
    assert stability(np.arange(101), latency).drift_ms_per_min == 0


def test_many_records_are_thinned():
    time = np.arange(50_000) / 10
    found = stability(time, 2 + time * 1e-3)
    assert found.n == 50_000
    assert found.drift_ms_per_min == pytest.approx(60)


def test_failed_requests_are_left_out():
    found = stability([0, 1, 2], [1, math.nan, 3])
    assert (found.n, found.mean_s) == (2, 2)
    single = stability([5], [1])
    assert (single.cv, single.drift_ms_per_min, single.requests_per_s) == (None, None, None)


@pytest.mark.parametrize(
    ("latency", "said"), [([math.nan], "no request has"), ([-1.0], "a latency is negative")]
)
def test_records_that_cannot_be_used(latency, said):
    with pytest.raises(InputError, match=said):
        stability([0.0], latency)


@pytest.fixture
def run_folder(fixture_path, tmp_path):
    """A folder with one run, what it was, its power and its requests."""
    shutil.copy(fixture_path("int4_dequant"), tmp_path / "a.sqlite")
    (tmp_path / "about.csv").write_text(
        "run,model,dtype,batch,context,power_csv\na.sqlite,llama-3-8b,int4,4,1,power.csv\n"
    )
    (tmp_path / "power.csv").write_text("time_s,power_w\n0,400\n1,400\n2,400\n")
    lines = [f"{t},{100 + t}" for t in range(120)]
    (tmp_path / "requests.csv").write_text("\n".join(["time_s,latency_ms", *lines]) + "\n")
    return tmp_path


def test_the_command(said, answered, run_folder):
    words = (
        *("size", "matrix", run_folder / "a.sqlite", "--about", run_folder / "about.csv"),
        *("--requests", run_folder / "requests.csv"),
    )
    code, out, _ = said(*words, "-o", run_folder / "m.svg", "-o", run_folder / "m.csv")
    assert code == 0
    assert "72.8%" in out
    assert "209 us ?" in out
    assert "60.0 ms/min" in out
    with (run_folder / "m.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [r["steps"] for r in rows] == [
        "decode step=N path=bf16",
        "decode step=N path=dequant_then_gemm",
    ]
    assert rows[0]["mean_w"] == "400.0"
    first = answered(*words)["rows"][0]["cells"]
    assert first["tokens_per_s"]["value"] == pytest.approx(4 / 206.2695e-6)
    assert first["tokens_per_j"]["value"] == pytest.approx(4 / 206.2695e-6 / 400)


def test_requests_alone(said, run_folder):
    code, out, _ = said("size", "matrix", "--requests", run_folder / "requests.csv")
    assert code == 0
    assert "Load stability" in out


@pytest.mark.parametrize(
    ("about", "code", "text"),
    [
        ("run,batch\nb.sqlite,4\n", 2, "--about names no RUN 'b.sqlite'"),
        ("run,batch\na.sqlite,many\n", 3, "batch is 'many', not a positive whole number"),
        ("run,power_csv\na.sqlite,gone.csv\n", 3, "gone.csv: cannot be read"),
        ("run,model,batch,context\na.sqlite,gpt-9,4,1\n", 2, "no built-in model named 'gpt-9'"),
    ],
)
def test_what_a_run_cannot_have_been(said, run_folder, about, code, text):
    (run_folder / "about.csv").write_text(about)
    found, out, error = said(
        "size", "matrix", run_folder / "a.sqlite", "--about", run_folder / "about.csv"
    )
    assert (found, out) == (code, "")
    assert text in error


def test_nothing_to_compare(said):
    assert said("size", "matrix")[0] == 2
