from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tracekit.recording import ranks


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "3", "SLURM_PROCID": "9"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "1"}, 1),
        ({"SLURM_PROCID": "2"}, 2),
        ({"RANK": "x"}, None),
    ],
)
def test_rank(environment: dict[str, str], rank: int | None) -> None:
    assert ranks.rank(environment) == rank


@pytest.mark.parametrize(
    ("environment", "gpu"),
    [
        ({}, None),
        ({"LOCAL_RANK": "1"}, 1),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"}, 6),
        ({"LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": "4,6"}, None),
        ({"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "GPU-1234"}, None),
    ],
)
def test_the_ranks_own_gpu(environment: dict[str, str], gpu: int | None) -> None:
    assert ranks.local_gpu(environment) == gpu


def test_workers_start_through_tracekit_run(tmp_path: Path) -> None:
    folder = tmp_path / "private folder"
    folder.mkdir()
    launcher = tmp_path / "torchrun"
    launcher.write_text(f"#!{sys.executable}\n")
    found = ranks.wrap_workers([str(launcher)], ["--output=a b"], folder, {"PATH": "/bin"})
    stand_in = Path(found["PYTHON_EXEC"])
    text = stand_in.read_text()
    assert f"-m tracekit run '--output=a b' -- {sys.executable} \"$@\"" in text
    assert subprocess.run(["sh", "-n", str(stand_in)], check=False).returncode == 0


def test_an_interpreter_chosen_by_the_user_stays(tmp_path: Path) -> None:
    found = ranks.wrap_workers(["sh"], [], tmp_path, {"PYTHON_EXEC": "/opt/python"})
    assert '-- /opt/python "$@"' in Path(found["PYTHON_EXEC"]).read_text()


def test_the_interpreter_behind_a_launcher(tmp_path: Path) -> None:
    assert ranks._interpreter(sys.executable) == sys.executable
    assert ranks._interpreter("sh") == "python3"
    assert ranks._interpreter(str(tmp_path / "absent")) == "python3"
