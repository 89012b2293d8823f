"""Analyses of other distributions: installed, listed, run, drawn, and kept from doing harm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.support.builders import Export
from tracekit import analyses
from tracekit.cli.shell import app as cli
from tracekit.report.document import schema

EXAMPLE = Path(__file__).parent.parent / "plugin_example"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder into which pip installed the example, without network."""
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    target = tmp_path_factory.mktemp("site")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target")
    command = [sys.executable, "-m", "pip", "install", *options, str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def tracekit(folder, *words):
    """Run tracekit with one more folder of packages; return what it printed."""
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tracekit", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_analysis_is_like_tracekits_own(installed, fixture_path, tmp_path):
    report, picture = fixture_path("allreduce_2gpu"), tmp_path / "copies.svg"
    listed = tracekit(installed, "list", "copy_share")
    assert "How much of each GPU's time do copies take?" in listed
    assert "copy_share.warn_frac" in listed
    outputs = [tmp_path / "run.json", tmp_path / "run.html"]
    options = ("--only", "copy_share", "--param", "copy_share.warn_frac=0.001")
    tracekit(installed, "analyze", report, "-q", *options, "-o", outputs[0], "-o", outputs[1])
    answer = json.loads(outputs[0].read_text())
    Draft202012Validator(schema()).validate(answer)
    columns = answer["frames"]["copy_share"]["copies"]["columns"]
    assert set(columns["kind"]) >= {"DtoD"}
    assert [f["level"] for f in answer["findings"]] == ["warn", "warn"]
    page = outputs[1].read_text()
    assert '<svg class="chart" role="img"' in page
    assert ">GPU 0, DtoD</text>" in page
    tracekit(installed, "plot", report, "copy_share", "-o", picture)
    assert ">GPU 0, DtoD</text>" in picture.read_text()


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Return a function that installs a distribution of one module by hand."""

    def install(entry, code, name="other"):
        about = tmp_path / "site" / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{analyses.GROUP}]\n{entry}\n")
        (tmp_path / "site" / f"{name}_module.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path / "site")
        analyses._added.cache_clear()

    yield install
    monkeypatch.undo()
    analyses._added.cache_clear()
    for module in [m for m in sys.modules if m.endswith("_module")]:
        del sys.modules[module]


@pytest.fixture
def report(tmp_path):
    return Export().gpu().kernel(0, 1_000, "gemm").write(tmp_path / "run.sqlite")


GOOD = """
from dataclasses import replace
from tracekit.analyses.dequant_stall import ANALYSIS as OTHER
ANALYSIS = replace(OTHER, name="extra", {more})
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_module", "failed: ModuleNotFoundError: No module named"),
        ("ANALYSIS = 1", "TypeError: what is named extra is no Analysis but of type int"),
        (GOOD.format(more="params=OTHER.params").replace("extra", "else"), "its analysis else"),
        (GOOD.format(more="requires=('nothing',)"), "tables that do not exist: nothing"),
        (GOOD.format(more="params=list.append"), "TypeError: "),
        (GOOD.format(more="compute=lambda *_: 1 / 0"), "failed: ZeroDivisionError: division"),
        (GOOD.format(more="compute=lambda *_: {}"), "failed: KeyError: 'periods'"),
        (GOOD.format(more="chart=lambda _: 1 / 0"), "failed: ZeroDivisionError: division"),
    ],
    ids=["import", "no analysis", "name", "tables", "params", "raises", "frames", "chart"],
)
def test_a_broken_analysis_is_one_line_and_the_others_run(
    plugin, report, tmp_path, capsys, code, words
):
    plugin("extra = other_module:ANALYSIS", code)
    out = tmp_path / "run.json"
    assert cli.call(["analyze", "-q", str(report), "-o", str(out), "-o", f"{out}.html"]) == 0
    findings = json.loads(out.read_text())["findings"]
    [fault] = [f for f in findings if f["id"] == "extra/failed"]
    assert fault["level"] == "unknown"
    assert fault["title"].startswith("not computed: other 1.0 ")
    assert words in fault["title"]
    assert {f["id"].partition("/")[0] for f in findings} == {*analyses.names()}
    assert cli.call(["plot", str(report), "extra", "-o", str(tmp_path / "x.svg")]) == 3
    assert words in capsys.readouterr().err
    assert cli.call(["list"]) == 0


def test_what_an_error_says_is_left_out_of_a_redacted_answer(plugin, report, tmp_path, capsys):
    plugin("extra = other_module:ANALYSIS", "open('/home/somebody/secret')")
    options = ["--only", "extra", "--format", "json"]
    assert cli.call(["analyze", str(report), "--redact", *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    [finding] = answer["findings"]
    assert finding["title"] == (
        "not computed: other 1.0 failed: FileNotFoundError (other_module.py:1)"
    )
    assert "somebody" not in json.dumps(answer)
    assert cli.call(["list", "extra"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No such file or directory: '/home/somebody/secret'" in said


def test_an_analysis_that_does_not_exist_twice_is_refused(plugin, report, capsys):
    plugin("l2_miss = other_module:ANALYSIS", GOOD)
    assert cli.call(["analyze", str(report)]) == 2
    said = capsys.readouterr().err
    assert "other 1.0 and tracekit itself both bring an analysis named l2_miss" in said
    assert said.count("\n") == 1


def test_two_distributions_cannot_bring_one_name(plugin, report, capsys):
    plugin("extra = other_module:ANALYSIS", GOOD)
    plugin("extra = more_module:ANALYSIS", GOOD, name="more")
    assert cli.call(["list"]) == 2
    said = capsys.readouterr().err
    assert "both bring an analysis named extra; uninstall one of them" in said


def test_help_looks_for_no_distribution():
    code = (
        "import sys; from tracekit.cli.shell import app; app.call(['--help']);"
        "assert 'importlib.metadata' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
