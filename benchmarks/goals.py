"""What tracekit aims at, and whether a set of measurements reaches it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.processes import Series

__all__ = ["Verdict", "exponent", "verdicts"]

KERNELS, SAMPLES, FILTERED, TEXT = (
    "kernel, 8 of 28 columns",
    "GPU_METRICS, 4 of 5 columns",
    "GPU_METRICS, 2 of 25 metrics",
    "NVTX, 7 of 20 columns with text",
)
PAGES = "tracekit pages"
FREE = "tracekit analyze"
GOAL_KERNELS = 5_000_000
FLAT = 1.15
"""How much memory may differ between sizes and still count as flat."""


@dataclass(frozen=True)
class Verdict:
    """One goal.

    Attributes:
        goal: What was aimed at.
        unit: Of `limit` and `measured`.
        limit: The bound.
        at_least: Whether larger is better.
        measured: The measurement; None when it was not made.
    """

    goal: str
    unit: str
    limit: float
    at_least: bool
    measured: float | None

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None when nothing was measured."""
        if self.measured is None:
            return None
        return (self.measured >= self.limit) == self.at_least or self.measured == self.limit

    @property
    def miss(self) -> float | None:
        """How many times the measurement is on the wrong side of the bound; None when met."""
        if self.measured is None or self.met:
            return None
        factor = self.measured / self.limit
        return 1 / factor if self.at_least else factor


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the slope of log(value) over log(size), by least squares; None below two sizes."""
    if len(set(sizes)) < 2 or min(values) <= 0:
        return None
    x, y = [math.log(v) for v in sizes], [math.log(v) for v in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    across = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return across / sum((a - mean_x) ** 2 for a in x)


class _Book:
    """Looks measurements up."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._of = {(s.suite, s.work, s.way): s for s in series if s.suite != "growth"}
        self.growth = [s for s in series if s.suite == "growth" and s.runs]

    def ratio(self, suite: str, work: str, slow: str, fast: str) -> float | None:
        """Return how many times longer `slow` takes."""
        a, b = (self._of.get((suite, work, way)) for way in (slow, fast))
        if a is None or b is None or a.seconds is None or b.seconds is None:
            return None
        return a.seconds / b.seconds

    def load(self, work: str, rival: str) -> float | None:
        """Return how many times longer a rival's load takes; for cat, its inverse.

        Where both were measured on the large report, that is what counts.
        """
        pair = (PAGES, rival) if rival == "cat" else (rival, PAGES)
        large = self.ratio("large-loads", work, *pair)
        return self.ratio("loads", work, *pair) if large is None else large

    def share(self, part: str, whole: str) -> float | None:
        """Return how long tracekit's load of a part takes, against that of the whole."""
        below, above = (self.one("loads", work, PAGES) for work in (part, whole))
        if below is None or above is None or below.seconds is None or above.seconds is None:
            return None
        return below.seconds / above.seconds

    def one(self, suite: str, work: str, way: str) -> Series | None:
        """Return a series, if it was measured."""
        found = self._of.get((suite, work, way))
        return found if found is not None and found.runs else None

    def slope(self, kind: str) -> float | None:
        """Return the exponent of seconds or peak_bytes over the sizes, without a budget."""
        free = [s for s in self.growth if s.way == FREE and getattr(s, kind) is not None]
        return exponent([s.kernels for s in free], [getattr(s, kind) for s in free])

    def at_goal(self, kind: str) -> tuple[float | None, str]:
        """Return seconds or peak_bytes at `GOAL_KERNELS`, and a word when it is extrapolated.

        Extrapolated means along the line through the two largest sizes.
        """
        free = [s for s in self.growth if s.way == FREE and getattr(s, kind) is not None]
        points = sorted((s.kernels, float(getattr(s, kind))) for s in free)
        if points and points[-1][0] >= GOAL_KERNELS:
            return points[-1][1], ""
        if len(points) < 2:
            return None, ""
        (n0, v0), (n1, v1) = points[-2:]
        return v1 + (v1 - v0) / (n1 - n0) * (GOAL_KERNELS - n1), " (extrapolated)"

    def bound_spread(self) -> float | None:
        """Return the largest over the smallest peak where the budget binds."""
        bound = [s for s in self.growth if s.way.startswith(f"{FREE} --memory")]
        peaks = [s.peak_bytes for s in bound if s.kernels > min(b.kernels for b in bound)]
        known = [p for p in peaks if p is not None]
        return max(known) / min(known) if len(known) > 1 else None


def verdicts(series: Sequence[Series]) -> list[Verdict]:
    """Return every goal with its measurement."""
    book = _Book(series)
    found = [
        Verdict(f"{work}: tracekit against {rival}", "x", limit, rival != "cat", measured)
        for work, rival, limit in (
            (KERNELS, "pandas.read_sql", 25),
            (KERNELS, "connectorx", 3),
            (KERNELS, "cat", 1.5),
            (SAMPLES, "pandas.read_sql", 60),
            (SAMPLES, "connectorx", 8),
            (SAMPLES, "cat", 1.2),
            (TEXT, "pandas.read_sql", 10),
            (TEXT, "connectorx", 2),
        )
        for measured in [book.load(work, rival)]
    ]
    share = book.share(FILTERED, SAMPLES)
    found.append(Verdict("GPU_METRICS with a filter against all rows", "x", 1, False, share))
    return [*found, *_whole(book), *_growth(book), *_start(book)]


def _whole(book: _Book) -> list[Verdict]:
    pandas = book.ratio("whole", "all analyses", "pandas script", "tracekit analyze")
    nsys_ai = book.ratio(
        "tools", "all analyses", "nsys-ai diagnose (GPU 0 only)", "tracekit analyze"
    )
    seconds, how = book.at_goal("seconds")
    peak, _ = book.at_goal("peak_bytes")
    return [
        Verdict(f"all analyses at 5M kernels{how}", "s", 8, False, seconds),
        Verdict(f"anonymous memory at 5M kernels{how}", "GB", 1.5, False, peak and peak / 1e9),
        Verdict("all analyses against the pandas script", "x", 10, True, pandas),
        Verdict("all analyses against nsys-ai diagnose", "x", 5, True, nsys_ai),
    ]


def _growth(book: _Book) -> list[Verdict]:
    flat = "largest over smallest peak once --memory binds"
    return [
        Verdict("exponent of time", "", 1.05, False, book.slope("seconds")),
        Verdict("exponent of memory", "", 1.05, False, book.slope("peak_bytes")),
        Verdict(flat, "x", FLAT, False, book.bound_spread()),
    ]


def _start(book: _Book) -> list[Verdict]:
    smallest = book.one("cold", "start", "analyze nvtx_only_2022_4 (smallest)")
    kernels = book.one("cold", "start", "analyze int4_dequant (has kernels)")
    return [
        Verdict("smallest fixture end to end, warm", "s", 1, False, _seconds(smallest)),
        Verdict("smallest with kernels end to end, warm", "s", 1, False, _seconds(kernels)),
        Verdict("200k nested ranges, 200k kernels: memory", "MB", 300, False, _nested_mb(book)),
    ]


def _seconds(series: Series | None) -> float | None:
    return None if series is None else series.seconds


def _nested_mb(book: _Book) -> float | None:
    nested = book.one("nesting", "innermost ranges", "tracekit")
    if nested is None or nested.peak_bytes is None:
        return None
    before = [r.said["before_bytes"] for r in nested.runs if r.said.get("before_bytes")]
    return (nested.peak_bytes - min(before)) / 1e6 if before else None
