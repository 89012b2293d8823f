"""What shares of communication findings are of, what adds up, and which finding is only a hint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from tracekit.analyses._collectives.wording import CAPTURE, amount, time
from tracekit.model.finding import Confidence
from tracekit.trace.analysis import Frames

__all__ = ["FEW", "all_of", "hint", "limits", "share_of", "together"]

FEW = 10
"""Fewer collectives than this, at low confidence, give a hint and no more."""
LOW_CONFIDENCE = 0.5
NEARLY_ALL = 0.99
Row = Mapping[str, Any]


def share_of(group: str | None, time_ns: float | None) -> str:
    """Return what a share is of, with its length: the span of device work, or a step group.

    Args:
        group: Step group, or None or the name of the whole capture.
        time_ns: Length in ns, None when unknown.
    """
    if group is None or group == CAPTURE:
        length = "time" if time_ns is None else time(time_ns)
        return f"the {length} from first to last device work"
    length = "" if time_ns is None else f"{time(time_ns)} of "
    return f'the {length}device time in steps "{group}"'


def all_of(facts: Row, time_ns: float | None) -> str:
    """Return what a share of everything is of: all steps, or the span of device work."""
    if not facts["has_steps"]:
        return share_of(None, time_ns)
    return "the device time in all steps" + ("" if time_ns is None else f", {time(time_ns)} a rank")


def limits(warn: float | None, critical: float | None, *, ratio: bool = False) -> str:
    """Return from where on a number is a warning and critical, to put behind its label.

    Args:
        warn: Least value that warns, a share or a ratio; None for never.
        critical: Least value that is critical.
        ratio: Whether the number is a ratio.
    """
    words = (("warn", warn), ("critical", critical))
    said = [(w, f"{v:g}x" if ratio else f"{100 * v:g} %") for w, v in words if v is not None]
    return ", ".join(f"{word} from {value}" for word, value in said)


def hint(title: str, n: int, confidence: Confidence) -> str:
    """Return the headline, marked as a hint where it rests on a handful of collectives."""
    if n >= FEW or confidence.value >= LOW_CONFIDENCE:
        return title
    return f"hint, from {amount(n, 'collective')} only: {title}"


def together(frames: Frames, comm: str, own_ns: int) -> str:
    """Return the sentence that says what all findings on a communicator put at stake together.

    Args:
        frames: With ``held_up``.
        comm: Communicator.
        own_ns: What the finding itself puts at stake; nothing is said where that is nearly all.
    """
    rows = frames["held_up"].filter(pl.col("comm") == comm)
    if rows.is_empty() or not rows["together_ns"].item():
        return ""
    row = rows.row(0, named=True)
    if own_ns >= NEARLY_ALL * row["together_ns"]:
        return ""
    parts = (
        ("waiting for ranks", "waiting"),
        ("queueing", "queueing"),
        ("slower transfers", "slower"),
    )
    said = [f"{words} {time(row[f'{name}_ns'] or None, 'none')}" for words, name in parts]
    return (
        "Do not add findings up: on this communicator all together put at most"
        f" {time(row['together_ns'])} at stake, each moment counted once ({', '.join(said)})."
    )
