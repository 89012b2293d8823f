"""Where GPUs sit in a machine, how they reach each other, and which ranks run far from theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from tracekit.errors import InputError
from tracekit.model.finding import Level

__all__ = [
    "Finding",
    "Machine",
    "Placement",
    "Rank",
    "findings",
    "parse_cpus",
    "parse_matrix",
    "path_classes",
    "with_nodes",
]

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d+)")
_NVLINK = re.compile(r"NV\d+")
_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_MEANING = {
    "PIX": "at most one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "a PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one GPU sits.

    Attributes:
        gpu: Index as nvidia-smi counts.
        numa: NUMA node; None if the machine does not say.
        cpus: CPUs near to it; empty if the machine does not say.
    """

    gpu: int
    numa: int | None
    cpus: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """GPUs and the paths between them.

    Attributes:
        gpus: By index.
        paths: Class of the path of each pair (lower index first): ``NV18``, ``PIX``, ``SYS``, ...
        nodes: CPUs of each NUMA node; empty if unknown.
    """

    gpus: Mapping[int, Placement]
    paths: Mapping[tuple[int, int], str]
    nodes: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A process that uses a GPU.

    Attributes:
        name: For the reader.
        gpu: Index of the GPU; None if it is not of the matrix.
        cpus: CPUs that it may run on, or ran on; empty if unknown.
    """

    name: str
    gpu: int | None
    cpus: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding.

    Attributes:
        level: How bad it is; unknown where inputs are missing.
        title: What was found.
        advice: What to do; "" if nothing.
        subjects: Ranks or pairs of GPUs that it is about.
    """

    level: Level
    title: str
    advice: str = ""
    subjects: tuple[str, ...] = ()


def parse_cpus(text: str) -> frozenset[int]:
    """Return the CPUs of a list such as ``0-15,32-47``.

    Raises:
        InputError: The text is no such list.
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            message = f"{text[:60]!r} is no list of CPUs such as 0-15,32-47"
            raise InputError(message)
        first = int(match[1])
        cpus.update(range(first, int(match[2] or first) + 1))
    return frozenset(cpus)


def parse_matrix(text: str) -> Machine:
    """Return what ``nvidia-smi topo -m`` printed.

    Raises:
        InputError: The text holds no such matrix.
    """
    lines = [_ANSI.sub("", line) for line in text.splitlines()]
    heads = next((_cells(line) for line in lines if _is_head(line)), None)
    if heads is None:
        message = "no matrix of nvidia-smi topo -m"
        raise InputError(message, hint="save it with: nvidia-smi topo -m > topo.txt")
    columns = [int(m[1]) if (m := _GPU.fullmatch(head)) else None for head in heads]
    gpus: dict[int, Placement] = {}
    paths: dict[tuple[int, int], str] = {}
    for line in lines:
        cells = _cells(line)
        match = _GPU.fullmatch(cells[0]) if cells else None
        # The head begins with a GPU too, but its second cell is another one.
        if match is None or len(cells) < 2 or _GPU.fullmatch(cells[1]):
            continue
        own, values = int(match[1]), cells[1:]
        for other, value in zip(columns, values, strict=False):
            if other is not None and own < other:
                paths[own, other] = value
        gpus[own] = _placement(own, dict(zip(heads, values, strict=False)))
    missing = {c for c in columns if c is not None} - set(gpus)
    if missing or len(paths) != len(gpus) * (len(gpus) - 1) // 2:
        message = "the matrix of nvidia-smi topo -m is incomplete"
        raise InputError(message)
    return Machine(gpus=gpus, paths=paths)


def _is_head(line: str) -> bool:
    cells = _cells(line)
    return bool(cells) and cells[0] == "GPU0" and "CPU Affinity" in cells


def _cells(line: str) -> list[str]:
    """Cells of a row: separated by tabs, or by blanks where a copy lost the tabs."""
    parts = line.split("\t") if "\t" in line else re.split(r"\s{2,}", line)
    return [part.strip() for part in parts if part.strip()]


def _placement(gpu: int, row: Mapping[str, str]) -> Placement:
    cpus, numa = row.get("CPU Affinity", ""), row.get("NUMA Affinity", "")
    return Placement(
        gpu=gpu,
        numa=int(numa) if numa.isdecimal() else None,
        cpus=parse_cpus(cpus) if re.fullmatch(r"[\d,\- ]+", cpus) else frozenset(),
    )


def path_classes(machine: Machine, gpus: Sequence[int]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the pairs of `gpus` by the class of their path, the nearest class first."""
    found: dict[str, list[tuple[int, int]]] = {}
    for pair in combinations(sorted(set(gpus)), 2):
        if pair in machine.paths:
            found.setdefault(machine.paths[pair], []).append(pair)
    return {name: tuple(found[name]) for name in sorted(found, key=_distance)}


