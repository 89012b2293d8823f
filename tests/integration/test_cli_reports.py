"""The command line on real and on hopeless inputs."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sqlite3
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from tests.conftest import FIXTURES
from tests.support.builders import Export
from tracekit.cli.shell import app as cli
from tracekit.report.document import schema

TRACES = sorted(p.name.removesuffix(".sqlite.xz") for p in FIXTURES.glob("*.sqlite.xz"))
VALIDATOR = Draft202012Validator(schema())


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", TRACES)
def test_every_bundled_trace_gives_valid_json_twice_the_same_and_stays_as_it_was(
    fixture_path, capsys, name
):
    path = fixture_path(name)
    before, beside = digest(path), sorted(path.parent.iterdir())
    outputs = []
    for _ in range(2):
        assert cli.call(["analyze", str(path), "--format", "json"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    VALIDATOR.validate(json.loads(outputs[0]))
    assert (digest(path), sorted(path.parent.iterdir())) == (before, beside)


@pytest.mark.parametrize("name", TRACES)
def test_every_bundled_trace_has_its_head_on_the_first_screen(fixture_path, capsys, name):
    assert cli.call(["analyze", str(fixture_path(name))]) == 0
    screen = "\n".join(capsys.readouterr().out.splitlines()[:24])
    if name.startswith("nvtx_only"):
        assert "No accelerator activity recorded" in screen
        assert "busy" not in screen
    else:
        for word in ("busy", "idle", "opaque", "Data"):
            assert word in screen


def test_int4_dequant_is_critical_with_its_numbers(fixture_path, capsys):
    path = str(fixture_path("int4_dequant"))
    assert cli.call(["analyze", path, "--fail-on", "critical"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "1. CRITICAL" in out
    assert "At stake 2.56 ms, 34.4%" in out
    assert "n dequant kernels 80" in out


def test_hf_dynamic_cache_says_first_that_the_gpu_idles(fixture_path, capsys):
    assert cli.call(["analyze", str(fixture_path("hf_dynamic_cache"))]) == 0
    assert "busy 6.97%" in capsys.readouterr().out.splitlines()[0]


def test_info_shows_what_can_be_judged(fixture_path, capsys):
    assert cli.call(["info", str(fixture_path("int4_dequant"))]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "CUPTI_ACTIVITY_KIND_KERNEL 240" in out
    assert "NVIDIA H200" in out
    assert "yes dequant_stall" in out
    assert "? kv_fragmentation: needs markers that say where KV blocks lie" in out
    assert "yes kv_fragmentation" not in out
    assert "yes l2_miss" not in out
    assert "one interned string " in out
    assert cli.call(["info", str(fixture_path("nvtx_only_2022_4"))]) == 0
    out = capsys.readouterr().out
    assert "no accelerator activity recorded" in out
    assert "nsys profile -t cuda" in out


def test_a_mistyped_path_creates_nothing(tmp_path, capsys):
    assert cli.call(["analyze", str(tmp_path / "nope.sqlite")]) == 3
    assert "nope.sqlite" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def foreign(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE cookies (a)")
    db.close()


HOPELESS = {
    "empty.sqlite": lambda p: p.write_bytes(b""),
    "text.sqlite": lambda p: p.write_text("hello"),
    "foreign.sqlite": foreign,
    "folder": lambda p: p.mkdir(),
    "r.nsys-rep": lambda p: p.write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 500),
    "r.qdstrm": lambda p: p.write_bytes(b"QDSTRM" + b"\0" * 500),
    "r.ncu-rep": lambda p: p.write_bytes(b"NVR\0" + b"\0" * 500),
    "x.sqlite.gz": lambda p: p.write_bytes(gzip.compress(b"not a database")),
}


@pytest.mark.parametrize("name", HOPELESS)
@pytest.mark.parametrize("command", ["analyze", "info"])
def test_hopeless_input_is_one_line_and_3(tmp_path, capsys, name, command):
    path = tmp_path / name
    HOPELESS[name](path)
    assert cli.call([command, str(path)]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert name in err
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_window_outside_the_capture_says_what_it_covers(tmp_path, capsys):
    export = Export().gpu()
    export.kernel(155_000_000_000, 156_000_000_000)
    path = export.write(tmp_path / "r.sqlite")
    assert cli.call(["analyze", str(path), "--window", "0:10s"]) == 3
    assert "capture covers 155.000000-156.000000 s" in capsys.readouterr().err


def test_some_inputs_unreadable_is_4_and_says_which(tmp_path, capsys):
    good = Export().gpu().kernel(0, 1_000).write(tmp_path / "good.sqlite")
    bad = tmp_path / "bad.sqlite"
    bad.write_text("hello")
    assert cli.call(["analyze", str(good), str(bad)]) == 4
    assert "bad.sqlite left out" in " ".join(capsys.readouterr().out.split())


def test_lost_events_come_before_findings_and_fail_a_strict_run(tmp_path, capsys):
    export = Export().gpu().kernel(0, 1_000, "ampere_sgemm_128x64")
    export.add("DIAGNOSTIC_EVENT", timestamp=1, severity=3, text="CUDA events were lost")
    path = str(export.write(tmp_path / "r.sqlite"))
    assert cli.call(["analyze", path, "--strict"]) == 1
    out = capsys.readouterr().out
    assert "Data ERROR" in out
    assert cli.call(["analyze", path]) == 0


def test_any_path_opens(tmp_path):
    folder = tmp_path / "dir with space"
    folder.mkdir()
    path = Export().gpu().kernel(0, 1_000).write(folder / "ré%20p?#.sqlite")
    assert cli.call(["analyze", str(path), "-q"]) == 0


def test_the_module_runs_as_a_program(tmp_path):
    path = Export().gpu().kernel(0, 1_000).write(tmp_path / "r.sqlite")
    words = [sys.executable, "-m", "tracekit", "analyze", str(path), "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["overview"]["n_kernels"] == 1


@pytest.mark.parametrize(
    ("window", "said"),
    [("15ms:16ms", "0.015000 s to 0.016000 s of the"), ("15ms:", "0.015000 s to the end of the")],
)
def test_an_answer_says_to_which_window_it_is_confined(tmp_path, fixture_path, window, said):
    report = fixture_path("int4_dequant")
    outputs = [tmp_path / name for name in ("a.txt", "a.md", "a.html")]
    words = ["analyze", str(report), "--window", window, "-q"]
    for path in outputs:
        words += ["-o", str(path)]
    assert cli.call(words) == 0
    for path in outputs:
        assert f"only what touches {said}" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("has_messages", "said"),
    [
        (True, "no lost, dropped or invalid record found"),
        (False, "no invalid record found; whether the profiler lost any is not in this export"),
    ],
)
def test_no_record_is_called_lost_or_not_without_the_profilers_messages(
    tmp_path, capsys, has_messages, said
):
    e = Export().range(0, 100, "load").kernel(0, 100, "nvjet_tst_64x8")
    if has_messages:
        e.add("DIAGNOSTIC_EVENT", timestamp=0, severity=1, text="Profiling has started.")
    report = e.write(tmp_path / "r.sqlite")
    assert cli.call(["analyze", str(report), "-o", str(tmp_path / "r.md")]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in (tmp_path / "r.md").read_text(encoding="utf-8")


ENDED = """
import os, signal, sys
from tracekit import engine
from tracekit.cli import main
engine.diagnose = lambda *_, **__: os.kill(os.getpid(), signal.{name})
sys.argv = ["tracekit", "analyze", {report!r}, "-o", {output!r}]
main()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_leaves_no_unpacked_report_and_no_output(tmp_path, name, code):
    scratch, output = tmp_path / "scratch", tmp_path / "a.json"
    scratch.mkdir()
    report = str(FIXTURES / "int4_dequant.sqlite.xz")
    script = ENDED.format(name=name, report=report, output=str(output))
    environment = {**os.environ, "TMPDIR": str(scratch)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    assert (ended.returncode, list(scratch.iterdir()), output.exists()) == (code, [], False)
    assert b"Traceback" not in ended.stderr
