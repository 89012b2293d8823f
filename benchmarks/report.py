"""Measurements as a Markdown block and as JSON."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.goals import exponent, verdicts
from benchmarks.processes import ROOT, Series

__all__ = ["as_json", "as_markdown", "machine", "replace_block"]

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PACKAGES = ("polars", "numba", "numpy", "pandas", "adbc-driver-sqlite", "connectorx")
BASELINES = {
    "loads": ("pandas.read_sql", "cat"),
    "large-loads": ("connectorx", "cat"),
    "whole": ("", "tracekit analyze"),
    "tools": ("", "tracekit analyze"),
    "cold": ("", ""),
    "nesting": ("", ""),
}
"""Suite -> the way that the others are faster than, and the one that they are slower than."""
KINDS = ("seconds", "cpu_seconds")
TITLES = {
    "loads": "Column loads, a process a way, imports and compiled code outside the clock",
    "large-loads": "Column loads from the report that is analysed, by the quick ways",
    "whole": "All analyses, whole process",
    "growth": "Growth with the size of the report",
    "cold": "Starting up",
    "nesting": "Innermost range of every kernel, ranges nested 100 deep",
    "tools": "All analyses against other tools, whole process, a fresh copy of the report each",
}


def machine() -> dict[str, str]:
    """Return what the measurements depend on: hardware, versions, commit."""
    cpu = [
        line.partition(":")[2].strip()
        for line in _lines("/proc/cpuinfo")
        if line.startswith("model name")
    ]
    memory = [line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    found = {
        "system": platform.platform(),
        "processor": f"{len(cpu)} x {cpu[0]}" if cpu else platform.processor(),
        "memory": f"{int(memory[0]) / 1e6:.0f} GB" if memory else "unknown",
        "Python": platform.python_version(),
        "tracekit": _commit(),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


def _commit() -> str:
    try:
        asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown commit"


def as_json(series: Sequence[Series], about: Mapping[str, Any]) -> str:
    """Return the raw numbers of every run, and the goals."""
    goals = [{**asdict(v), "met": v.met} for v in verdicts(series)]
    content = {"about": about, "goals": goals, "series": [asdict(s) for s in series]}
    return json.dumps(content, indent=1) + "\n"


def as_markdown(series: Sequence[Series], about: Mapping[str, Any]) -> str:
    """Return the block of the document: where, goals, and one table a suite."""
    facts = ", ".join(f"{k} {v}" for k, v in about.items())
    parts = [f"Measured on {facts}.", "### Goals", _goals(series)]
    for suite, title in TITLES.items():
        own = [s for s in series if s.suite == suite]
        if own:
            parts += [f"### {title}", _growth(own) if suite == "growth" else _suite(suite, own)]
    return "\n\n".join(parts) + "\n"


def replace_block(text: str, block: str) -> str:
    """Return a document with its measured block replaced; added at the end if it has none."""
    head, begin, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2] if begin else "\n"
    lead = head if begin or not head else f"{head.rstrip()}\n\n"
    return f"{lead}{BEGIN}\n{block}{END}{tail}"


def _goals(series: Sequence[Series]) -> str:
    rows = []
    for v in verdicts(series):
        bound = f"{'>=' if v.at_least else '<='} {v.limit:g} {v.unit}".rstrip()
        measured = "not measured" if v.measured is None else f"{v.measured:.3g} {v.unit}".rstrip()
        said = "" if v.met is None else "met" if v.met else f"missed, {v.miss:.2f}x off"
        rows.append((v.goal, bound, measured, said))
    return _table(("goal", "bound", "measured", ""), rows)


def _suite(suite: str, series: Sequence[Series]) -> str:
    """One line a series, with the ratios to the baselines of the same work."""
    slow, fast = BASELINES[suite]
    of = {(s.work, s.way): s for s in series}
    head = ["work", "way", "kernels", "runs", "median", "range", "CPU", "peak anon"]
    head += [f"times faster than {slow}", "by CPU time"] if slow else []
    head += [f"time / {fast}", "CPU / same"] if fast else []
    rows: list[Sequence[str]] = []
    for s in series:
        cells = [s.work, s.way, f"{s.kernels:,}" if s.kernels else ""]
        if s.seconds is None:
            rows.append((*cells, "0", s.note, *[""] * (len(head) - 5)))
            continue
        times = [r.seconds for r in s.runs]
        cells += [str(len(times)), _seconds(s.seconds)]
        cells += [f"{_seconds(min(times))} to {_seconds(max(times))}"]
        cells += [_seconds(s.cpu_seconds), _megabytes(s.peak_bytes)]
        if slow:
            cells += [_over(of.get((s.work, slow)), s, kind) for kind in KINDS]
        if fast:
            cells += [_over(s, of.get((s.work, fast)), kind) for kind in KINDS]
        rows.append(cells)
    return _table(head, rows)


def _over(above: Series | None, below: Series | None, kind: str) -> str:
    top, bottom = getattr(above, kind, None), getattr(below, kind, None)
    return f"{top / bottom:.3g}" if top is not None and bottom else ""


def _growth(series: Sequence[Series]) -> str:
    """One line a size and way, and the fitted exponents of each way."""
    head = ("way", "kernels", "runs", "median", "CPU", "peak anon", "printed")
    rows: list[Sequence[str]] = [
        (
            s.way,
            f"{s.kernels:,}",
            str(len(s.runs)),
            _seconds(s.seconds) or s.note,
            _seconds(s.cpu_seconds),
            _megabytes(s.peak_bytes),
            f"{max(r.output_bytes for r in s.runs) / 1e3:.1f} kB" if s.runs else "",
        )
        for s in series
    ]
    for way in dict.fromkeys(s.way for s in series if s.runs):
        own = [s for s in series if s.way == way and s.runs]
        fits = [_slope(own, kind) for kind in ("seconds", "cpu_seconds", "peak_bytes")]
        rows.append((way, "exponent", "", *fits, ""))
    return _table(head, rows)


def _slope(series: Sequence[Series], kind: str) -> str:
    known = [(s.kernels, getattr(s, kind)) for s in series if getattr(s, kind) is not None]
    found = exponent([n for n, _ in known], [v for _, v in known])
    return "" if found is None else f"{found:.2f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:.2f} s"


def _megabytes(value: int | None) -> str:
    return "unknown" if value is None else f"{value / 1e6:.0f} MB"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
