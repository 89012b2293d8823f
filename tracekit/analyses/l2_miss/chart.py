"""What `l2_miss` has to show: hit rates of layers against how their KV cache lies."""

from __future__ import annotations

import polars as pl

from tracekit.model.chart import Axis, Chart, Panel, Point, Role, Rule
from tracekit.trace.analysis import Frames
from tracekit.wording.names import short_name
from tracekit.wording.numbers import bounds, share, size

__all__ = ["chart"]

_AGAINST = (
    ("stride_median_bytes", "median distance of neighbouring KV blocks"),
    ("line_bytes", "cache lines that the layer's KV blocks touch"),
    ("span_bytes", "lowest to highest KV address"),
)


def chart(frames: Frames) -> Chart | None:
    """Return the sampled hit rate of layers against distance and footprint of their blocks."""
    layers = frames["layers"].drop_nulls("hit_frac")
    l2_bytes = tuple(frames["counters"]["l2_bytes"].drop_nulls().unique().sort())
    panels = tuple(
        _against(own, column, title, l2_bytes)
        for column, title in _AGAINST
        if (own := layers.filter(pl.col(column) > 0))[column].n_unique() > 1
    )
    if not panels:
        return None
    return Chart(
        "L2 hit rate of layers",
        "One point a layer, with the 95% interval over its kernel executions (often smaller "
        "than the point). The dashed line is the size of the L2. An association is no cause.",
        panels,
    )


def _against(layers: pl.DataFrame, column: str, title: str, l2_bytes: tuple[int, ...]) -> Panel:
    points = []
    for row in layers.iter_rows(named=True):
        lo, hi = row["hit_lo_frac"], row["hit_hi_frac"]
        tip = (
            f"layer {row['layer']} {short_name(row['label'] or '', 50)}: hit rate "
            f"{share(row['hit_frac'])} {bounds(lo, hi, '1')}, {size(row[column])}"
        )
        interval = None if lo is None or hi is None else (lo, hi)
        points.append(Point(row[column], row["hit_frac"], Role.ATTENTION, tip, interval))
    return Panel(
        f"Against {title}",
        Axis(title, "bytes", log=True),
        Axis("sampled L2 hit rate", "1", low=0),
        (*(Rule(n, f"L2 {size(n)}") for n in l2_bytes), *points),
        wide=False,
    )
