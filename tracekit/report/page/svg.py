"""Small charts as SVG text: axes with units, points with intervals, paths.

Colours are class names (``c1`` ... ``c9``) of the page's style sheet, so that a chart follows the
page between light and dark. Everything that holds text escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

__all__ = ["Axis", "Chart", "linear", "log2", "nice_ticks"]

_TICKS = 5
_HEIGHT_OF_TEXT = 12
_LONGEST = 72


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        title: What it shows, unit included.
        low: Value at its start.
        high: Value at its end; above `low`.
        ticks: Values with their text, within `low` and `high`.
        log: Whether distances are ratios.
    """

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def frac(self, value: float) -> float:
        """Return where `value` lies, 0 at the start and 1 at the end of the axis."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def nice_ticks(low: float, high: float, most: int = _TICKS) -> list[float]:
    """Return at most `most` + 1 round values within [low, high], evenly spaced."""
    if high <= low:
        return [low]
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def linear(title: str, low: float, high: float, text: Callable[[float], str]) -> Axis:
    """Return an axis from `low` to `high` with round ticks printed by `text`."""
    high = high if high > low else low + 1
    return Axis(title, low, high, tuple((t, text(t)) for t in nice_ticks(low, high)))


def log2(title: str, low: float, high: float, text: Callable[[float], str]) -> Axis:
    """Return an axis whose ticks are powers of two, from the one below `low` to that above."""
    first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
    last = max(last, first + 1)
    every = max(1, math.ceil((last - first) / _TICKS))
    ticks = tuple((2.0**k, text(2.0**k)) for k in range(first, last + 1, every))
    return Axis(title, 2.0**first, 2.0**last, ticks, log=True)


@dataclass
class Chart:
    """A chart that is being drawn.

    Attributes:
        label: What it shows, in one sentence: read out instead of the picture.
        x: Axis along the bottom.
        y: Axis along the left side, growing upwards.
        width: Units of the picture; the page scales it.
        height: Units.
        left: Room for the texts of the y axis.
    """

    label: str
    x: Axis
    y: Axis
    width: int = 440
    height: int = 260
    left: int = 58
    parts: list[Markup] = field(default_factory=list)
    _top: int = 10
    _right: int = 14
    _bottom: int = 46

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point in the picture."""
        across = self.width - self.left - self._right
        up = self.height - self._top - self._bottom
        return self.left + self.x.frac(x) * across, self._top + (1 - self.y.frac(y)) * up

    def bar(
        self, x: tuple[float, float], y: tuple[float, float], colour: str, tip: str = ""
    ) -> None:
        """Draw a filled box between two points."""
        (x0, y0), (x1, y1) = self.at(x[0], y[1]), self.at(x[1], y[0])
        title = _tip(tip)
        self.parts.append(
            Markup(
                '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">{}</rect>'
            ).format(colour, x0, y0, max(0.5, x1 - x0), max(0.5, y1 - y0), title)
        )

    def point(
        self,
        x: float,
        y: float,
        colour: str,
        tip: str,
        *,
        interval: tuple[float, float] | None = None,
        across: bool = False,
    ) -> None:
        """Draw a point, with its interval upwards and downwards (or `across`)."""
        px, py = self.at(x, y)
        if interval is not None:
            low, high = interval
            ends = ((low, y), (high, y)) if across else ((x, low), (x, high))
            (ax, ay), (bx, by) = self.at(*ends[0]), self.at(*ends[1])
            self.parts.append(
                Markup('<path class="{} whisker" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>').format(
                    colour, ax, ay, bx, by
                )
            )
        self.parts.append(
            Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="4.5">{}</circle>').format(
                colour, px, py, _tip(tip)
            )
        )

    def segments(self, lines: Sequence[tuple[float, float, float, float]], colour: str) -> None:
        """Draw many short lines (x0, y0, x1, y1) as one path, each at least a dot long."""
        steps = []
        for x0, y0, x1, y1 in lines:
            (ax, ay), (bx, by) = self.at(x0, y0), self.at(x1, y1)
            steps.append(f"M{ax:.1f} {ay:.1f}l{max(0.1, bx - ax):.1f} {by - ay:.1f}")
        self.parts.append(Markup('<path class="{} run" d="{}"/>').format(colour, "".join(steps)))

    def rule(self, x: float) -> None:
        """Draw a line upwards at `x`: what to compare with."""
        (px, low), (_, high) = self.at(x, self.y.low), self.at(x, self.y.high)
        self.parts.append(
            Markup('<path class="rule" d="M{:.1f} {:.1f}V{:.1f}"/>').format(px, low, high)
        )

    def text(self, x: float, y: float, words: str, *, end: bool = False) -> None:
        """Write beside a point."""
        px, py = self.at(x, y)
        anchor = "end" if end else "start"
        self.parts.append(_text(px, py + 4, words, anchor))

    def svg(self) -> Markup:
        """Return the finished picture."""
        return Markup(
            '<svg class="chart" role="img" viewBox="0 0 {} {}" aria-label="{}">{}{}</svg>'
        ).format(
            self.width,
            self.height,
            self.label,
            Markup("").join(self._axes()),
            Markup("").join(self.parts),
        )

    def _axes(self) -> list[Markup]:
        left, right = self.left, self.width - self._right
        bottom = self.height - self._bottom
        out = []
        for value, words in self.x.ticks:
            x, _ = self.at(value, self.y.low)
            out.append(
                Markup('<path class="tick" d="M{:.1f} {}V{}"/>').format(x, self._top, bottom)
            )
            out.append(_text(x, bottom + _HEIGHT_OF_TEXT + 3, words, "middle"))
        for value, words in self.y.ticks:
            _, y = self.at(self.x.low, value)
            out.append(Markup('<path class="tick" d="M{} {:.1f}H{}"/>').format(left, y, right))
            out.append(_text(left - 6, y + 4, words, "end"))
        out.append(_text((left + right) / 2, self.height - 8, self.x.title, "middle", "name"))
        middle = (self._top + bottom) / 2
        if self.y.title:
            turned = Markup(
                '<text class="name" text-anchor="middle" '
                'transform="translate(11 {:.1f}) rotate(-90)">{}</text>'
            )
            out.append(turned.format(middle, self.y.title))
        return out


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> Markup:
    return Markup('<text class="{}" text-anchor="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
        kind, anchor, x, y, words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
    )


def _tip(words: str) -> Markup:
    return Markup("<title>{}</title>").format(words) if words else Markup("")
