"""The frames that only the timeline needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.table import Column, Table
from tracekit.trace import Trace, View, view
from tracekit.views.counters import metrics
from tracekit.views.counters.metrics import Counter
from tracekit.views.device.activity import OPAQUE, activity, identified, used_gpus
from tracekit.views.device.kernels import kernel_names
from tracekit.views.device.lanes import COMM_KINDS
from tracekit.views.launches.attribution import attribution, steps

__all__ = [
    "LANES",
    "PICTURES",
    "SAMPLES",
    "WORK",
    "pictures",
    "timeline_samples",
    "timeline_work",
]

LANES = ("steps", "communication", "compute", "copies", "opaque graphs")
"""Kinds of track, in the order in which they are drawn."""
WORK = Table(
    "work",
    (
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("lane", pl.Enum(LANES), "", "lane of the timeline"),
        Column("stream", pl.Int64, "", "stream"),
        Column("track", pl.UInt32, "", "number of the track"),
        Column("start_ns", pl.Int64, "ns", "start"),
        Column("end_ns", pl.Int64, "ns", "end"),
        Column("busy_ns", pl.Int64, "ns", "time that the pieces run"),
        Column("n", pl.UInt32, "", "pieces merged into one box"),
        Column("kind", pl.String, "", "class of work"),
        Column("name", pl.String, "", "name"),
    ),
    "one box of the timeline",
)
SAMPLES = Table(
    "samples",
    (
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("what", pl.String, "", "quantity"),
        Column("start_ns", pl.Int64, "ns", "start"),
        Column("end_ns", pl.Int64, "ns", "end"),
        Column("mean_frac", pl.Float64, "1", "mean share of peak"),
        Column("max_frac", pl.Float64, "1", "largest share of peak"),
    ),
    "one sampled quantity over one stretch of time",
)
MOST_BOXES, MOST_CELLS = 16_000, 4_000
_STREAMS = 6
_SAME_FRAC = 0.005
_FIRST_NS = 256
_TRACK = ("gpu", "lane", "report", "pid", "context", "stream")


@view
def timeline_work(trace: Trace) -> pl.DataFrame:
    """Return boxes of device work by GPU, lane and stream, and the steps' spans on the device.

    Returns:
        Frame of `WORK`, at most about `MOST_BOXES` rows, sorted by track, start_ns, end_ns. A
        track holds what never overlaps: one stream's work of one lane, or the steps of one thread
        (stream null, gpu null when they use several). Streams beyond the six busiest of a GPU and
        lane share a track with null stream. ``busy_ns`` is the time that the ``n`` merged pieces of
        work run, ``name`` and ``kind`` are those of the longest.
    """
    names = kernel_names(trace).select("name_key", "name")
    work = identified(trace, activity(trace))
    work = work.join(names, on="name_key", how="left", maintain_order="left")
    work = work.with_columns(pl.col("kind").cast(pl.String))
    kind = pl.col("kind")
    lane = (
        pl.when(kind.is_in(COMM_KINDS) | (kind == "memcpy PtoP"))
        .then(pl.lit("communication"))
        .when(kind == OPAQUE)
        .then(pl.lit("opaque graphs"))
        .when(kind.str.starts_with("mem"))
        .then(pl.lit("copies"))
        .otherwise(pl.lit("compute"))
    )
    work = work.with_columns(lane.cast(WORK.schema["lane"]).alias("lane"))
    rows = pl.concat([_few_streams(work), _steps(trace)], how="diagonal_relaxed")
    rows = rows.with_columns((pl.struct(_TRACK).rank("dense") - 1).alias("track"))
    return WORK.select(_thinned(rows)).sort("track", "start_ns", "end_ns")


def _few_streams(work: pl.DataFrame) -> pl.DataFrame:
    """Give the least busy streams of a GPU and lane one track together."""
    busy = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("busy_ns")
    order = ["gpu", "lane", "busy_ns", "report", "pid", "context", "stream"]
    tracks = work.group_by(_TRACK).agg(busy)
    tracks = tracks.sort(order, descending=[False, False, True, *(False,) * 4])
    rank = pl.int_range(pl.len()).over("gpu", "lane").alias("rank")
    work = work.join(
        tracks.with_columns(rank), on=_TRACK, how="left", nulls_equal=True, maintain_order="left"
    )
    alone = pl.col("rank") < _STREAMS
    return work.with_columns(
        pl.when(alone).then(pl.col(c)).alias(c) for c in ("report", "pid", "context", "stream")
    )


def _steps(trace: Trace) -> pl.DataFrame:
    """Steps as boxes: first start to last end of the device work that each launched."""
    launched = activity(trace).select("gpu").hstack(attribution(trace).select("step"))
    alone = pl.when(pl.col("gpu").n_unique() == 1).then(pl.col("gpu").first())
    own = launched.drop_nulls("step").group_by("step").agg(alone.alias("gpu"))
    spans = steps(trace).drop_nulls("gpu_start_ns").join(own, on="step", how="left")
    return spans.select(
        "gpu",
        pl.lit("steps", WORK.schema["lane"]).alias("lane"),
        "report",
        "pid",
        pl.col("tid").cast(pl.Int64).alias("context"),
        pl.col("gpu_start_ns").alias("start_ns"),
        pl.col("gpu_end_ns").alias("end_ns"),
        pl.col("group").alias("kind"),
        pl.col("label").alias("name"),
    )


def _thinned(rows: pl.DataFrame) -> pl.DataFrame:
    """Merge short neighbours of a track within cells of time, coarser until all of it fits."""
    rows = rows.sort("track", "start_ns", "end_ns", maintain_order=True).with_row_index("at")
    resolution = _resolution(*(rows[c].to_numpy() for c in ("track", "start_ns", "end_ns")))
    length = pl.col("end_ns") - pl.col("start_ns")
    cell = pl.when(length < resolution).then(pl.col("start_ns") // resolution)
    own = pl.when(length >= resolution).then(pl.col("at"))
    keyed = rows.with_columns(cell.alias("cell"), own.alias("own"))
    return keyed.group_by("track", "cell", "own", maintain_order=True).agg(
        pl.col("gpu", "lane", "stream").first(),
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        length.sum().alias("busy_ns"),
        pl.len().alias("n"),
        pl.col("kind", "name").get(length.arg_max()),
    )


def _resolution(track: NDArray[Any], start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Return the cell length in ns, 1 or `_FIRST_NS` times a power of two, at which all fits.

    Args:
        track: Track of each piece of work, ascending.
        start: int64[n], ns, ascending within a track.
        end: int64[n], ns.
    """
    resolution = 1
    while True:
        short = end - start < resolution
        cells, tracks = start[short] // resolution, track[short]
        changes = (np.diff(cells) != 0) | (np.diff(tracks) != 0)
        merged = int(np.count_nonzero(changes)) + bool(cells.size)
        if int(np.count_nonzero(~short)) + merged <= max(MOST_BOXES, 1):
            return resolution
        resolution = max(_FIRST_NS, 2 * resolution)