def _distance(name: str) -> tuple[int, int]:
    """Where a class stands: more NVLinks first, then by what PCIe traffic crosses."""
    if _NVLINK.fullmatch(name):
        return 0, -int(name[2:])
    return 1, _CLASSES.index(name) if name in _CLASSES else len(_CLASSES)


def findings(machine: Machine, ranks: Sequence[Rank]) -> tuple[Finding, ...]:
    """Return what is wrong with the placement of ranks and the paths between their GPUs.

    Without ranks, paths are judged between all GPUs.
    """
    used = [r.gpu for r in ranks if r.gpu is not None] or list(machine.gpus)
    return (*_rank_findings(machine, ranks), *_path_findings(machine, used))


def _rank_findings(machine: Machine, ranks: Sequence[Rank]) -> list[Finding]:
    if not ranks:
        needs = "give the ranks with --ranks, or run it next to them"
        return [Finding(level=Level.UNKNOWN, title="where ranks run is unknown", advice=needs)]
    by_verdict: dict[str, list[str]] = {}
    for rank in ranks:
        by_verdict.setdefault(_verdict(machine, rank), []).append(rank.name)
    bind = "numactl --cpunodebind=NODE --membind=NODE for each rank, NODE that of its GPU"
    texts = {
        "far": (Level.WARN, "run only on CPUs of another NUMA node than their GPU's", bind),
        "free": (
            Level.UNKNOWN,
            "may run on several NUMA nodes: where the scheduler puts them is unknown",
            bind,
        ),
        "unknown": (
            Level.UNKNOWN,
            "cannot be judged: the NUMA node of the GPU or the CPUs of the rank are unknown",
            "",
        ),
        "near": (Level.OK, "run on the NUMA node of their GPU", ""),
    }
    return [
        Finding(level=level, title=f"{_ranks(names)} {text}", advice=advice, subjects=tuple(names))
        for verdict, (level, text, advice) in texts.items()
        if (names := by_verdict.get(verdict))
    ]


def _ranks(names: Sequence[str]) -> str:
    return f"rank {names[0]}" if len(names) == 1 else f"{len(names)} ranks"


def _verdict(machine: Machine, rank: Rank) -> str:
    place = None if rank.gpu is None else machine.gpus.get(rank.gpu)
    if place is None or not rank.cpus:
        return "unknown"
    if len(machine.nodes) == 1:
        return "near"
    near = machine.nodes.get(place.numa, frozenset()) if place.numa is not None else frozenset()
    near = near or place.cpus
    if not near:
        return "unknown"
    if not rank.cpus & near:
        return "far"
    return "near" if rank.cpus <= near else "free"


def _path_findings(machine: Machine, used: Sequence[int]) -> list[Finding]:
    classes = path_classes(machine, used)
    if not classes:
        return []
    *_, worst = classes
    pairs = tuple(f"GPU{a}-GPU{b}" for a, b in classes[worst])
    if _NVLINK.fullmatch(worst):
        text = f"every pair of GPUs is linked by NVLink ({', '.join(classes)})"
        return [Finding(level=Level.OK, title=text)]
    some = any(_NVLINK.fullmatch(name) for name in classes)
    across = _MEANING.get(worst, worst)
    title = f"{len(pairs)} pair(s) of GPUs reach each other only across {across} ({worst})"
    if some:
        advice = "a collective runs at its slowest link: keep tensor parallelism within NVLink"
        return [Finding(level=Level.WARN, title=title, advice=advice, subjects=pairs)]
    level = Level.WARN if worst in ("SYS", "NODE", "PHB") else Level.OK
    advice = "no NVLink: prefer pipeline or data parallelism, or GPUs below one switch"
    return [Finding(level=level, title=title, advice=advice, subjects=pairs)]


def with_nodes(
    machine: Machine, numa_of_gpu: Mapping[int, int], nodes: Mapping[int, frozenset[int]]
) -> Machine:
    """Return the machine with what sysfs says of NUMA nodes in place of the matrix's columns."""
    gpus = {
        gpu: replace(place, numa=numa_of_gpu.get(gpu, place.numa))
        for gpu, place in machine.gpus.items()
    }
    return replace(machine, gpus=gpus, nodes=dict(nodes))
