"""The one writer of SVG: a panel for a page that brings its style, a whole chart as a file."""

from __future__ import annotations

from importlib import resources

from markupsafe import Markup, escape

from tracekit.model.chart import Chart, Panel
from tracekit.report.charts.drawing import Box, Dot, Drawing, Path, Shape, Text
from tracekit.report.charts.layout import figure, panel_drawing
from tracekit.report.charts.palette import fills, light_only

__all__ = ["STYLE", "chart_file", "panel_svg"]

STYLE = (resources.files("tracekit.report") / "templates" / "chart.css").read_text("utf-8")
"""Style of charts, with the variables of `palette.style`."""
_FONTS = "'DejaVu Sans', Verdana, sans-serif"


def panel_svg(panel: Panel) -> Markup:
    """Return a panel as an SVG element; its colours are those of the page around it."""
    return _svg(panel_drawing(panel), "", "")


def chart_file(chart: Chart) -> bytes:
    """Return a whole chart as an SVG file on white ground, readable without the page."""
    drawn = figure(chart)
    css = light_only(f"svg.chart {{ font-family: {_FONTS}; }}\n{fills()}{STYLE}")
    ground = Box(0, 0, drawn.width, drawn.height, "ground")
    whole = Drawing(drawn.label, drawn.width, drawn.height, (ground, *drawn.shapes))
    inner = Markup("<style>{}</style>").format(Markup(css))
    size = f'xmlns="http://www.w3.org/2000/svg" width="{drawn.width:g}" height="{drawn.height:g}" '
    return (str(_svg(whole, size, inner)) + "\n").encode()


def _svg(drawing: Drawing, attributes: str, head: str) -> Markup:
    return Markup(
        '<svg class="chart" role="img" {}viewBox="0 0 {:g} {:g}" aria-label="{}">{}{}</svg>'
    ).format(
        Markup(attributes),
        drawing.width,
        drawing.height,
        drawing.label,
        head,
        Markup("").join(_shape(shape) for shape in drawing.shapes),
    )


def _shape(shape: Shape) -> Markup:
    match shape:
        case Box():
            shade = "" if shape.shade >= 1 else f' fill-opacity="{shape.shade:.3g}"'
            return Markup(
                '<rect class="{}"{} x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">{}</rect>'
            ).format(
                shape.kind,
                Markup(shade),
                shape.x,
                shape.y,
                shape.width,
                shape.height,
                _tip(shape.tip),
            )
        case Dot():
            return Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="4.5">{}</circle>').format(
                shape.kind, shape.x, shape.y, _tip(shape.tip)
            )
        case Path():
            return Markup('<path class="{}" d="{}">{}</path>').format(
                shape.kind, "".join(map(_polyline, shape.lines)), _tip(shape.tip)
            )
        case Text():
            return _text(shape)


def _polyline(line: tuple[tuple[float, float], ...]) -> str:
    first, *rest = (f"{x:.1f} {y:.1f}" for x, y in line)
    return f"M{first}" + "".join(f"L{place}" for place in rest)


def _text(text: Text) -> Markup:
    place = f'x="{text.x:.1f}" y="{text.y:.1f}"'
    if text.turned:
        place = f'transform="translate({text.x:.1f} {text.y:.1f}) rotate(-90)"'
    return Markup('<text class="{}" text-anchor="{}" {}>{}{}</text>').format(
        text.kind, text.anchor, Markup(place), escape(text.words), _tip(text.tip)
    )


def _tip(words: str) -> Markup:
    return Markup("<title>{}</title>").format(words) if words else Markup("")
