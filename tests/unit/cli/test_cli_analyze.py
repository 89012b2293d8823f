from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.support.diagnoses import CRITICAL, DEQUANT, FINE, NO_GPU, UNKNOWN
from tracekit import engine
from tracekit.cli.shell import app as cli
from tracekit.cli.shell import output
from tracekit.errors import InputError, NotAReportError, UsageError
from tracekit.model.diagnosis import Quality
from tracekit.model.finding import Level
from tracekit.opening import OpenOptions

WARNING = replace(CRITICAL, level=Level.WARN)
LOST = Quality(Level.CRITICAL, "the profiler lost CUDA events", 3)


@pytest.fixture
def answer(monkeypatch):
    """Make the engine answer with a given diagnosis, and keep what it was asked."""
    asked = {}

    def use(diagnosis):
        def analyze(paths, **options):
            asked.update(options, paths=paths)
            if isinstance(diagnosis, BaseException):
                raise diagnosis
            return diagnosis

        monkeypatch.setattr(engine, "analyze", analyze)
        return asked

    return use


@pytest.mark.parametrize(
    ("diagnosis", "arguments", "code"),
    [
        (DEQUANT, [], 0),
        (DEQUANT, ["--fail-on", "critical"], 1),
        (DEQUANT, ["--fail-on", "warn"], 1),
        (replace(DEQUANT, findings=(WARNING,)), ["--fail-on", "critical"], 0),
        (replace(DEQUANT, findings=(WARNING,)), ["--fail-on", "warn"], 1),
        (replace(DEQUANT, findings=(FINE,)), ["--fail-on", "warn"], 0),
        (NO_GPU, [], 0),
        (NO_GPU, ["--strict"], 1),
        (replace(DEQUANT, findings=(FINE, UNKNOWN)), ["--strict"], 0),
        (replace(DEQUANT, quality=(LOST,)), ["--strict"], 1),
        (replace(DEQUANT, quality=(LOST,)), [], 0),
        (replace(DEQUANT, unreadable={"b": "empty"}), [], 4),
        (replace(DEQUANT, unreadable={"b": "empty"}), ["--fail-on", "warn"], 1),
    ],
)
def test_exit_codes(answer, diagnosis, arguments, code):
    answer(diagnosis)
    assert cli.call(["analyze", "r.sqlite", *arguments]) == code


def test_options_reach_the_engine(answer):
    asked = answer(DEQUANT)
    words = [
        "a",
        "b",
        "--only",
        "x",
        "-k",
        "y",
        "--param",
        "x.y=1",
        "--window",
        "1s:2s",
        "--reader",
        "sqlite",
        "--salvage",
    ]
    assert cli.call(["analyze", *words, "--peak-gbps", "4800"]) == 0
    assert [str(p) for p in asked["paths"]] == ["a", "b"]
    assert asked["only"] == ("x", "y")
    assert asked["params"] == {"x.y": "1", "hardware.peak_gbps": "4800.0"}
    window_ns = (1_000_000_000, 2_000_000_000)
    assert asked["options"] == OpenOptions(window_ns=window_ns, reader="sqlite", salvage=True)
    assert asked["progress"] is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotAReportError("is a text file", hint="export it with \x1b[31mnsys"), 3),
        (UsageError("no analysis named x"), 2),
    ],
)
def test_a_deliberate_error_is_one_safe_line(answer, capsys, error, code):
    answer(error)
    assert cli.call(["analyze", "r.sqlite"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tracekit: ")
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_a_bug_keeps_its_traceback(answer):
    answer(ZeroDivisionError("bug"))
    with pytest.raises(ZeroDivisionError):
        cli.call(["analyze", "r.sqlite"])


def test_an_interrupt_is_130(answer):
    answer(KeyboardInterrupt())
    assert cli.call(["analyze", "r.sqlite"]) == 130


def test_suffixes_choose_formats_and_the_text_is_still_printed(answer, capsys, tmp_path):
    answer(DEQUANT)
    text, document = tmp_path / "a.txt", tmp_path / "b.JSON"
    assert cli.call(["analyze", "r.sqlite", "-o", str(text), "-o", str(document)]) == 0
    assert text.read_text() == capsys.readouterr().out
    assert json.loads(document.read_text())["worst"] == "critical"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "b.JSON"]


def test_json_is_printed_whole_and_nothing_else(answer, capsys):
    answer(DEQUANT)
    assert cli.call(["analyze", "r.sqlite", "--format", "json", "--top", "1"]) == 0
    frame = json.loads(capsys.readouterr().out)["frames"]["dequant_stall"]["steps"]
    assert (frame["rows"], frame["rows_shown"]) == (7, 1)


def test_quiet_prints_nothing(answer, capsys):
    answer(DEQUANT)
    assert cli.call(["analyze", "r.sqlite", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_output_never_replaces_an_input(answer, tmp_path):
    asked = answer(DEQUANT)
    report = tmp_path / "r.txt"
    report.write_text("precious")
    link = tmp_path / "link.txt"
    link.symlink_to(report)
    for out in (report, link, tmp_path / ".." / tmp_path.name / "r.txt"):
        assert cli.call(["analyze", str(report), "-o", str(out)]) == 2
    assert report.read_text() == "precious"
    assert asked == {}


@pytest.mark.parametrize(
    "names", [["x.yaml"], ["x"], ["no/x.txt"], ["folder.txt"], ["a.txt", "a.txt"]]
)
def test_impossible_outputs_are_refused_before_any_work(answer, tmp_path, monkeypatch, names):
    asked = answer(DEQUANT)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.txt").mkdir()
    assert cli.call(["analyze", "r.sqlite", *(w for n in names for w in ("-o", n))]) == 2
    assert asked == {}
    assert [p.name for p in tmp_path.iterdir()] == ["folder.txt"]


def test_a_file_appears_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o600)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(output.os, "fdopen", full)
        with pytest.raises(InputError, match=r"a\.txt: cannot be written: No space left"):
            output.write(target, "new")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    output.write(target, "new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_device_is_written_to_not_replaced():
    output.write(output.Path("/dev/null"), "x")
    assert not output.Path("/dev/null").is_file()


def test_a_reader_that_goes_away_is_no_error():
    code = "from tracekit.cli.shell.output import print_text; print_text('x\\n' * 200_000)"
    command = f'{sys.executable} -c "{code}" | head -1; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("x\n0\n", "")


def test_a_narrow_encoding_is_no_error():
    code = "from tracekit.cli.shell.output import print_text; print_text('\\u5c42')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout == "\\u5c42"


@pytest.mark.parametrize(("no_color", "colored"), [("", True), ("1", False)])
def test_colour_on_a_terminal_unless_no_color(monkeypatch, no_color, colored):
    ours, theirs = pty.openpty()
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "77")
    with os.fdopen(theirs, "w") as stream, os.fdopen(ours):
        assert output.terminal_options(stream) == {"width": 77, "color": colored}


def test_piped_text_is_plain_and_has_one_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert output.terminal_options(io.StringIO()) == {"width": 100, "color": False}
