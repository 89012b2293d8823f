from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path

import pytest
from tracekit_injectors.grammar import row
from tracekit_injectors.sidecar import FORMAT, Sidecar


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def free(number: int) -> tuple[int | str | None, ...]:
    return row("KV_FREE", {"layer": number, "addr": 4096})


def test_format(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path / "run.jsonl")
    sidecar.append("KV_FREE", free(3), 2000)
    sidecar.append("LAYER", (5,), 1000, 3000)
    sidecar.drain()
    head, mark, interval = lines(tmp_path / f"run.{os.getpid()}.jsonl")
    assert (head["tracekit_sidecar"], head["grammar"], head["clock"]) == (
        FORMAT,
        "tk1",
        "CLOCK_MONOTONIC",
    )
    assert head["pid"] == os.getpid()
    assert isinstance(head["mono_ns"], int)
    assert isinstance(head["utc_ns"], int)
    assert mark["text"] == "KV_FREE layer=3 addr=0x1000"
    assert (mark["t_mono_ns"], mark["pid"]) == (2000, os.getpid())
    assert "end_mono_ns" not in mark
    assert (interval["t_mono_ns"], interval["end_mono_ns"]) == (1000, 3000)


def test_many_records_keep_their_order(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path / "run.jsonl")
    for number in range(1000):
        sidecar.append("KV_FREE", free(number), number)
    sidecar.drain()
    found = lines(next(tmp_path.glob("*.jsonl")))[1:]
    assert [r["t_mono_ns"] for r in found] == list(range(1000))


def test_nothing_told_leaves_no_file(tmp_path: Path) -> None:
    Sidecar(tmp_path / "run.jsonl").drain()
    assert list(tmp_path.iterdir()) == []


def test_a_second_sidecar_of_one_process_takes_another_name(tmp_path: Path) -> None:
    for number in range(2):
        sidecar = Sidecar(tmp_path / "run.jsonl")
        sidecar.append("KV_FREE", free(number), number)
        sidecar.drain()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"run.{os.getpid()}-1.jsonl", f"run.{os.getpid()}.jsonl"]


def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sidecar = Sidecar(tmp_path / "missing" / "run.jsonl")
    for number in range(3):
        sidecar.append("KV_FREE", free(number), number)
        sidecar.drain()
    assert capsys.readouterr().err.count("no markers are kept") == 1


def test_foreign_words_cannot_break_a_line(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path / "run.jsonl")
    sidecar.append("KV_TABLE", (1, 0, 'a"b\\c', "1,2", None, None), 1)
    sidecar.drain()
    assert (
        lines(next(tmp_path.glob("*.jsonl")))[1]["text"]
        == "KV_TABLE seq=1 first=0 op=a_b_c ids=1,2"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_writes_its_own_file(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path / "run.jsonl")
    sidecar.append("KV_FREE", free(0), 1)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=sidecar.append, args=("KV_FREE", free(1), 2))
    child.start()
    child.join(30)
    sidecar.drain()
    assert child.exitcode == 0
    own = lines(tmp_path / f"run.{os.getpid()}.jsonl")
    other = lines(tmp_path / f"run.{child.pid}.jsonl")
    assert [r["text"] for r in own[1:]] == ["KV_FREE layer=0 addr=0x1000"]
    assert [r["text"] for r in other[1:]] == ["KV_FREE layer=1 addr=0x1000"]
    assert other[1]["pid"] == child.pid


def test_the_writer_works_without_being_drained(tmp_path: Path) -> None:
    import subprocess

    code = (
        "import sys, os, threading\n"
        "from pathlib import Path\n"
        "from tracekit_injectors.sidecar import Sidecar\n"
        "s = Sidecar(Path(sys.argv[1]))\n"
        "s.append('LAYER', (1,), 5, 6)\n"
        "next(t for t in threading.enumerate() if t.name == 'tracekit-sidecar')\n"
        "while not list(Path(sys.argv[1]).parent.glob('*.jsonl')): pass\n"
        "os._exit(0)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run.jsonl")], check=True, timeout=60
    )
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
