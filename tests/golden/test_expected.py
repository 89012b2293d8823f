"""What each recorded trace says, in whole: titles, levels, gains and the head of every table.

The other modules of this folder check single facts of a trace. These files catch every change of an
answer, wanted or not: run with ``--update``, then read the difference as a reviewer would.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import tracekit

ROOT = Path(__file__).parents[2]
EXPECTED = Path(__file__).parent / "expected"
ROWS = 3
DIGITS = 6
PAIRS = {"tp_decode": ("tp_decode_rank0", "tp_decode_rank1")}
RUNS = PAIRS | {
    str(path.relative_to(ROOT / "fixtures")).removesuffix(".sqlite.xz"): (
        str(path.relative_to(ROOT / "fixtures")).removesuffix(".sqlite.xz"),
    )
    for path in sorted((ROOT / "fixtures").rglob("*.sqlite.xz"))
}


def cell(value: Any) -> Any:
    """A value as JSON holds it, floats rounded so that every platform agrees."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, list):
        return [cell(one) for one in value]
    return value if isinstance(value, int | str | bool | None) else str(value)


def digest(names: tuple[str, ...]) -> dict[str, Any]:
    """The answer for one run, small enough to be read."""
    found = tracekit.analyze([ROOT / "fixtures" / f"{name}.sqlite.xz" for name in names])
    tables = {
        f"{analysis}.{name}": {
            "rows": frame.height,
            "head": [{k: cell(v) for k, v in row.items()} for row in frame.head(ROWS).to_dicts()],
        }
        for analysis, frames in sorted(found.frames.items())
        for name, frame in sorted(frames.items())
        if frame.height
    }
    findings = [
        {
            "id": one.id,
            "level": str(one.level),
            "title": one.title,
            "at_stake_ns": one.at_stake_ns,
            "metrics": {m.name: cell(m.value) for m in one.metrics},
        }
        for one in found.findings
    ]
    return {"findings": findings, "tables": tables}


@pytest.mark.parametrize("run", RUNS)
def test_the_answer_is_the_one_that_was_reviewed(run: str, update: bool) -> None:
    path = EXPECTED / f"{run.replace('/', '-')}.json"
    text = json.dumps(digest(RUNS[run]), indent=1, ensure_ascii=False) + "\n"
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_every_file_belongs_to_a_run(update: bool) -> None:
    if update:
        pytest.skip("the files are being written")
    known = {f"{run.replace('/', '-')}.json" for run in RUNS}
    assert {path.name for path in EXPECTED.glob("*.json")} == known
