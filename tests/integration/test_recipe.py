"""The recipe under nsys's framework: a stand-in of two releases, and the real one where it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tracekit.cli.shell import app as cli

ROOT = Path(tracekit.__file__).parent.parent
RECIPES = ROOT / "tracekit" / "recipe"
STANDIN = Path(__file__).parent.parent / "unit" / "recipe" / "framework"


def real_packages():
    """The folder that holds the real framework, with a skip where it cannot run."""
    if not os.environ.get("NSYS_DIR"):
        pytest.skip("NSYS_DIR names no Nsight Systems")
    where = Path(os.environ["NSYS_DIR"])
    found = sorted(where.glob("target-linux-*/python/packages/nsys_recipe"))
    if not found:
        pytest.skip(f"NSYS_DIR={where} has no recipe framework")
    probe = python(found[0].parent, "-c", "import nsys_recipe")
    if probe.returncode:
        pytest.skip(f"the recipe framework does not start: {probe.stderr.strip()[-300:]}")
    return found[0].parent


def python(packages, *words, cwd=None, **environment):
    path = os.pathsep.join([str(packages), str(ROOT)])
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(params=["2023.4", "2025.1", "real"])
def recipe(request, tmp_path):
    """Run the recipe in `tmp_path`; the framework is found, the recipe is where `found` says."""
    real = request.param == "real"
    packages = real_packages() if real else STANDIN

    def run(*words, found="path"):
        known = {"STANDIN_RELEASE": request.param}
        if found == "path":
            known["NSYS_RECIPE_PATH"] = str(RECIPES)
        else:
            assert cli.call(["recipe", "install", str(tmp_path)]) == 0
        words = ("-m", "nsys_recipe", "tracekit_diagnosis", *words)
        return python(packages, *words, cwd=tmp_path, **known)

    return run


@pytest.fixture
def report(tmp_path, fixture_path):
    """Make an empty report beside a newer export, as nsys would leave them."""

    def make(name, trace):
        made = tmp_path / f"{name}.nsys-rep"
        made.touch()
        shutil.copyfile(fixture_path(trace), made.with_suffix(".sqlite"))
        return made.name

    return make


@pytest.mark.parametrize(("mode", "found"), [("none", "path"), ("concurrent", "cwd")])
def test_one_report_is_diagnosed(recipe, report, tmp_path, mode, found):
    done = recipe("--input", report("rank0", "int4_dequant"), "--mode", mode, found=found)
    assert done.returncode == 0, done.stderr
    assert "critical: separate dequantisation kernels take 47.6%" in done.stderr + done.stdout
    out = tmp_path / "tracekit_diagnosis-1"
    answer = json.loads((out / "diagnosis.json").read_text())
    assert answer["findings"][0]["id"].startswith("dequant_stall/")
    findings = pl.read_parquet(out / "findings.parquet")
    assert findings["id"].to_list() == [f["id"] for f in answer["findings"]]
    assert findings["at_stake_ns"][0] == answer["findings"][0]["at_stake_ns"] > 0
    assert "47.6%" in (out / "diagnosis.md").read_text()
    assert (out / "diagnosis.html").read_text().startswith("<!doctype html>")
    record = json.loads((out / "tracekit_diagnosis-1.nsys-analysis").read_text())
    assert record["InputFiles"] == ["rank0.nsys-rep"]
    assert record["Outputs"] == {"diagnosis.ipynb": "Notebook"}
    assert record["EndTime"] > record["StartTime"]
    assert record["Mode"] == mode


def test_several_reports_are_the_ranks_of_one_run(recipe, report, tmp_path):
    ranks = [report(f"rank{n}", f"tp_decode_rank{n}") for n in (0, 1)]
    empty = tmp_path / "rank2.nsys-rep"
    empty.touch()
    words = ("--only", "collective_skew", "--csv", "--output", "out")
    done = recipe("--input", *ranks, empty.name, *words)
    assert done.returncode == 0, done.stderr
    assert "WARNING: rank2.nsys-rep is left out: empty file" in done.stderr
    answer = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert [r["name"] for r in answer["reports"]] == ["rank0.sqlite", "rank1.sqlite"]
    assert [a["aligned"] for a in answer["alignment"]] == [True, True]
    assert {f["id"].partition("/")[0] for f in answer["findings"]} == {"collective_skew"}
    skew = pl.read_parquet(tmp_path / "out" / "frames" / "collective_skew.skew.parquet")
    assert skew.height > 0
    assert (tmp_path / "out" / "frames" / "collective_skew.skew.csv").is_file()


def test_what_cannot_be_used_says_why_and_leaves_nothing(recipe, tmp_path):
    (tmp_path / "rank0.nsys-rep").write_bytes(b"not a report")
    done = recipe("--input", "rank0.nsys-rep")
    assert done.returncode == 1
    assert "ERROR: rank0.nsys-rep: an Nsight Systems report, not yet exported" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "tracekit_diagnosis-1").exists()


def test_a_wrong_parameter_is_told_before_anything_is_exported(recipe, tmp_path):
    (tmp_path / "rank0.nsys-rep").touch()
    done = recipe("--input", "rank0.nsys-rep", "--param", "dequant_stall.nope=1")
    assert done.returncode == 1
    assert "ERROR: dequant_stall has no parameter 'nope'" in done.stderr
    assert "xport" not in done.stderr


def test_without_tracekit_it_names_the_command_that_installs_it(tmp_path):
    (tmp_path / "tracekit.py").write_text("raise ImportError(\"No module named 'tracekit'\")\n")
    done = python(
        f"{tmp_path}{os.pathsep}{STANDIN}",
        *("-m", "nsys_recipe", "tracekit_diagnosis", "--input", "rank0.nsys-rep"),
        cwd=tmp_path,
        NSYS_RECIPE_PATH=str(RECIPES),
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith(f"run: {sys.executable} -m pip install tracekit-gpu")
