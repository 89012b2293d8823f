"""The section of charts: what analyses handed over, panel by panel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from tracekit.model.chart import Chart
from tracekit.report.charts.palette import colour_name
from tracekit.report.charts.svg import panel_svg
from tracekit.wording.names import printable

__all__ = ["Picture", "pictures"]


@dataclass(frozen=True)
class Picture:
    """One chart as the page's template draws it.

    Attributes:
        title: Heading.
        caption: How to read it.
        legend: Label, class of the colour, and its shade (0..1).
        groups: Whether panels stand side by side, and (title, SVG) of each; in order.
    """

    title: str
    caption: str
    legend: tuple[tuple[str, str, float], ...]
    groups: tuple[tuple[bool, tuple[tuple[str, Markup], ...]], ...]


def pictures(charts: Iterable[Chart]) -> tuple[Picture, ...]:
    """Return charts ready for the template, in their order."""
    return tuple(_picture(chart) for chart in charts)


def _picture(chart: Chart) -> Picture:
    alone = len(chart.panels) == 1
    groups = tuple(
        (not wide, tuple(("" if alone else printable(p.title), panel_svg(p)) for p in panels))
        for wide, panels in groupby(chart.panels, key=lambda p: p.wide)
    )
    legend = tuple((printable(key.label), colour_name(key.role), key.shade) for key in chart.legend)
    return Picture(printable(chart.title), printable(chart.caption), legend, groups)
