"""What `kernel_floor` has to show: how near the classes of kernels come to the limits."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit.analyses.kernel_floor.limits import AT_LIMIT, MIN_PURE
from tracekit.model.chart import MOST_ROWS, Axis, Bar, Chart, Mark, Panel, Role, Rows, Rule
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import count, share

__all__ = ["chart"]

_LIMITS = (
    ("dram_frac", "DRAM bandwidth used, read and write", Role.COPY),
    ("tensor_frac", "tensor cores active", Role.MATRIX_PRODUCT),
)


def chart(frames: Frames) -> Chart | None:
    """Return what classes of kernels use of DRAM bandwidth and of tensor cores."""
    known = frames["classes"].filter(pl.col("n_pure") >= MIN_PURE).head(MOST_ROWS)
    panels = tuple(
        _panel(known, column, title, role)
        for column, title, role in _LIMITS
        if known[column].is_not_null().any()
    )
    if not panels:
        return None
    return Chart(
        "How near kernels come to the limits of the hardware",
        "Means of the samples that lie at least 90% inside the kernels of a class. From the dashed"
        " line on, the kernels count as at the limit.",
        panels,
    )


def _panel(known: pl.DataFrame, column: str, title: str, role: Role) -> Panel:
    rows = known.drop_nulls(column).rows(named=True)
    labels = tuple(f"GPU {row['gpu']}: {row['kind']}" for row in rows)
    bars: list[Mark] = [
        Bar(at, 0, row[column], role, _tip(row), share(row[column])) for at, row in enumerate(rows)
    ]
    axis = Axis(title, "1", low=0, high=1)
    marks = (*bars, Rule(AT_LIMIT, "at the limit"))
    return Panel(title, axis, Rows(labels), marks, wide=False)


def _tip(row: dict[str, Any]) -> str:
    return f"{row['kind']}: {row['verdict']}, {count(row['n_pure'])} samples"
