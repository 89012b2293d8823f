"""Predicted against measured: what a change was predicted to bring, and what it did bring.

A pair is two recordings of one program, before and after one change. The prediction is made from
the first alone. Usage: python -m benchmarks.pairs NAME WHAT BEFORE AFTER [NAME WHAT ...]
with WHAT one of graph, no_waits, once, copy, fuse.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from tracekit.opening import open_trace
from tracekit.views.whatif.predictions import NO_WAITS, ONCE, predictions
from tracekit.views.whatif.step_facts import step_facts
from tracekit.wording.numbers import duration

__all__ = ["Outcome", "as_markdown", "outcome"]


class Outcome(NamedTuple):
    """One pair.

    Attributes:
        before_ns: Median time of a step before: its span, or with the time to the next one where
            the change is predicted for that.
        predicted_ns: Predicted gain a step, least and most; None where none was predicted.
        measured_ns: Time of a step before - after.
    """

    before_ns: float
    predicted_ns: tuple[float, float] | None
    measured_ns: float

    @property
    def is_inside(self) -> bool:
        """Whether the measured gain lies in the predicted interval."""
        if self.predicted_ns is None:
            return False
        return self.predicted_ns[0] <= self.measured_ns <= self.predicted_ns[1]


def outcome(what: str, before: Path, after: Path) -> Outcome:
    """Return what a change was predicted to bring to the steps that take most, and what it did.

    Args:
        what: Kind of change, see `tracekit.views.whatif.predictions`.
        before: Recording before it.
        after: Recording after it.
    """
    with open_trace([before]) as trace:
        facts = _largest(step_facts(trace))
        found = [
            p.gain
            for p in predictions(trace)
            if (p.timeline, p.what, p.gain.step_group)
            == (facts["timeline"], what, facts["group"] if facts["n_steps"] else "")
        ]
    with open_trace([after]) as trace:
        then = _largest(step_facts(trace))
    whole = what in (NO_WAITS, ONCE)
    times = [side["span_ns"] + (side["between_ns"] or 0.0) * whole for side in (facts, then)]
    predicted = (found[0].lo_ns, found[0].hi_ns) if found else None
    return Outcome(times[0], predicted, times[0] - times[1])


def _largest(facts: pl.DataFrame) -> dict[str, float]:
    """The steps that take most time together."""
    time = pl.col("span_ns") * pl.max_horizontal("n_steps", pl.lit(1))
    return facts.sort(time, descending=True, maintain_order=True).row(0, named=True)


def as_markdown(pairs: Sequence[tuple[str, Outcome]]) -> str:
    """Return the table of some pairs."""
    lines = [
        "| change | step before | predicted gain a step | measured gain | inside |",
        "|---|---|---|---|---|",
    ]
    for name, found in pairs:
        predicted = (
            "none"
            if found.predicted_ns is None
            else " to ".join(duration(ns) for ns in found.predicted_ns)
        )
        inside = "yes" if found.is_inside else "no"
        measured = duration(found.measured_ns)
        lines.append(
            f"| {name} | {duration(found.before_ns)} | {predicted} | {measured} | {inside} |"
        )
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    """Print the table."""
    if not words or len(words) % 4:
        print(__doc__)
        return 2
    rows = [words[at : at + 4] for at in range(0, len(words), 4)]
    found = [(name, outcome(what, Path(b), Path(a))) for name, what, b, a in rows]
    print(as_markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
