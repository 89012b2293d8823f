"""From values of an axis to places, with round ticks and their text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tracekit.model.chart import Axis, Bar, Line, Panel, Point, Rows, Rule, Segments
from tracekit.wording.numbers import scale_of

__all__ = ["Scale", "fitted", "nice_ticks", "x_values", "y_values"]

_ROUND = (1, 2, 5, 10)
_DECADES = ((1,), (1, 5), (1, 2, 5))
_ROOM = 0.04
_ON_TICKS = frozenset(("ns", "bytes"))
"""Units of which a logarithmic axis needs several: they stand on the ticks."""


@dataclass(frozen=True)
class Scale:
    """An axis that knows its ends.

    Attributes:
        title: What it shows, unit included.
        low: Value at its start.
        high: Value at its end; above `low`.
        unit: Unit of the values.
        log: Whether distances are ratios.
    """

    title: str
    low: float
    high: float
    unit: str
    log: bool

    def frac(self, value: float) -> float:
        """Return where `value` lies, 0 at the start and 1 at the end of the axis."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return at most `most` + 1 values within the axis, each with its text."""
        return self._decades(most) if self.log else self._even(most)

    def _even(self, most: int) -> list[tuple[float, str]]:
        factor = _shared(self.low, self.high, self.unit)[0]
        values = nice_ticks(self.low / factor, self.high / factor, most)
        step = values[1] - values[0] if len(values) > 1 else abs(values[0]) or 1.0
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(v * factor, f"{v + 0.0:,.{digits}f}") for v in values]

    def _decades(self, most: int) -> list[tuple[float, str]]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every, found = 1, list[float]()
        for subs in reversed(_DECADES):
            found = [s * 10.0**d for d in range(first, last + 1) for s in subs]
            found = [v for v in found if self.low * 0.999 <= v <= self.high * 1.001]
            if len(found) <= most + 1:
                break
        while len(found[::every]) > most + 1:
            every += 1
        return [(v, self._own(v)) for v in found[::every]]

    def _own(self, value: float) -> str:
        """The text of a tick with its own unit."""
        if self.unit not in _ON_TICKS:
            return f"{value / _shared(self.low, self.high, self.unit)[0]:,.12g}"
        factor, unit = _shared(value, value, self.unit)
        return f"{value / factor:,.6g} {unit}"


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` + 1 round values within [low, high], evenly spaced."""
    if high <= low:
        return [low]
    raw = (high - low) / max(most, 1)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in _ROUND if m * size >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)] or [low]


def fitted(axis: Axis, values: Iterable[float]) -> Scale:
    """Return the scale of `axis`, its open ends fitted to the finite ones of `values`.

    Without a value it goes from 0 to 1, a logarithmic one from 1 to 10.
    """
    known = [v for v in values if math.isfinite(v) and (v > 0 or not axis.log)]
    low = axis.low if axis.low is not None else min(known, default=1.0 if axis.log else 0.0)
    high = axis.high if axis.high is not None else max(known, default=low)
    if axis.log:
        if high <= low:
            low, high = low / 2, high * 2
        more = (high / low) ** _ROOM
        low, high = axis.low or low / more, axis.high or high * more
    else:
        high = high if high > low else low + (abs(low) or 1.0)
        more = _ROOM * (high - low)
        low = low if axis.low is not None or low == 0 else low - more
        high = high if axis.high is not None else high + more
    return Scale(_titled(axis, low, high), low, high, axis.unit, axis.log)


def _titled(axis: Axis, low: float, high: float) -> str:
    unit = _shared(low, high, axis.unit)[1]
    if not unit or (axis.log and axis.unit in _ON_TICKS):
        return axis.title
    return f"{axis.title} ({unit})"


def _shared(low: float, high: float, unit: str) -> tuple[float, str]:
    """Factor and name of the unit in which values up to the larger end are short."""
    scale = scale_of([max(abs(low), abs(high))], unit)
    return scale.factor, scale.unit


def x_values(panel: Panel) -> Iterable[float]:
    """Yield every value that the horizontal axis of a panel must hold."""
    on_rows = isinstance(panel.y, Rows)
    for mark in panel.marks:
        match mark:
            case Point():
                yield mark.x
                yield from (mark.interval or ()) if on_rows else ()
            case Bar():
                yield from (mark.start, mark.end)
            case Line():
                yield from (x for x, _ in mark.points)
            case Segments():
                yield from (x for line in mark.lines for x in line[::2])
            case Rule(horizontal=False):
                yield mark.at
            case _:
                pass


def y_values(panel: Panel) -> Iterable[float]:
    """Yield every value that the vertical axis of a panel must hold."""
    for mark in panel.marks:
        match mark:
            case Point():
                yield mark.y
                yield from mark.interval or ()
            case Line():
                yield from (y for _, y in mark.points)
            case Segments():
                yield from (y for line in mark.lines for y in line[1::2])
            case Rule(horizontal=True):
                yield mark.at
            case _:
                pass
