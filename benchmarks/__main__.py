"""Measure tracekit against other ways to do the same: ``python -m benchmarks``.

Everything runs in one go on generated reports, ways interleaved, each run in a fresh process, and
is judged by ratios of medians. The table goes into the marked block of docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.processes import ROOT, Series
from benchmarks.report import as_json, as_markdown, machine, replace_block
from benchmarks.suites import NESTED, SUITES, Plan

SIZES = (125_000, 250_000, 500_000, 1_000_000)
QUICK = {
    "kernels": 4_096,
    "tool_kernels": 4_096,
    "sizes": [4_096, 8_192],
    "nested": 1_000,
    "rounds": 1,
    "long_rounds": 1,
}
"""What ``--quick`` sets: everything runs once, and no number means anything."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--kernels", type=int, default=1_000_000, help="kernels of the report that is loaded")
    add("--whole-kernels", type=int, help="kernels of the report that is analysed; as above")
    add("--tool-kernels", type=int, default=50_000, help="kernels of the report for other tools")
    add("--sizes", type=int, nargs="+", default=list(SIZES), help="kernels of the growth reports")
    add("--nested", type=int, default=NESTED, help="ranges of the nesting case")
    add("--rounds", type=int, default=7, help="runs of what is short")
    add("--long-rounds", type=int, default=3, help="runs of what takes seconds")
    add("--only", choices=SUITES, action="append", help="measure only this; may be repeated")
    add("--quick", action="store_true", help="tiny sizes, one run: shows that everything runs")
    add("--work", type=Path, default=Path(tempfile.gettempdir()) / "tracekit-benchmarks")
    add("--nsys-ai", default=shutil.which("nsys-ai"), help="path of that program")
    add("--docs", type=Path, default=ROOT / "docs" / "performance.md", help="document to update")
    add("--json", type=Path, help="also write every run to this file")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the document.

    Args:
        arguments: Command line; None for that of the process.

    Returns:
        0.
    """
    given = _parser().parse_args(arguments)
    if given.quick:
        vars(given).update(QUICK)
    given.work.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        folder=given.work,
        kernels=given.kernels,
        whole_kernels=given.whole_kernels or given.kernels,
        tool_kernels=given.tool_kernels,
        sizes=tuple(sorted(given.sizes)),
        nested=given.nested,
        rounds=given.rounds,
        long_rounds=given.long_rounds,
        tool=given.nsys_ai,
        tell=_tell,
    )
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", **machine()}
    before = os.getloadavg()[0]
    series: list[Series] = []
    for name, suite in SUITES.items():
        if not given.only or name in given.only:
            series += suite(plan)
            # Written after each suite: an interrupted run keeps what it measured.
            load = {"load average": f"{before:.1f} before, {os.getloadavg()[0]:.1f} after"}
            _write(given.docs, given.json, series, {**about, **load})
    print(as_markdown(series, about))
    return 0


def _write(docs: Path, raw: Path | None, series: list[Series], about: dict[str, str]) -> None:
    old = docs.read_text() if docs.exists() else "# Performance\n"
    docs.write_text(replace_block(old, as_markdown(series, about)))
    if raw is not None:
        raw.write_text(as_json(series, about))


_begun = time.monotonic()


def _tell(what: str) -> None:
    print(f"[{time.monotonic() - _begun:6.0f} s] {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
