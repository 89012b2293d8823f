"""A chart as PNG or PDF, drawn by matplotlib from the same shapes as the SVG."""

from __future__ import annotations

import io
import warnings
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from tracekit.model.chart import Chart
from tracekit.report.charts import layout
from tracekit.report.charts.drawing import TEXT_SIZE, Box, Dot, Path, Shape, Text
from tracekit.report.charts.palette import LIGHT

__all__ = ["FORMATS", "render"]

FORMATS: dict[str, dict[str, str | None]] = {
    "png": {"Software": "tracekit"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "tracekit", "Producer": "tracekit"},
}
"""File formats with the metadata that would else hold dates and versions."""
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "path.simplify": False,
}
_PIXELS_PER_INCH = 96.0
_POINTS = 72.0 / _PIXELS_PER_INCH
_DOTS_PER_INCH = 192
_PENS: dict[str, dict[str, Any]] = {
    "tick": {"color": LIGHT["line"], "linewidth": 1 * _POINTS},
    "rule": {"color": LIGHT["fg"], "linewidth": 1.2 * _POINTS, "dashes": (4, 3)},
    "whisker": {"color": LIGHT["fg"], "linewidth": 2 * _POINTS},
}
_WIDE_PEN = 2.4 * _POINTS
_EDGE = 0.7 * _POINTS
_HEADING_SIZE = 13.0
_HALO = withStroke(linewidth=4 * _POINTS, foreground=LIGHT["bg"])


def render(chart: Chart, form: str) -> bytes:
    """Return `chart` as a file of the format `form`, a key of `FORMATS`."""
    drawing = layout.figure(chart)
    with rc_context(_STYLE):
        inches = (drawing.width / _PIXELS_PER_INCH, drawing.height / _PIXELS_PER_INCH)
        figure = Figure(figsize=inches, dpi=_DOTS_PER_INCH, facecolor=LIGHT["bg"])
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, drawing.width)
        axes.set_ylim(drawing.height, 0)
        axes.set_axis_off()
        for order, shape in enumerate(drawing.shapes):
            _draw(axes, shape, order)
        out = io.BytesIO()
        with warnings.catch_warnings():
            # Names of kernels may hold characters that the font lacks: boxes are drawn instead.
            warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
            figure.savefig(out, format=form, dpi=_DOTS_PER_INCH, metadata=FORMATS[form])
    return out.getvalue()


def _draw(axes: Axes, shape: Shape, order: int) -> None:
    match shape:
        case Box():
            corner = (shape.x, shape.y)
            colour, shade = LIGHT[shape.kind], shape.shade
            box = Rectangle(corner, shape.width, shape.height, alpha=shade, zorder=order)
            box.set(fc=colour, ec=LIGHT["muted"], lw=_EDGE if shape.kind == "idle" else 0)
            axes.add_patch(box)
        case Dot():
            axes.plot(
                [shape.x],
                [shape.y],
                "o",
                color=LIGHT[shape.kind],
                markersize=9 * _POINTS,
                markeredgecolor=LIGHT["bg"],
                markeredgewidth=_POINTS,
                zorder=order,
            )
        case Path():
            _path(axes, shape, order)
        case Text():
            _text(axes, shape, order)


def _path(axes: Axes, path: Path, order: int) -> None:
    """One polyline object for all pieces: a gap is a point that is not a number."""
    xs: list[float] = []
    ys: list[float] = []
    for line in path.lines:
        xs += [*(x for x, _ in line), float("nan")]
        ys += [*(y for _, y in line), float("nan")]
    colour = path.kind.removeprefix("run ")
    wide = (
        {"color": LIGHT["muted" if colour == "idle" else colour], "linewidth": _WIDE_PEN}
        if colour != path.kind
        else {}
    )
    axes.plot(xs, ys, solid_capstyle="round", zorder=order, **(wide or _PENS[path.kind]))


def _text(axes: Axes, text: Text, order: int) -> None:
    alignments = {"start": "left", "middle": "center", "end": "right"}
    kinds = set(text.kind.split())
    heading = "heading" in kinds
    axes.text(
        text.x,
        text.y,
        text.words,
        ha=alignments[text.anchor],
        va="baseline" if not text.turned else "center",
        rotation=90 if text.turned else 0,
        fontsize=(_HEADING_SIZE if heading else TEXT_SIZE) * _POINTS,
        fontweight="bold" if heading else "normal",
        color=LIGHT["fg" if {"name", "heading"} & kinds else "muted"],
        path_effects=[_HALO] if "over" in kinds else None,
        zorder=order,
    )