@view
def timeline_samples(trace: Trace) -> pl.DataFrame:
    """Return sampled DRAM and NVLink use over time.

    Returns:
        Frame of `SAMPLES`, at most about `MOST_CELLS` rows a GPU and quantity, sorted by gpu,
        what, start_ns. ``mean_frac`` is the share of peak over [start_ns, end_ns), ``max_frac``
        that of its highest sample; time without a valid sample has no row unless rows had to be
        merged.
    """
    parts = [SAMPLES.empty()]
    for gpu in sorted(used_gpus(trace)):
        received, sent = metrics.link(trace, gpu)
        found = {
            "DRAM read + write": metrics.dram(trace, gpu),
            "NVLink receiving": received,
            "NVLink sending": sent,
        }
        parts += [_cells(gpu, what, counters) for what, counters in found.items() if counters]
    return pl.concat(parts).sort("gpu", "what", "start_ns")


def _cells(gpu: int, what: str, counters: Sequence[Counter]) -> pl.DataFrame:
    starts, ends = counters[0].cells.start, counters[0].cells.end
    value, _ = metrics.means_over(counters, starts, ends)
    frame = pl.DataFrame({"start_ns": starts, "end_ns": ends, "value": np.minimum(value, 1.0)})
    frame = frame.filter(pl.col("value").is_not_nan())
    level = (pl.col("value") / _SAME_FRAC).round()
    contiguous = pl.col("start_ns") == pl.col("end_ns").shift(1)
    same = (contiguous & (level == level.shift(1))).fill_null(value=False)
    key = (~same).cum_sum()
    resolution = _FIRST_NS
    while frame.select(key.n_unique()).item() > MOST_CELLS:
        resolution *= 2
        key = (pl.col("start_ns") // resolution).rle_id()
    length = pl.col("end_ns") - pl.col("start_ns")
    merged = frame.group_by(key.alias("key"), maintain_order=True).agg(
        pl.col("start_ns").first(),
        pl.col("end_ns").last(),
        ((pl.col("value") * length).sum() / length.sum()).alias("mean_frac"),
        pl.col("value").max().alias("max_frac"),
    )
    labelled = merged.with_columns(pl.lit(gpu, pl.Int16).alias("gpu"), pl.lit(what).alias("what"))
    return SAMPLES.select(labelled)


PICTURES: tuple[View[pl.DataFrame], ...] = (timeline_work, timeline_samples)
"""The views that the timeline is drawn from."""


def pictures(trace: Trace) -> dict[str, pl.DataFrame]:
    """Return what the timeline is drawn from: ``work`` and ``samples``, see the views."""
    return dict(zip(("work", "samples"), map(trace.view, PICTURES), strict=True))
