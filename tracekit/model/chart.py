"""Charts and timeline tracks as data: what an analysis hands over, and a report draws.

A chart has no style: marks carry a *role*, what they stand for, and the report gives every role its
colour, on a light page, on a dark page and in a figure alike. Times are int64 ns, shares 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import polars as pl

__all__ = [
    "MOST_ROWS",
    "TRACK",
    "Axis",
    "Bar",
    "Chart",
    "Key",
    "Line",
    "Mark",
    "Panel",
    "Point",
    "Role",
    "Rows",
    "Rule",
    "Segments",
    "Track",
    "numbered_role",
    "role_of_kind",
]

MOST_ROWS = 30
"""Rows of categories that a chart should have at most: more cannot be read."""


class Role(StrEnum):
    """What a mark stands for; its value is the legend of the timeline."""

    COMMUNICATION = "communication"
    MATRIX_PRODUCT = "matrix product"
    ATTENTION = "attention"
    DEQUANTISATION = "dequantisation"
    COPY = "copy or memset"
    OTHER_COMPUTE = "other compute"
    OPAQUE = "opaque graph"
    STEP = "step"
    WINDOW = "window"
    HOST = "host"
    WAIT = "waiting"
    IDLE = "idle"
    SERIES_1 = "series 1"
    SERIES_2 = "series 2"
    SERIES_3 = "series 3"
    SERIES_4 = "series 4"
    SERIES_5 = "series 5"
    SERIES_6 = "series 6"


_SERIES = tuple(role for role in Role if role.name.startswith("SERIES"))
_ROLES = {
    "comm": Role.COMMUNICATION,
    "custom_comm": Role.COMMUNICATION,
    "memcpy PtoP": Role.COMMUNICATION,
    "gemm": Role.MATRIX_PRODUCT,
    "gemm_quant": Role.MATRIX_PRODUCT,
    "moe_gemm": Role.MATRIX_PRODUCT,
    "gemm_helper": Role.MATRIX_PRODUCT,
    "attention": Role.ATTENTION,
    "dequant": Role.DEQUANTISATION,
    "opaque graph": Role.OPAQUE,
    "idle": Role.IDLE,
}


def role_of_kind(kind: str | None) -> Role:
    """Return the role of a class of device work, as `tracekit.views` names the classes."""
    copies = kind is not None and kind.startswith("mem")
    return _ROLES.get(kind or "", Role.COPY if copies else Role.OTHER_COMPUTE)


def numbered_role(number: int) -> Role:
    """Return a role for the `number`-th of several things of one sort; colours go round."""
    return _SERIES[number % len(_SERIES)]


@dataclass(frozen=True)
class Axis:
    """An axis of numbers.

    Attributes:
        title: What it shows, without the unit.
        unit: "ns", "bytes", "1" (a share, drawn in percent), "x", "" for counts, or any other word.
        low: Value at its start; None to fit the marks.
        high: Value at its end; None to fit the marks.
        log: Whether equal distances are equal ratios; values must be above 0.
    """

    title: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Rows:
    """A vertical axis of categories, one row each, the first on top.

    Attributes:
        labels: Names of the rows; however long, they never take room from the marks.
        title: What the rows are, "" where their names say it.
    """

    labels: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Point:
    """A point; on `Rows`, `y` is the number of the row.

    Attributes:
        x: Place along the horizontal axis.
        y: Place along the vertical axis.
        role: What it stands for.
        tip: Text that appears under the mouse.
        interval: 95% interval of the value: of `x` on `Rows`, else of `y`.
    """

    x: float
    y: float
    role: Role
    tip: str = ""
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bar:
    """A box in a row of `Rows` from `start` to `end`.

    Bars of one row that follow each other are a stack; one a row, each from the end of the row
    above, a waterfall; boxes of equal length, shaded by a value, a heat map.

    Attributes:
        row: Number of the row.
        start: Where it begins on the horizontal axis.
        end: Where it ends.
        role: What it stands for.
        tip: Text that appears under the mouse.
        label: Text after its end.
        shade: Strength of its colour, 0..1.
    """

    row: int
    start: float
    end: float
    role: Role
    tip: str = ""
    label: str = ""
    shade: float = 1.0


@dataclass(frozen=True)
class Line:
    """A line through points.

    Attributes:
        points: (x, y) in drawing order.
        role: What it stands for.
        tip: Text that appears under the mouse.
        steps: Whether a value holds until the next point: no slope between them.
    """

    points: tuple[tuple[float, float], ...]
    role: Role
    tip: str = ""
    steps: bool = False


@dataclass(frozen=True)
class Segments:
    """Many separate straight pieces (x0, y0, x1, y1) of one role."""

    lines: tuple[tuple[float, float, float, float], ...]
    role: Role


@dataclass(frozen=True)
class Rule:
    """A dashed line across the whole panel: what values compare with.

    Attributes:
        at: Value of the axis that it crosses.
        label: What it is, "" where the caption says it.
        horizontal: Whether it crosses the vertical axis.
    """

    at: float
    label: str = ""
    horizontal: bool = False


Mark = Point | Bar | Line | Segments | Rule


@dataclass(frozen=True)
class Panel:
    """One pair of axes with marks.

    Attributes:
        title: What it shows, in one line: also read out instead of the picture.
        x: Horizontal axis.
        y: Vertical axis, growing upwards, or rows.
        marks: Drawn in this order.
        wide: Whether it has a line of the page to itself; others share one.
    """

    title: str
    x: Axis
    y: Axis | Rows
    marks: tuple[Mark, ...]
    wide: bool = True


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    label: str
    role: Role
    shade: float = 1.0


@dataclass(frozen=True)
class Chart:
    """What one analysis has to show.

    Attributes:
        title: Heading.
        caption: How to read it, one to three sentences.
        panels: At least one.
        legend: Roles that the caption does not explain.
    """

    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[Key, ...] = ()


TRACK = pl.Schema(
    {
        "gpu": pl.Int16(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kind": pl.String(),
        "name": pl.String(),
    }
)
"""Columns of `Track.spans`: session time; gpu is null for what belongs to no single GPU."""


@dataclass(frozen=True)
class Track:
    """A track of the timeline: boxes that never overlap on one GPU.

    Attributes:
        label: Its name.
        spans: Frame of `TRACK`, those that must not be missing first: a page draws 8,000.
        roles: Role of every kind in `spans`; the kinds are the legend.
        shaded: Whether its boxes are also shaded over the other tracks of their GPU.
    """

    label: str
    spans: pl.DataFrame
    roles: Mapping[str, Role] = field(default_factory=dict)
    shaded: bool = False
