"""What a machine says of itself: sysfs, procfs and nvidia-smi, live or saved."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tracekit.errors import InputError
from tracekit.sizing.machines.topology import Rank, parse_cpus
from tracekit.sizing.tables import read_csv

__all__ = ["bus_ids", "nodes", "numa_of", "processes", "ranks_of", "saved_bus_ids", "smi"]

_TIMEOUT_S = 30
_BUS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE)


def smi(words: Sequence[str]) -> str:
    """Return what nvidia-smi prints.

    Raises:
        InputError: There is none, it fails or hangs.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        message = "there is no nvidia-smi here"
        raise InputError(message, hint="save its output where the GPUs are: see --matrix") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"nvidia-smi gave no answer: {error}"
        raise InputError(message) from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
        message = f"nvidia-smi failed: {said[-1]}"
        raise InputError(message)
    return done.stdout


def bus_ids(text: str) -> dict[int, str]:
    """Return the bus address of each GPU as sysfs spells it, from an nvidia-smi query.

    Args:
        text: Of ``--query-gpu=index,pci.bus_id --format=csv,noheader``; nvidia-smi prints an
            eight-digit domain, sysfs four digits.

    Raises:
        InputError: A line is no index and bus address.
    """
    found = {}
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        match = _BUS.fullmatch(row[-1].strip()) if len(row) == 2 else None
        if match is None or not row[0].strip().isdecimal():
            message = f"{','.join(row)[:60]!r} is no index and bus address of a GPU"
            raise InputError(message)
        found[int(row[0])] = match[1].lower()
    return found


def saved_bus_ids(path: Path) -> dict[int, str]:
    """Return :func:`bus_ids` of a file with or without a line of names.

    Raises:
        InputError: The file cannot be read, or holds something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot be read: {error}"
        raise InputError(message, path=path) from None
    return bus_ids("\n".join(lines[1:] if lines and not lines[0][:1].isdecimal() else lines))


def numa_of(buses: dict[int, str], sysfs: Path) -> dict[int, int]:
    """Return the NUMA node of each GPU; one whose node sysfs does not say is left out.

    Args:
        buses: Bus address of each GPU.
        sysfs: ``/sys`` or a saved copy of it.
    """
    found = {}
    for gpu, bus in buses.items():
        try:
            node = int((sysfs / "bus/pci/devices" / bus / "numa_node").read_text())
        except (OSError, ValueError):
            continue
        if node >= 0:  # -1: the firmware does not say
            found[gpu] = node
    return found


def nodes(sysfs: Path) -> dict[int, frozenset[int]]:
    """Return the CPUs of each NUMA node; empty where sysfs does not say."""
    found = {}
    for folder in sorted((sysfs / "devices/system/node").glob("node[0-9]*")):
        try:
            found[int(folder.name[4:])] = parse_cpus((folder / "cpulist").read_text())
        except (OSError, InputError):
            continue
    return found


def processes(text: str, buses: dict[int, str], proc: Path) -> list[Rank]:
    """Return the processes that use GPUs, with the CPUs that they may run on.

    Args:
        text: Of ``--query-compute-apps=pid,gpu_bus_id --format=csv,noheader``.
        buses: Bus address of each GPU.
        proc: ``/proc``.
    """
    gpu_of = {bus: gpu for gpu, bus in buses.items()}
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        match = _BUS.fullmatch(row[-1].strip()) if len(row) == 2 else None
        if match is None:
            continue
        found.append(
            Rank(
                name=f"pid {row[0]}",
                gpu=gpu_of.get(match[1].lower()),
                cpus=_allowed(proc / row[0] / "status"),
            )
        )
    return found


def _allowed(status: Path) -> frozenset[int]:
    """CPUs that a process may run on; empty if it is gone or hidden."""
    try:
        match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status.read_text(), re.MULTILINE)
    except OSError:
        return frozenset()
    return parse_cpus(match[1]) if match else frozenset()


def ranks_of(path: Path) -> list[Rank]:
    """Return the ranks of a CSV file: ``rank``, ``gpu`` and ``cpus`` (as ``0-15;32-47``).

    Raises:
        InputError: The file cannot be read, or a cell is wrong.
    """
    table = read_csv(path)
    gpus = table.numbers("gpu")
    rows = zip(table.texts("rank"), gpus, table.texts("cpus"), strict=True)
    return [
        Rank(
            name=name,
            gpu=None if gpu is None else int(gpu),
            cpus=parse_cpus(cpus.replace(";", ",")),
        )
        for name, gpu, cpus in rows
    ]
