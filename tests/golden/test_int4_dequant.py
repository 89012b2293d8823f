"""The recorded INT4 decode: what is true of it."""

from __future__ import annotations

import polars as pl
import pytest

from tests.conftest import FIXTURES
from tracekit.engine import analyze
from tracekit.model.finding import Level


def test_the_dequant_path_is_found_with_the_right_share(fixture_path):
    d = analyze([fixture_path("int4_dequant")], only=["dequant_stall"])
    frames = d.frames["dequant_stall"]
    kernels = frames["kernels"].row(0, named=True)
    assert (kernels["name"], kernels["n"]) == ("dequantize_int4_kernel", 80)
    assert kernels["total_ns"] == pytest.approx(2_557_100, rel=1e-4)
    assert kernels["p50_ns"] == pytest.approx(31_600, rel=0.01)
    periods = frames["periods"]
    assert periods.height == 80
    assert (periods["dequant_ns"] == periods["exposed_ns"]).all()
    assert periods["gap_ns"].median() == pytest.approx(1_260, rel=0.01)
    shares = dict(frames["groups"].select("group", "share_frac").iter_rows())
    assert shares["decode step=N path=dequant_then_gemm"] == pytest.approx(0.476, rel=0.01)
    assert shares["all steps"] == pytest.approx(0.344, rel=0.01)
    assert shares["decode step=N path=bf16"] == 0.0
    (finding,) = d.findings
    assert finding.level is Level.CRITICAL
    assert "47.6%" in finding.title
    assert "none of it overlaps" in finding.title
    assert finding.at_stake_ns == kernels["total_ns"]


def test_each_layer_waits_for_its_own_dequantisation(fixture_path):
    d = analyze([fixture_path("int4_dequant")], only=["dequant_stall"])
    layers = d.frames["dequant_stall"]["periods"].group_by("layer").len().sort("layer")
    assert layers.rows() == [(layer, 10) for layer in range(8)]


def test_step_spans(fixture_path):
    d = analyze([fixture_path("int4_dequant")], only=["dequant_stall"])
    groups = d.overview.step_groups
    assert groups["decode step=N path=dequant_then_gemm"] == (10, pytest.approx(524_000, rel=0.01))
    assert groups["decode step=N path=bf16"] == (10, pytest.approx(206_000, rel=0.01))
    assert d.frames["dequant_stall"]["periods"].schema["start_ns"] == pl.Int64


def test_what_its_warps_wait_for_was_counted(fixture_path):
    files = [fixture_path("int4_dequant"), FIXTURES / "ncu_int4_dequant_full.csv.xz"]
    d = analyze(files, only=["dequant_stall"])
    row = d.frames["dequant_stall"]["stalls"].row(0, named=True)
    assert (row["name"], row["n"], row["reason"]) == ("dequantize_int4_kernel", 12, "lg_throttle")
    assert row["stall_frac"] == pytest.approx(0.307, abs=0.001)
    assert row["issue_active_frac"] == pytest.approx(0.464, abs=0.001)
    assert (row["flagged"], row["reading"]) == (True, "too many narrow loads")
    assert row["occupancy_gap_pp"] == pytest.approx(8.39, abs=0.01)
    (finding,) = d.findings
    assert finding.level is Level.CRITICAL
    assert "stalls" in [e.table for e in finding.evidence]


def test_samples_every_50_us_cannot_tell_starvation(fixture_path):
    d = analyze([fixture_path("int4_dequant")], only=["dequant_stall"])
    (finding,) = d.findings
    assert any("sampled every 50.0 us; 20 us or finer" in c for c in finding.caveats)
