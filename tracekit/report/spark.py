"""Sparklines: how one column of a table runs over its rows, in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

__all__ = ["WIDTH", "sparkline"]

WIDTH = 40
_BARS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"


def sparkline(values: Sequence[float | int | None], width: int = WIDTH) -> str:
    """Return one character for every run of rows: the mean of the run between zero and the maximum.

    Args:
        values: One number a row, None or NaN where not measured.
        width: Characters at most; no more than there are values.

    Returns:
        A line of block characters from low to high, ``·`` where a run holds no number. Bars start
        at zero unless a value is negative, so that their heights compare.
    """
    runs = min(width, len(values))
    if not runs:
        return ""
    edges = [len(values) * i // runs for i in range(runs + 1)]
    means = [_mean(values[a:b]) for a, b in pairwise(edges)]
    known = [m for m in means if m is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    return "".join(_NOTHING if m is None else _bar(m, low, high) for m in means)


def _mean(values: Sequence[float | int | None]) -> float | None:
    known = [float(v) for v in values if v is not None and math.isfinite(v)]
    return math.fsum(known) / len(known) if known else None


def _bar(value: float, low: float, high: float) -> str:
    if high <= low:
        return _BARS[0]
    return _BARS[min(len(_BARS) - 1, int((value - low) / (high - low) * len(_BARS)))]
