"""Places of inputs and outputs that fail: full, closed, piped, forbidden, too long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builders import Export
from tracekit.cli.shell import output
from tracekit.engine import analyze
from tracekit.errors import InputError

LONG = "x" * 5_000
LONGEST = "x" * 248 + ".sqlite"
"""As long as a name can be: 255 bytes."""


@pytest.fixture
def report(tmp_path) -> Path:
    """Return one kernel on one GPU."""
    return Export().gpu().kernel(0, 100, "nvjet_tst_64x8").write(tmp_path / "r.sqlite")


def tracekit(words, **options):
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "tracekit", *map(str, words)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [["list"], ["info"], ["doctor"], ["compare"], ["--help"], ["run", "--help"]]
)
def test_a_full_disk_under_standard_output_is_one_line(report, words):
    inputs = {"info": [report], "compare": [report, report]}.get(words[0], [])
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = tracekit([*words, *inputs], stdout=full)
    assert done.returncode == 3
    said = "tracekit: standard output cannot be written: No space left on device\n"
    assert done.stderr == said


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_a_closed_stream_is_no_error(report, closed):
    command = f"'{sys.executable}' -m tracekit analyze '{report}' {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_keeps_its_code_without_a_stream_to_say_it_on(tmp_path):
    command = f"'{sys.executable}' -m tracekit analyze '{tmp_path}/none' 2>&-"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 3


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo.sqlite")
    with pytest.raises(InputError, match="a pipe"):
        analyze([tmp_path / "fifo.sqlite"])


def test_a_pipe_among_good_reports_is_set_aside(tmp_path, report):
    os.mkfifo(tmp_path / "fifo.sqlite")
    found = analyze([report, tmp_path / "fifo.sqlite"])
    assert list(found.unreadable) == ["fifo.sqlite"]


@pytest.mark.parametrize("name", [LONG, LONGEST, f"{LONG}/r.sqlite"])
def test_a_path_that_cannot_exist_is_an_error_of_the_input(tmp_path, name):
    with pytest.raises(InputError):
        analyze([tmp_path / name])


def test_the_longest_name_that_a_file_can_have(tmp_path, report):
    longest = report.rename(tmp_path / LONGEST)
    assert analyze([longest]).overview.n_kernels == 1
    written = tmp_path / ("y" * 252 + ".md")
    output.write(written, "text")
    assert written.read_text() == "text"
    assert sorted(p.name for p in tmp_path.iterdir()) == [longest.name, written.name]


def test_an_output_that_cannot_exist_is_wrong_usage(tmp_path, report):
    done = tracekit(["analyze", report, "-o", tmp_path / LONG / "a.md"])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("tracekit: -o ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
@pytest.mark.parametrize("place", ["closed/r.sqlite", "closed", "file.sqlite"])
@pytest.mark.parametrize("beside", [False, True])
def test_forbidden_places_are_named_with_the_reason(tmp_path, report, place, beside):
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "r.sqlite").write_bytes(report.read_bytes())
    (tmp_path / "file.sqlite").write_bytes(report.read_bytes())
    (tmp_path / "file.sqlite").chmod(0)
    closed.chmod(0)
    for folder in [tmp_path, *tmp_path.parents[:2]]:
        folder.chmod(0o755)
    code = """
import sys
from pathlib import Path
import os
from tracekit.engine import analyze
from tracekit.errors import InputError
analyze([Path(sys.argv[1])])
os.setresuid(65534, 65534, 65534)
try:
    found = analyze([Path(a) for a in sys.argv[2:]])
except InputError as error:
    print(error.message)
else:
    print(*found.unreadable.values())
"""
    inputs = [tmp_path / place, *([report] if beside else [])]
    done = subprocess.run(
        [sys.executable, "-c", code, report, *inputs], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() in {"cannot be read (Permission denied)", "a folder, not an export"}
