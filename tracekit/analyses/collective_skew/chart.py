"""What `collective_skew` has to show: how long each rank waits."""

from __future__ import annotations

import polars as pl

from tracekit.model.chart import MOST_ROWS, Axis, Bar, Chart, Panel, Role, Rows
from tracekit.model.diagnosis import TimePart
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import duration

__all__ = ["chart", "time_parts"]


def chart(frames: Frames) -> Chart | None:
    """Return the median wait of each rank, one bar a rank and group of steps."""
    rows = frames["rank_waits"].drop_nulls("wait_median_ns")
    if rows.is_empty():
        return None
    label = pl.concat_str("rank", "step_group", separator=", ", ignore_nulls=True).alias("label")
    shown = rows.head(MOST_ROWS).with_columns(label)
    bars = tuple(
        Bar(at, 0, wait, Role.WAIT, f"{name}: median wait {duration(wait)}", duration(wait))
        for at, (name, wait) in enumerate(shown.select("label", "wait_median_ns").iter_rows())
    )
    panel = Panel(
        "Median wait of each rank per collective",
        Axis("median wait per collective", "ns", low=0),
        Rows(tuple(shown["label"])),
        bars,
    )
    caption = (
        "How long a rank that has come waits for the last one. A rank that waits little is the one "
        "that the others wait for."
    )
    if rows.height > shown.height:
        caption += f" {rows.height - shown.height} more rows are in the table."
    return Chart("Waiting of ranks", caption, (panel,))


def time_parts(frames: Frames) -> tuple[TimePart, ...]:
    """Return how much of the communication of each GPU is waiting for other ranks."""
    waits, ranks, comms = (frames[n] for n in ("rank_waits", "ranks", "communicators"))
    if waits.is_empty():
        return ()
    waited = waits.group_by("rank_id").agg((pl.col("wait_ns") + pl.col("first_wait_ns")).sum())
    by_gpu = (
        ranks.select("gpu", "rank_id")
        .unique()
        .join(waited, on="rank_id", how="left")
        .group_by("gpu")
        .agg(pl.col("wait_ns").sum())
        .sort("gpu")
    )
    is_least = not (comms["status"] == "matched").all()
    return tuple(
        TimePart(gpu, "waiting for other ranks", int(ns), is_least)
        for gpu, ns in by_gpu.iter_rows()
    )
