"""Figures: one style for every analysis, the same bytes for the same input."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from typing import Any

from cycler import cycler
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tracekit.trace.analysis import Frames
from tracekit.wording.names import printable

__all__ = ["FORMATS", "OKABE_ITO", "render"]

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#7D8894", "#000000")
"""Colours that colour-blind readers can tell apart (after Okabe and Ito, 2008)."""
FORMATS: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "tracekit"},
    "png": {"Software": "tracekit"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "tracekit", "Producer": "tracekit"},
}
"""File formats with the metadata that would else hold dates and versions."""
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#555c66",
    "axes.grid": True,
    "axes.labelcolor": "#1b1f24",
    "axes.prop_cycle": cycler(color=OKABE_ITO),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 150,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#e3e7eb",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
    "svg.fonttype": "path",
    "svg.hashsalt": "tracekit",
    "text.parse_math": False,
    "xtick.color": "#555c66",
    "ytick.color": "#555c66",
}
_SIZE = (7.2, 4.2)
_ROW_INCHES = 0.3
_TALLEST = 14.0
_MARGIN_INCHES = 1.2
_FEW_DECADES = 300


def render(plot: Callable[[Frames, Any], None], frames: Frames, form: str, *, title: str) -> bytes:
    """Return what `plot` draws from `frames` as a file.

    Args:
        plot: Draws on the matplotlib axes that it is given.
        frames: Result frames of its analysis.
        form: A key of `FORMATS`.
        title: Heading.

    Returns:
        The file; b"" when there was nothing to draw.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        plot(frames, axes)
        if not math.isfinite(axes.dataLim.width):
            return b""
        figure.suptitle(printable(title), x=0.01, ha="left", fontsize=10.5)
        _fit(figure, axes)
        _plain_logarithms(axes)
        out = io.BytesIO()
        with warnings.catch_warnings():
            # Names of kernels may hold characters that the font lacks: boxes are drawn instead.
            warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
            figure.savefig(out, format=form, metadata=FORMATS[form])
    return out.getvalue()


def _fit(figure: Figure, axes: Axes) -> None:
    """Make room for categories along the y axis, and draw no line between or along them."""
    labels = [t for t in axes.get_yticklabels() if t.get_text()]
    lines = sum(t.get_text().count("\n") + 1 for t in labels)
    if axes.yaxis.have_units() and labels:
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        ends = (-0.5, len(labels) - 0.5)
        axes.set_ylim(*(ends[::-1] if axes.yaxis_inverted() else ends))
        height = min(_TALLEST, max(2.4, _MARGIN_INCHES + _ROW_INCHES * lines))
        figure.set_size_inches(_SIZE[0], height)


def _plain_logarithms(axes: Axes) -> None:
    """Print ticks of logarithmic axes as plain numbers; nothing is read as a formula."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            within = (1.0, 2.0, 5.0) if high < low * _FEW_DECADES else (1.0,)
            axis.set_major_locator(LogLocator(subs=within, numticks=9))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
            axis.set_minor_formatter(NullFormatter())
