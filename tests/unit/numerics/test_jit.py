"""Lazy compilation: what a process pays, where the machine code goes, what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tracekit.numerics import jit

PROGRAM = """
import sys
import numpy as np
from tracekit.numerics.jit import compiled

@compiled()
def twice(x):
    return 2 * x

@compiled("int64(ro(int64[::1]))")
def total(values):
    result = 0
    for value in values:
        result += twice(value)
    return result

assert "numba" not in sys.modules
frozen = np.arange(5)
frozen.flags.writeable = False
print(total(frozen), total(np.arange(3)))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(program: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(jit.__file__).parents[2])
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    env = {**inherited, "PYTHONPATH": root, **variables}
    return subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, check=True
    )


def test_notice_at_first_compile_and_silence_from_cache(program: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = run(program, XDG_CACHE_HOME=str(cache))
    second = run(program, XDG_CACHE_HOME=str(cache))
    assert first.stdout == second.stdout == "20 6\n"
    assert first.stderr == (
        f"tracekit: compiling numeric kernels once, cached in {jit_folder(cache)}\n"
    )
    assert second.stderr == ""
    assert list(jit_folder(cache).rglob("*.nbc"))
    assert not list(tmp_path.glob("__pycache__/*.nbc")), "nothing beside the sources"


def jit_folder(cache: Path) -> Path:
    return cache / "tracekit" / "numba"


def test_users_own_cache_folder_wins(program: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "mine"
    run(program, XDG_CACHE_HOME=str(tmp_path / "other"), NUMBA_CACHE_DIR=str(chosen))
    assert list(chosen.rglob("*.nbc"))
    assert not (tmp_path / "other").exists()


def test_without_a_writable_folder_it_compiles_in_memory(program: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    result = run(program, XDG_CACHE_HOME=str(blocked))
    assert result.stdout == "20 6\n"
    assert result.stderr == "tracekit: compiling numeric kernels (no writable cache folder)\n"


def test_runs_as_plain_python_when_jit_is_disabled(program: Path, tmp_path: Path) -> None:
    result = run(program, XDG_CACHE_HOME=str(tmp_path / "cache"), NUMBA_DISABLE_JIT="1")
    assert (result.stdout, result.stderr) == ("20 6\n", "")


def test_importing_the_kernels_does_not_load_numba(program: Path) -> None:
    folder = Path(jit.__file__).parent
    names = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    imports = "".join(f"import tracekit.numerics.{name}\n" for name in names)
    program.write_text(f"import sys\n{imports}print('numba' in sys.modules)\n")
    assert run(program).stdout == "False\n"


@jit.compiled("int64(ro(int64[::1]))")
def _first(values: np.ndarray) -> int:
    return values[0]


def test_other_dtypes_are_refused_not_recompiled() -> None:
    assert _first(np.array([7, 8])) == 7
    with pytest.raises(TypeError):
        _first(np.array([7.0, 8.0]))


def test_kernel_of_another_folder_is_refused() -> None:
    scope = {"_first": _first}
    code = compile("def f(values):\n    return _first(values)\n", "/elsewhere/f.py", "exec")
    exec(code, scope)
    kernel = jit.compiled("int64(ro(int64[::1]))")(scope["f"])
    with pytest.raises(TypeError, match="of another folder"):
        kernel.build()


def test_a_changed_neighbour_makes_the_cached_code_stale(program: Path, tmp_path: Path) -> None:
    program.write_text(PROGRAM.replace("return 2 * x", "return FACTOR * x"))
    neighbour = program.with_name("constants.py")
    program.write_text("from constants import FACTOR\n" + program.read_text())
    cache = str(tmp_path / "cache")
    neighbour.write_text("FACTOR = 2\n")
    assert run(program, XDG_CACHE_HOME=cache).stdout == "20 6\n"
    neighbour.write_text("FACTOR = 30\n")
    assert run(program, XDG_CACHE_HOME=cache).stdout == "300 90\n"


def test_a_damaged_cache_is_replaced(program: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run(program, XDG_CACHE_HOME=str(cache))
    for path in jit_folder(cache).rglob("*.nb?"):
        path.write_bytes(path.read_bytes()[:20])
    repaired = run(program, XDG_CACHE_HOME=str(cache))
    assert repaired.stdout == "20 6\n"
    assert "compiling" in repaired.stderr
    assert run(program, XDG_CACHE_HOME=str(cache)).stderr == ""


def test_little_work_is_interpreted_until_it_adds_up() -> None:
    @jit.compiled("int64(ro(int64[::1]))", interpret_below=10)
    def size(values: np.ndarray) -> int:
        return values.size

    assert size(np.arange(4)) == 4
    assert size._dispatcher is None
    assert size(np.arange(6)) == 6
    assert size._dispatcher is not None


def test_name_and_docstring_survive() -> None:
    assert _first.__name__ == "_first"
    assert _first.python(np.array([3])) == 3


def test_the_fast_form_runs_from_so_many_elements_on(monkeypatch: pytest.MonkeyPatch) -> None:
    @jit.accelerated(lambda values, pair: ("fast", values.size))
    def size(values: np.ndarray, pair: tuple[np.ndarray, np.ndarray]) -> tuple[str, int]:
        return "plain", values.size

    monkeypatch.setattr(jit, "WORTH_COMPILING", 7)
    two, three = np.zeros(2), np.zeros(3)
    assert size(two, (two, two)) == ("plain", 2)
    assert size(three, (two, two)) == ("fast", 3), "arrays in tuples count"
