"""What is measured: each suite turns a plan into series of runs."""

from __future__ import annotations

import hashlib
import importlib.util
import lzma
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generate import Size, generate
from benchmarks.loads import MODULES, QUICK_WAYS, WAYS, WORKS
from benchmarks.processes import ROOT, Case, Series, interleaved, python
from tracekit.io.run.loader import BYTES_PER_ROW, FIXED_BYTES, LEAST_BYTES, SPARING_FRAC

__all__ = ["SUITES", "Plan"]

SMALL_KERNELS = 4_096
SMALLEST_FIXTURE = "nvtx_only_2022_4"
SMALLEST_WITH_KERNELS = "int4_dequant"
NESTED = 200_000
ROWS_PER_KERNEL = {"kernels": 1.0, "runtime": 2.0, "nvtx": 0.63, "gpu_metrics": 4.0, "memcpy": 0.03}
"""Rows of a generated report."""
ANALYZE = ("-m", "tracekit", "analyze")


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        folder: Where reports are kept between runs.
        kernels: Size of the report for loads.
        whole_kernels: Size of the report for the whole analysis.
        tool_kernels: Size of the report for other tools, some of which are slow.
        sizes: Kernels of the reports for growth, ascending.
        nested: Ranges and kernels of the nesting case.
        rounds: Runs of everything short.
        long_rounds: Runs of what takes long: growth, first compilation, other tools.
        tool: Path of ``nsys-ai``, which is often installed apart.
        tell: Told what is being done.
    """

    folder: Path
    kernels: int
    whole_kernels: int
    tool_kernels: int
    sizes: tuple[int, ...]
    nested: int
    rounds: int
    long_rounds: int
    tool: str | None
    tell: Callable[[str], None]

    def report(self, kernels: int) -> Path:
        """Return a generated report, written now unless it is there from an earlier time."""
        path = self.folder / f"{_generator()}-{kernels}.sqlite"
        if not path.exists():
            self.tell(f"writing {path}")
            partial = path.with_suffix(".partial")
            generate(partial, Size(kernels))
            partial.rename(path)
        return path

    @property
    def budget_bytes(self) -> int:
        """A ``--memory`` that binds for the larger sizes, and can be kept."""
        per_kernel = sum(n * BYTES_PER_ROW[t] for t, n in ROWS_PER_KERNEL.items())
        least = max(LEAST_BYTES, int(SPARING_FRAC * per_kernel * self.sizes[0]))
        return FIXED_BYTES + least


def _generator() -> str:
    """Name the generator by its sources: another generator writes other files."""
    digest = hashlib.sha256()
    for name in ("decode", "generate", "nsys_tables"):
        digest.update((ROOT / "benchmarks" / f"{name}.py").read_bytes())
    return digest.hexdigest()[:8]


def loads(plan: Plan) -> list[Series]:
    """Columns to a data frame; the checksums of all ways must agree."""
    return _loads(plan, "loads", plan.kernels, WAYS)


def large_loads(plan: Plan) -> list[Series]:
    """The same from the report that is analysed, by the ways that do not take minutes."""
    return _loads(plan, "large-loads", plan.whole_kernels, QUICK_WAYS)


def _loads(plan: Plan, suite: str, kernels: int, ways: Iterable[str]) -> list[Series]:
    path, small = plan.report(kernels), plan.report(SMALL_KERNELS)
    found = []
    for work in WORKS:
        cases, absent = [], []
        for way in ways:
            series = Series(suite, work, way, kernels)
            module = MODULES.get(way)
            if module and importlib.util.find_spec(module) is None:
                series.note = "not installed"
                absent.append(series)
                continue
            command = python("-m", "benchmarks.loads", way, work, str(path), str(small))
            cases.append(Case(series, command, stays=True))
        measured = interleaved(cases, plan.rounds, plan.tell)
        _check_same(measured)
        found += measured + absent
    return found


def _check_same(measured: list[Series]) -> None:
    """Refuse to compare ways that read different things.

    Raises:
        AssertionError: Two ways read other rows or values.
    """
    sums = {s.way: r.said["checksum"] for s in measured for r in s.runs if "checksum" in r.said}
    assert len({tuple(c) for c in sums.values()}) <= 1, f"the ways to load disagree: {sums}"


def whole(plan: Plan) -> list[Series]:
    """All analyses against the script of an analyst, on one report."""
    path = str(plan.report(plan.whole_kernels))
    ways = {
        "tracekit analyze": (*ANALYZE, path),
        "pandas script": ("-m", "benchmarks.pandas_script", path),
    }
    cases = [
        Case(Series("whole", "all analyses", way, plan.whole_kernels), python(*arguments))
        for way, arguments in ways.items()
    ]
    _warm(path)
    rounds = plan.rounds if plan.whole_kernels <= plan.kernels else plan.long_rounds
    return interleaved(cases, rounds, plan.tell)


def _warm(path: str) -> None:
    """Compile what is not in the cache yet, outside any clock."""
    interleaved([Case(Series("", "", ""), python(*ANALYZE, path))], 1, lambda _: None)


def tools(plan: Plan) -> list[Series]:
    """All analyses against other tools, on a report of a size that all can take.

    Other tools write into the report or beside it, so each run gets a fresh copy.
    """
    path = plan.report(plan.tool_kernels)
    _warm(str(path))
    copies = plan.folder / "copy"
    copy = copies / "report.sqlite"

    def fresh() -> None:
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir()
        shutil.copyfile(path, copy)

    diagnose = ("diagnose", str(copy), "--session", str(copies / "session"))
    ways: dict[str, tuple[str | None, ...]] = {
        "tracekit analyze": tuple(python(*ANALYZE, str(copy))),
        "pandas script": tuple(python("-m", "benchmarks.pandas_script", str(copy))),
        "nsys stats": (shutil.which("nsys"), "stats", str(copy)),
        "nsys-ai diagnose (GPU 0 only)": (plan.tool, *diagnose),
    }
    cases, absent = [], []
    for way, command in ways.items():
        series = Series("tools", "all analyses", way, plan.tool_kernels)
        words = [word for word in command if word is not None]
        if len(words) < len(command):
            series.note = "not installed"
            absent.append(series)
        else:
            home = {"HOME": str(copies)} if words[0] == plan.tool else {}
            cases.append(Case(series, words, env=home, prepare=fresh))
    measured = interleaved(cases, plan.long_rounds, plan.tell)
    shutil.rmtree(copies, ignore_errors=True)
    return measured + absent


def growth(plan: Plan) -> list[Series]:
    """All analyses at several sizes, free and with a memory budget that binds."""
    budget = ("--memory", f"{plan.budget_bytes // 10**6}MB")
    cases = []
    for options in ((), budget, ("--format", "json")):
        way = " ".join(("tracekit analyze", *options))
        for kernels in plan.sizes:
            series = Series("growth", "all analyses", way, kernels)
            command = python(*ANALYZE, str(plan.report(kernels)), *options)
            cases.append(Case(series, command))
    _warm(str(plan.report(plan.sizes[-1])))
    return interleaved(cases, plan.long_rounds, plan.tell)


def nesting(plan: Plan) -> list[Series]:
    """Kernels of deeply nested ranges, each to its innermost one."""
    folder = plan.folder / "nested"
    folder.mkdir(exist_ok=True)
    series = Series("nesting", "innermost ranges", "tracekit", plan.nested)
    command = python("-m", "benchmarks.nesting", str(plan.nested), str(folder))
    interleaved([Case(Series("", "", ""), command, reports=True)], 1, lambda _: None)
    return interleaved([Case(series, command, reports=True)], plan.long_rounds, plan.tell)


def cold(plan: Plan) -> list[Series]:
    """Starting up: the help, small reports, and the first run before anything is compiled."""
    found = []
    small = {n: str(_unpacked(plan.folder, n)) for n in (SMALLEST_FIXTURE, SMALLEST_WITH_KERNELS)}
    for path in small.values():
        _warm(path)
    starts = {
        "python -c pass": python("-c", "pass"),
        "tracekit --help": python("-m", "tracekit", "--help"),
        f"analyze {SMALLEST_FIXTURE} (smallest)": python(*ANALYZE, small[SMALLEST_FIXTURE]),
        f"analyze {SMALLEST_WITH_KERNELS} (has kernels)": python(
            *ANALYZE, small[SMALLEST_WITH_KERNELS]
        ),
    }
    cases = [Case(Series("cold", "start", way), command) for way, command in starts.items()]
    found += interleaved(cases, plan.rounds, plan.tell)
    path = str(plan.report(plan.tool_kernels))
    _warm(path)
    cache = plan.folder / "cache"
    analyze = python(*ANALYZE, path)
    of = ("cold", "all analyses")
    cases = [
        Case(
            Series(*of, "nothing compiled yet", plan.tool_kernels),
            analyze,
            env={"NUMBA_CACHE_DIR": str(cache)},
            prepare=lambda: shutil.rmtree(cache, ignore_errors=True),
        ),
        Case(Series(*of, "compiled before", plan.tool_kernels), analyze),
    ]
    found += interleaved(cases, plan.long_rounds, plan.tell)
    return found


def _unpacked(folder: Path, name: str) -> Path:
    path = folder / f"{name}.sqlite"
    if not path.exists():
        path.write_bytes(lzma.decompress((ROOT / "fixtures" / f"{name}.sqlite.xz").read_bytes()))
    return path


SUITES: dict[str, Callable[[Plan], list[Series]]] = {
    "loads": loads,
    "large-loads": large_loads,
    "whole": whole,
    "growth": growth,
    "cold": cold,
    "nesting": nesting,
    "tools": tools,
}
"""Name of each suite -> the function that measures it, in the order of the run."""
