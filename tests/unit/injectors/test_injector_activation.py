"""Switching the hooks on in programs that know nothing of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from tracekit_injectors import environment
from tracekit_injectors.__main__ import main

HOOKED = "import sys; print('tracekit_injectors' in sys.modules)"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an environment with hooks and no other trace of tracekit."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        found = environment.hooked({**os.environ, **variables}, preload=False)
        return subprocess.run(words, env=found, text=True, capture_output=True, timeout=60)

    return call


def test_any_python_child_is_reached(run: Run) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOOKED!r}])"
    assert run(sys.executable, "-c", code).stdout == "True\n"
    nested = ["/bin/sh", "-c", '"$@"', "sh"] * 2
    assert run(*nested, sys.executable, "-c", HOOKED).stdout == "True\n"


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_isolated_python_is_left_alone(run: Run, option: str) -> None:
    done = run(sys.executable, option, "-c", HOOKED)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_child_that_drops_the_environment_is_respected(run: Run) -> None:
    code = (
        "import subprocess, sys;"
        f"subprocess.run([sys.executable, '-c', {HOOKED!r}], env={{'PATH': '/usr/bin'}})"
    )
    assert run(sys.executable, "-c", code).stdout == "False\n"


def test_the_programs_own_sitecustomize_runs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("OWN = 42\n")
    code = "import sitecustomize, sys; print(sitecustomize.OWN, sitecustomize.__file__)"
    done = run(sys.executable, "-c", code, PYTHONPATH=str(tmp_path))
    assert done.stdout == f"42 {tmp_path / 'sitecustomize.py'}\n"
    assert run(sys.executable, "-c", HOOKED, PYTHONPATH=str(tmp_path)).stdout == "True\n"


def test_a_broken_sitecustomize_breaks_as_before(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ZeroDivisionError\n")
    done = run(sys.executable, "-c", HOOKED, PYTHONPATH=str(tmp_path))
    assert done.stdout == "True\n"
    assert "ZeroDivisionError" in done.stderr


def test_the_path_stays_the_programs_own(run: Run, tmp_path: Path) -> None:
    code = "import sys; print([p for p in sys.path if 'tracekit_injectors' in p])"
    assert run(sys.executable, "-c", code, PYTHONPATH=str(tmp_path)).stdout == "[]\n"
    code = "import os; print(os.environ['PYTHONPATH'])"
    wanted = f"{environment.SITE}{os.pathsep}{tmp_path}\n"
    assert run(sys.executable, "-c", code, PYTHONPATH=str(tmp_path)).stdout == wanted


def test_nothing_heavy_and_nothing_foreign_is_imported(run: Run) -> None:
    code = (
        "import sys; print(sorted({m.partition('.')[0] for m in sys.modules}"
        " & {'torch', 'transformers', 'vllm', 'numpy', 'json', 'subprocess', 'tracekit'}))"
    )
    assert run(sys.executable, "-c", code).stdout == "[]\n"


def test_a_virtual_environment_is_reached_and_keeps_its_packages(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "my env"
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "only_here.py").write_text("VALUE = 3\n")
    (site / "sitecustomize.py").write_text("OWN = 1\n")
    code = f"import only_here, sitecustomize; {HOOKED}; print(only_here.VALUE, sitecustomize.OWN)"
    assert run(str(folder / "bin" / "python"), "-c", code).stdout == "True\n3 1\n"


def test_an_installation_with_blanks_in_its_path(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "my packages" / "tracekit_injectors"
    shutil.copytree(Path(environment.__file__).parent, copy, ignore=lambda *_: ["__pycache__"])
    done = subprocess.run(
        [sys.executable, "-c", "import tracekit_injectors; print(tracekit_injectors.__file__)"],
        env={**os.environ, "PYTHONPATH": str(copy / "site")},
        text=True,
        capture_output=True,
    )
    assert done.stdout == f"{copy / '__init__.py'}\n"


def test_switching_on_twice_changes_nothing() -> None:
    once = environment.hooked({"PYTHONPATH": "/a"}, preload=False)
    assert once["PYTHONPATH"] == f"{environment.SITE}{os.pathsep}/a"
    assert environment.hooked(once, preload=False) == once
    assert environment.hooked({}, preload=False)["PYTHONPATH"] == str(environment.SITE)


@pytest.mark.parametrize(
    ("setting", "library", "wanted"),
    [
        ("", "/x/lib.so", "/x/lib.so"),
        ("/a.so", "/x/lib.so", "/a.so:/x/lib.so"),
        ("/a.so /b.so", "/x/lib.so", "/a.so /b.so:/x/lib.so"),
        ("/a.so:/x/lib.so", "/x/lib.so", "/a.so:/x/lib.so"),
        ("/a.so", "/with blank/lib.so", "/a.so"),
        ("", "/with:colon/lib.so", ""),
    ],
)
def test_a_preload_is_appended_and_order_kept(setting: str, library: str, wanted: str) -> None:
    assert environment.with_preload(setting, Path(library)) == wanted


def test_the_library_is_found_beside_the_package_or_in_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import metadata

    package, elsewhere = tmp_path / "package", tmp_path / "site-packages"
    package.mkdir()
    elsewhere.mkdir()
    monkeypatch.setattr(environment, "__file__", str(package / "environment.py"))
    monkeypatch.setattr(metadata, "files", lambda _name: [])
    assert environment.native_library() is None
    library = elsewhere / environment.LIBRARY
    library.touch()

    class File:
        name = environment.LIBRARY

        def locate(self) -> Path:
            return library

    monkeypatch.setattr(metadata, "files", lambda _name: [File()])
    assert environment.native_library() == library
    (package / environment.LIBRARY).touch()
    assert environment.native_library() == package / environment.LIBRARY


def test_as_a_module(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tracekit_injectors"]
    done = subprocess.run(
        [*words, sys.executable, "-c", "import sys; sys.exit(7)"], text=True, timeout=60
    )
    assert done.returncode == 7
    done = subprocess.run([*words, sys.executable, "-c", HOOKED], text=True, capture_output=True)
    assert done.stdout == "True\n"


def test_as_a_module_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 2
    assert main(["/no/such/program"]) == 127
    assert main(["/"]) == 126
    said = capsys.readouterr().err
    assert "usage:" in said
    assert "/no/such/program: command not found" in said
