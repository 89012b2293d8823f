from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.recording.conftest import FORBIDDEN, TWO_GPUS, make_nsys
from tracekit.cli.doctor import command
from tracekit.recording import doctor, nsys
from tracekit.recording.doctor import State

__all__ = ["make_nsys"]

MakeNsys = Callable[..., Path]


def lines() -> dict[str, doctor.Check]:
    return {check.name: check for check in doctor.checks()}


@pytest.fixture
def with_nsys(monkeypatch: pytest.MonkeyPatch, make_nsys: MakeNsys) -> Callable[..., None]:
    def use(**options: str) -> None:
        program = make_nsys(**options)
        monkeypatch.setattr(nsys, "candidates", lambda: iter((program,)))

    return use


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a driver whose counters are for administrators."""
    folder = tmp_path / "nvidia"
    folder.mkdir()
    (folder / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  x")
    (folder / "params").write_text("RmProfilingAdminOnly: 1\n")
    (folder / "status").write_text("CapEff:\t0000000000000000\n")
    monkeypatch.setattr(doctor, "_DRIVER", folder / "version")
    monkeypatch.setattr(doctor, "_DRIVER_SETTINGS", folder / "params")
    monkeypatch.setattr(doctor, "_CAPABILITIES", folder / "status")
    return folder


def test_nothing_can_be_recorded_without_nsys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys, "candidates", lambda: iter(()))
    done = CliRunner().invoke(command, standalone_mode=False)
    assert done.return_value == 1
    assert "FAIL  nsys: not found  -> install Nsight Systems" in done.output
    assert all(line[:6].strip() in {*State} for line in done.output.splitlines())


def test_one_line_each_and_nothing_fails(with_nsys, driver: Path) -> None:
    with_nsys(devices=TWO_GPUS, importer="echo version 1")
    found = lines()
    assert found["nsys"].found.startswith("2025.3.2.474 at ")
    assert found["nsys importer"].state is State.OK
    assert found["driver"].found == "580.159.04"
    assert found["GPU counters"].found == "nsys can sample GPU 0, 1"
    assert found["Python hooks"].state is State.OK
    done = CliRunner().invoke(command, standalone_mode=False)
    assert done.return_value == 0
    assert len(done.output.splitlines()) == len(found)


def test_an_importer_that_lacks_a_library(with_nsys) -> None:
    with_nsys(importer="echo 'error: libdw.so.1: cannot open shared object file' >&2; exit 127")
    check = lines()["nsys importer"]
    assert check.state is State.WARN
    assert check.advice == "install the package with libdw.so.1"


def test_no_permission_for_counters(with_nsys, driver: Path) -> None:
    with_nsys(devices=FORBIDDEN)
    check = lines()["GPU counters"]
    assert check.state is State.WARN
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check.advice
    (driver / "status").write_text("CapEff:\t0000004000000000\n")
    assert lines()["GPU counters"].state is State.UNKNOWN


def test_another_tool_holds_the_counters(with_nsys, driver: Path) -> None:
    with_nsys(devices="Possible values are:\n\tAnother tool is using the counters\n")
    check = lines()["GPU counters"]
    assert check.found == "Another tool is using the counters"
    assert "dcgmi profile --pause" in check.advice


def test_a_library_that_does_not_load(
    with_nsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_nsys()
    broken = tmp_path / "libtracekit_inject.so"
    broken.write_text("not a library")
    monkeypatch.setattr(doctor.injector, "native_library", lambda: broken)
    check = lines()["native injector"]
    assert check.state is State.WARN
    assert "does not load" in check.found


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], "torch is a CPU build: no CUDA calls to see"),
        (["torch/lib/libtorch_cuda.so"], "torch: driver allocations only, no NCCL"),
        (
            [
                "torch/lib/libtorch_cuda.so",
                "nvidia/cu13/lib/libcudart.so.13",
                "nvidia/nccl/lib/libnccl.so.2",
            ],
            "torch: allocations, NCCL",
        ),
    ],
)
def test_what_a_preload_reaches(
    files: list[str], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in [*files, "torch/__init__.py"]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(doctor, "_package", lambda _name: tmp_path / "torch")
    assert lines()["preload reach"].found.startswith(found)


def test_from_the_command_line() -> None:
    words = [sys.executable, "-m", "tracekit", "doctor"]
    done = subprocess.run(words, text=True, capture_output=True, timeout=120)
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    assert "Python hooks: reach this Python" in done.stdout
