"""One report a rank: which rank this process is, and nsys inside each worker of a launcher."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["local_gpu", "rank", "wrap_workers"]

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_PYTHON_EXEC = "PYTHON_EXEC"
"""torchrun starts its workers with this program instead of its own Python, if it is set."""


def rank(environment: Mapping[str, str]) -> int | None:
    """Return the rank that a launcher gave this process, or None outside of one."""
    return _first_number(environment, _RANK)


def local_gpu(environment: Mapping[str, str]) -> int | None:
    """Return the number of this rank's GPU on its machine, or None when unknown."""
    local = _first_number(environment, _LOCAL_RANK)
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if local is None or not visible:
        return local
    entries = visible.split(",")
    return int(entries[local]) if local < len(entries) and entries[local].isdigit() else None


def _first_number(environment: Mapping[str, str], names: Sequence[str]) -> int | None:
    return next((int(v) for n in names if (v := environment.get(n, "")).isdigit()), None)


def wrap_workers(
    command: Sequence[str], options: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Have a torchrun-like launcher start each worker under ``tracekit run``.

    Args:
        command: The launcher's command.
        options: Options for ``tracekit run`` in each worker.
        folder: A private folder for the small program that stands in for Python.
        environment: The launcher's environment.

    Returns:
        The environment with that program in place.
    """
    python = environment.get(_PYTHON_EXEC) or _interpreter(command[0])
    stand_in = folder / "python"
    inner = [sys.executable, "-m", "tracekit", "run", *options, "--", python]
    stand_in.write_text(f'#!/bin/sh\nunset {_PYTHON_EXEC}\nexec {shlex.join(inner)} "$@"\n')
    stand_in.chmod(0o700)
    return {**environment, _PYTHON_EXEC: str(stand_in)}


def _interpreter(program: str) -> str:
    """Return the Python behind a launcher: the program itself, or its script's first line."""
    path = shutil.which(program) or program
    if Path(path).name.startswith("python"):
        return path
    try:
        with Path(path).open("rb") as file:
            first = file.readline(512).decode("utf-8", "replace")
    except OSError:
        first = ""
    words = first[2:].split() if first.startswith("#!") else []
    if words and Path(words[0]).name.startswith("python") and os.access(words[0], os.X_OK):
        return words[0]
    return "python3"
