"""What `allreduce_contention` has to show: slowdowns with intervals, and windows of contention."""

from __future__ import annotations

import polars as pl

from tracekit.model.chart import (
    MOST_ROWS,
    TRACK,
    Axis,
    Chart,
    Panel,
    Point,
    Role,
    Rows,
    Rule,
    Track,
    role_of_kind,
)
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import bounds, ratio, size

__all__ = ["chart", "tracks"]

_WINDOW = "contention window"


def chart(frames: Frames) -> Chart | None:
    """Return the slowdown of each group of like collectives, one row a size and partner."""
    order = ("op", "bytes", "partner")
    rows = frames["groups"].drop_nulls("slowdown_ratio").sort(order, nulls_last=True)
    if rows.is_empty():
        return None
    shown = list(rows.head(MOST_ROWS).iter_rows(named=True))
    labels = [f"{r['op'] or 'collective'} {size(r['bytes'])}, {r['partner']}" for r in shown]
    points = []
    for at, (row, label) in enumerate(zip(shown, labels, strict=True)):
        lo, hi = row["slowdown_lo_ratio"], row["slowdown_hi_ratio"]
        value = row["slowdown_ratio"]
        tip = f"{label}: {ratio(value)} {bounds(lo, hi, 'x')}, {row['n_overlapped']} against alone"
        interval = None if lo is None or hi is None else (lo, hi)
        points.append(Point(value, at, role_of_kind(row["partner"]), tip, interval))
    caption = (
        "Slowdown by size and by the overlapping work, with 95% intervals; the dashed line is no "
        "slowdown. Waiting for a late rank is not in it."
    )
    if rows.height > len(shown):
        caption += f" {rows.height - len(shown)} more groups are in the table."
    panel = Panel(
        "Slowdown of overlapped collectives, with 95% intervals",
        Axis("transfer overlapped by other work over transfer alone", "x"),
        Rows(tuple(labels)),
        (Rule(1.0), *points),
    )
    return Chart("Collectives overlapped by other work", caption, (panel,))


def tracks(frames: Frames) -> tuple[Track, ...]:
    """Return the windows in which communication met other work."""
    rows = frames["windows"]
    if rows.is_empty():
        return ()
    words = pl.format(
        "{} overlapped by {}",
        pl.col("comm").fill_null("communication"),
        pl.col("corunners").fill_null("other work"),
    )
    spans = rows.select(
        "gpu", "start_ns", "end_ns", pl.lit(_WINDOW).alias("kind"), words.alias("name")
    )
    return (Track("contention windows", spans.cast(TRACK), {_WINDOW: Role.WINDOW}, shaded=True),)
