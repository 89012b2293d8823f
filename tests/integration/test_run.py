"""``tracekit run`` from the outside: with an nsys made of a script, with a real one, with none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.recording.conftest import TWO_GPUS, make_nsys

__all__ = ["make_nsys"]

MakeNsys = Callable[..., Path]
MARKS = """
import sys
import tracekit_injectors as tk
print("channel", tk.channel())
for number in range(5):
    with tk.step(number, phase="decode", n_seq=1, n_tok=1):
        for index in range(3):
            with tk.layer(index):
                tk.kv_realloc(layer=index, kind="k", addr=4096 * (number + 1), bytes=64, seq=0)
    tk.moe_route(layer=0, step=number, k=2, counts=[1, 2, 3])
tk.kv_pool(layer=0, kind="kv", addr=1 << 40, bytes=4096, stride=64, blocks=64)
tk.kv_table(seq=0, first=0, op="alloc", ids=[3, 4])
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
WANTED = {"STEP": 5, "LAYER": 15, "KV_REALLOC": 15, "MOE_ROUTE": 5, "KV_POOL": 1, "KV_TABLE": 1}
REAL = shutil.which("nsys")


def run(*words: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracekit", "run", *map(str, words)],
        cwd=folder,
        env={**os.environ, **variables},
        text=True,
        capture_output=True,
        timeout=300,
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a blank in its name."""
    folder = tmp_path / "my work"
    folder.mkdir()
    (folder / "marks.py").write_text(MARKS)
    return folder


def sidecar(path: Path) -> list[dict[str, object]]:
    head, *records = [json.loads(line) for line in path.read_text().splitlines()]
    assert head["tracekit_sidecar"] == 1
    return records


def counts(texts: list[str]) -> dict[str, int]:
    events = [text.partition(" ")[0] for text in texts]
    return {event: events.count(event) for event in WANTED}


def test_without_nsys_the_markers_are_kept_in_a_file(work: Path) -> None:
    done = run("--nsys", "never", "-o", "out", "--", sys.executable, "marks.py", "5", folder=work)
    assert done.returncode == 5
    assert done.stdout == "channel sidecar\n"
    assert counts([str(r["text"]) for r in sidecar(work / "out.markers.jsonl")]) == WANTED
    assert "next: tracekit analyze out.markers.jsonl" in done.stderr


def test_a_missing_nsys_is_said_with_what_to_install(work: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from tracekit.recording import nsys\n"
        "nsys.candidates = lambda: iter(())\n"
        "from tracekit.cli import main; sys.argv = ['tracekit', *sys.argv[1:]]; main()"
    )
    words = [sys.executable, "-c", code, "run", "-o", "out", "--", "true"]
    done = subprocess.run(words, cwd=work, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0
    assert "nsys is not on this machine" in done.stderr
    assert "apt-get install nsight-systems" in done.stderr
    words[4:4] = ["--nsys", "always"]
    done = subprocess.run(words, cwd=work, text=True, capture_output=True, timeout=60)
    assert done.returncode == 3
    assert "nsys is not on this machine; install" in done.stderr


def test_what_nsys_is_asked_for(work: Path, make_nsys: MakeNsys) -> None:
    program = make_nsys(devices=TWO_GPUS)
    words = ["--nsys", program, "--nsys-option=--delay=3", "-o", "my out"]
    done = run(*words, "--", sys.executable, "-c", "print('hello')", folder=work)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    called = (program.parent / "profile-called").read_text().splitlines()
    assert called == [
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "--cuda-memory-usage=true",
        "--force-overwrite=true",
        "--gpu-metrics-devices=all",
        "--gpu-metrics-frequency=20000",
        "--delay=3",
        f"--output={work / 'my out'}",
    ]
    assert "wrote 'my out.nsys-rep', 'my out.sqlite'" in done.stderr
    assert "a second run with --metrics l2" in done.stderr


@pytest.mark.parametrize("code", [0, 1, 42])
def test_exit_codes_pass_through_nsys(work: Path, make_nsys: MakeNsys, code: int) -> None:
    words = ["--nsys", make_nsys(), "-o", "out", "--", "sh", "-c", f"exit {code}"]
    assert run(*words, folder=work).returncode == code


def test_arguments_and_streams_arrive_unchanged(work: Path, make_nsys: MakeNsys) -> None:
    code = "import sys; print(sys.argv[1:]); print('err', file=sys.stderr); print(sys.stdin.read())"
    odd = ["a b", "$HOME", "'q'", '"', "*", "", "--", "-x", "é"]
    words = ["--nsys", str(make_nsys(before="echo noise")), "-o", "out", "--"]
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", "run", *words, sys.executable, "-c", code, *odd],
        cwd=work,
        text=True,
        input="typed",
        capture_output=True,
        timeout=60,
    )
    assert done.stdout == f"{odd}\ntyped\n"
    assert "err\n" in done.stderr
    assert "noise" in done.stderr


def test_an_nsys_that_fails_does_not_cost_the_run(work: Path, make_nsys: MakeNsys) -> None:
    program = make_nsys(before="echo no agent >&2; exit 9")
    found = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    words = ["-o", "out", "--", sys.executable, "marks.py", "3"]
    done = run(*words, folder=work, **found)
    assert done.returncode == 3
    assert "did not start the program (exit 9); it runs without being recorded" in done.stderr
    assert done.stdout == "channel sidecar\n"
    done = run("--nsys", program, "-f", *words, folder=work)
    assert done.returncode == 3
    assert "tracekit doctor" in done.stderr
    assert done.stdout == ""


def test_a_stream_is_imported(work: Path, make_nsys: MakeNsys) -> None:
    importer = 'cp "${1#--input-file=}" "${2#--output-file=}"'
    program = make_nsys(suffix="qdstrm", importer=importer)
    done = run("--nsys", program, "-o", "out", "--", "true", folder=work)
    assert "wrote out.nsys-rep, out.sqlite" in done.stderr
    assert not (work / "out.qdstrm").exists()


def test_earlier_outputs_are_not_overwritten_unless_told(work: Path, make_nsys: MakeNsys) -> None:
    words = ["--nsys", make_nsys(), "-o", "out.sqlite", "--", "true"]
    assert run(*words, folder=work).returncode == 0
    done = run(*words, folder=work)
    assert done.returncode == 2
    assert "out.nsys-rep is there already; --force overwrites it" in done.stderr
    assert run("--force", *words, folder=work).returncode == 0


def test_without_a_name_the_outputs_are_numbered(work: Path, make_nsys: MakeNsys) -> None:
    words = ["--nsys", make_nsys(), "--", "true"]
    for _ in range(2):
        assert run(*words, folder=work).returncode == 0
    assert (work / "tracekit-run.sqlite").exists()
    assert (work / "tracekit-run-2.sqlite").exists()


def test_a_rank_writes_its_own_report_and_samples_its_own_gpu(
    work: Path, make_nsys: MakeNsys
) -> None:
    program = make_nsys(devices=TWO_GPUS)
    words = ["--nsys", program, "-o", "out", "--", "true"]
    assert run(*words, folder=work, RANK="5", LOCAL_RANK="1").returncode == 0
    assert (work / "out.rank5.sqlite").exists()
    assert "--gpu-metrics-devices=1" in (program.parent / "profile-called").read_text()


def test_one_report_a_rank(work: Path, make_nsys: MakeNsys) -> None:
    launcher = work / "torchrun"
    launcher.write_text(
        f"#!{sys.executable}\n"
        "import os, subprocess, sys\n"
        "for rank in range(2):\n"
        "    words = [os.environ['PYTHON_EXEC'], '-u', *sys.argv[1:]]\n"
        "    subprocess.run(words, env={**os.environ, 'RANK': str(rank)}, check=True)\n"
    )
    launcher.chmod(0o755)
    words = ["--per-rank", "--nsys", make_nsys(), "--metrics", "none", "-o", "out", "--"]
    done = run(*words, launcher, "-c", "import os; print(os.environ['RANK'])", folder=work)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "1"]
    assert sorted(path.name for path in work.glob("*.sqlite")) == [
        "out.rank0.sqlite",
        "out.rank1.sqlite",
    ]
    done = run("--per-rank", "--nsys", "never", "-o", "none", "--", "true", folder=work)
    assert "no rank recorded itself" in done.stderr


def test_hooks_can_be_left_out(work: Path) -> None:
    code = "import sys; print('tracekit_injectors' in sys.modules)"
    words = ["--nsys", "never", "-o", "out"]
    assert run(*words, "--", sys.executable, "-c", code, folder=work).stdout == "True\n"
    words.append("--no-hooks")
    assert run(*words, "--", sys.executable, "-c", code, folder=work).stdout == "False\n"


def test_only_the_programs_own_tree_is_touched(work: Path, monkeypatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    code = (
        "import os; e = os.environ;"
        " print(sorted(k for k in e if 'TRACEKIT' in k), 'LD_PRELOAD' in e)"
    )
    words = ["--nsys", "never", "-o", "out", "--", "/bin/sh", "-c"]
    clean = f'env -i "{sys.executable}" -S -c "{code}"'
    assert run(*words, clean, folder=work).stdout == "[] False\n"
    here = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert here.stdout == "[] False\n"


def test_what_does_not_exist_and_what_is_wrong(work: Path) -> None:
    done = run("--", "/no/such/program", folder=work)
    assert (done.returncode, done.stderr) == (
        127,
        "tracekit: /no/such/program: command not found\n",
    )
    assert run(folder=work).returncode == 2
    assert run("-o", "no/folder/x", "--", "true", folder=work).returncode == 2
    assert run("-o", "100%", "--", "true", folder=work).returncode == 2
    assert run("--nsys", "/no/nsys", "--", "true", folder=work).returncode == 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_signals_reach_the_program_behind_nsys(work: Path, make_nsys: MakeNsys, name: str) -> None:
    ready = work / "ready"
    code = (
        "import signal, sys\n"
        # Held back until it is waited for: none is lost between two instructions.
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.{name}}})\n"
        f"open({str(ready)!r}, 'w').close()\n"
        f"print('got', signal.Signals(signal.sigwait({{signal.{name}}})).name)\n"
        "sys.exit(33)\n"
    )
    words = ["--nsys", str(make_nsys()), "-o", "out", "--", sys.executable, "-c", code]
    outer = subprocess.Popen(
        [sys.executable, "-m", "tracekit", "run", *words],
        cwd=work,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    while not ready.exists():
        assert outer.poll() is None
    outer.send_signal(getattr(signal, name))
    said, _ = outer.communicate(timeout=60)
    assert (outer.returncode, said) == (33, f"got {name}\n")
    assert (work / "out.sqlite").exists()


@pytest.mark.skipif(REAL is None, reason="nsys is not installed here")
class TestRealNsys:
    """Slower, and the proof that the rest is not a play of stand-ins."""

    def recorded(self, folder: Path, *words: str) -> sqlite3.Connection:
        done = run("--nsys", "always", "--metrics", "none", "-o", "real run", *words, folder=folder)
        assert done.returncode == 4, done.stderr
        assert done.stdout == "channel nvtx\n"
        assert (folder / "real run.nsys-rep").exists()
        assert not (folder / "real run.qdstrm").exists()
        return sqlite3.connect(folder / "real run.sqlite")

    def test_every_marker_arrives_as_text_in_its_domain(self, work: Path) -> None:
        with closing(self.recorded(work, "--", sys.executable, "marks.py", "4")) as export:
            rows = export.execute(
                "SELECT text, domainId, category FROM NVTX_EVENTS WHERE eventType IN (34, 59)"
            ).fetchall()
            domains = export.execute("SELECT text FROM NVTX_EVENTS WHERE eventType = 75").fetchall()
        marks = [row for row in rows if row[0].partition(" ")[0] in WANTED]
        assert counts([text for text, _, _ in marks]) == WANTED
        assert {domain for _, domain, _ in marks} == {1}
        assert {(t.partition(" ")[0], c) for t, _, c in marks} == {
            *(("STEP", 4), ("LAYER", 4), ("KV_REALLOC", 1), ("MOE_ROUTE", 5)),
            *(("KV_POOL", 1), ("KV_TABLE", 1)),
        }
        assert domains == [("tracekit",)]

    def test_nested_shells_and_children_are_reached(self, work: Path) -> None:
        words = ["--", "bash", "-c", '"$@"; exit $?', "bash", "sh", "-c", '"$@"; exit $?', "sh"]
        with closing(self.recorded(work, *words, sys.executable, "marks.py", "4")) as export:
            (count,) = export.execute(
                "SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE 'KV_REALLOC %'"
            ).fetchone()
        assert count == WANTED["KV_REALLOC"]

    def test_the_programs_output_is_not_kept_in_the_report(self, work: Path) -> None:
        (work / "marks.py").write_text("print('SECRET_MARK_1')\n")
        done = run("--metrics", "none", "-o", "r", "--", sys.executable, "marks.py", folder=work)
        assert done.stdout == "SECRET_MARK_1\n"
        assert b"SECRET_MARK_1" not in (work / "r.sqlite").read_bytes()
