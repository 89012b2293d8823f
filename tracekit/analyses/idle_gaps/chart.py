"""What `idle_gaps` has to show: idle time of step groups by kind of cause, and where it lies."""

from __future__ import annotations

import polars as pl

from tracekit.model.chart import (
    MOST_ROWS,
    TRACK,
    Axis,
    Bar,
    Chart,
    Key,
    Panel,
    Role,
    Rows,
    Track,
    numbered_role,
)
from tracekit.trace.analysis import Frames
from tracekit.views.idle.families import FAMILIES
from tracekit.wording.numbers import duration, share

__all__ = ["chart", "tracks"]

_ROLES: dict[str, Role] = {
    name: numbered_role(number)
    for number, name in enumerate(n for n in FAMILIES if n not in ("artefact", "unknown"))
} | {"artefact": Role.HOST, "unknown": Role.IDLE}


def chart(frames: Frames) -> Chart | None:
    """Return the idle share of each step group and GPU, divided by kind of cause."""
    rows = frames["families"].filter((pl.col("idle_ns") > 0) & (pl.col("time_ns") > 0))
    if rows.is_empty():
        return None
    groups = rows.partition_by("gpu", "step_group", maintain_order=True)
    groups.sort(key=lambda own: -int(own["idle_ns"].sum()))
    bars: list[Bar] = []
    for at, own in enumerate(groups[:MOST_ROWS]):
        left = 0.0
        for family, idle, time in own.select("family", "idle_ns", "time_ns").iter_rows():
            tip = f"{family}: {duration(idle)}, {share(idle / time)}"
            bars.append(Bar(at, left, left + idle / time, _ROLES[family], tip))
            left += idle / time
    labels = tuple(_label(own) for own in groups[:MOST_ROWS])
    panel = Panel(
        "Idle share of step time by kind of cause",
        Axis("idle over step time", "1", low=0),
        Rows(labels),
        tuple(bars),
    )
    named = set(rows["family"])
    legend = tuple(Key(name, _ROLES[name]) for name in FAMILIES if name in named)
    caption = "Time of the steps and between them in which nothing ran, by why nothing ran."
    return Chart("Idle time by cause", caption, (panel,), legend)


def _label(own: pl.DataFrame) -> str:
    gpu, group = own.select("gpu", "step_group").row(0)
    where = "GPU unknown" if gpu is None else f"GPU {gpu}"
    return f"{where}: {group or 'whole span'}"


def tracks(frames: Frames) -> tuple[Track, ...]:
    """Return the longest pieces of idle time with their causes."""
    rows = frames["longest"]
    if rows.is_empty():
        return ()
    spans = rows.select("gpu", "start_ns", "end_ns", pl.col("family").alias("kind"), name="cause")
    return (Track("idle, by cause", spans.cast(TRACK), _ROLES),)
