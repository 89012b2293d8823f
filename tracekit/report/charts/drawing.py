"""A drawing: shapes at places of a picture, before any file format.

Units are pixels of a screen, y grows downwards. ``kind`` is a class of the style sheet: the name of
a colour or of a sort of line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["TEXT_SIZE", "Anchor", "Box", "Dot", "Drawing", "Path", "Shape", "Text", "text_width"]

TEXT_SIZE = 11.5
"""Height of the letters in pixels."""
_NARROW, _WIDE = frozenset(" .,:;'|!ijltfrI()[]-/"), frozenset("mwMW@%")
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Box:
    """A filled box."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    shade: float = 1.0
    tip: str = ""


@dataclass(frozen=True)
class Path:
    """Polylines drawn with one pen."""

    lines: tuple[tuple[tuple[float, float], ...], ...]
    kind: str
    tip: str = ""


@dataclass(frozen=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    kind: str
    tip: str = ""


@dataclass(frozen=True)
class Text:
    """A line of text; `y` is its base line.

    A `kind` of "name" or "heading" is darker, one with "over" keeps lines below it off its letters;
    `turned` text reads upwards.
    """

    x: float
    y: float
    words: str
    anchor: Anchor = "start"
    kind: str = ""
    turned: bool = False
    tip: str = ""


Shape = Box | Path | Dot | Text


@dataclass(frozen=True)
class Drawing:
    """Shapes within a picture of `width` by `height` pixels; `label` says what it shows."""

    label: str
    width: float
    height: float
    shapes: tuple[Shape, ...]

    def moved(self, right: float, down: float) -> tuple[Shape, ...]:
        """Return the shapes at another place."""
        return tuple(_moved(shape, right, down) for shape in self.shapes)


def _moved(shape: Shape, right: float, down: float) -> Shape:
    if isinstance(shape, Path):
        lines = tuple(tuple((x + right, y + down) for x, y in line) for line in shape.lines)
        return replace(shape, lines=lines)
    return replace(shape, x=shape.x + right, y=shape.y + down)


def text_width(words: str) -> float:
    """Return an estimate of the width of `words` in pixels, rather too wide than too narrow."""
    ems = (0.4 if c in _NARROW else 1.0 if c in _WIDE or ord(c) > 0x2E80 else 0.645 for c in words)
    return TEXT_SIZE * sum(ems)
