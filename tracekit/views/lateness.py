"""Which rank comes late to its collectives, and what it did before that the earliest did not."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.trace import Trace, view
from tracekit.numerics import intervals, shares
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.threads import each
from tracekit.views.attribution import attribution
from tracekit.views.coll_instances import firsts
from tracekit.views.collectives import collectives
from tracekit.views.lanes import Lanes, lanes
from tracekit.views.overlap import queued_kernels
from tracekit.views.waits import (
    in_collective,
    rank_labels,
    waited_instances,
    waiting_members,
)

__all__ = ["HOST_LATE", "IDLE", "LATENESS", "QUEUED", "lateness"]

HOST_LATE, IDLE = "host launches late", "idle although work was launched"
QUEUED = "ready, other work holds the GPU"
_SPENT = "spent: "
_BY = ["comm", "op", "step_group"]
LATENESS = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "step_group": pl.String(),
        "late_rank_id": pl.UInt32(),
        "late_rank": pl.String(),
        "n": pl.Int64(),
        "late_ns": pl.Int64(),
        "what": pl.String(),
        "extra_ns": pl.Int64(),
        "extra_frac": pl.Float64(),
        "weighty": pl.Boolean(),
    }
)
"""Columns of `lateness`."""
WEIGHTY_FRAC = 0.01
SHOWN_ROWS = 6
"""Weighty rows of a step group: so many over all ranks, but at least one a rank."""


_VIEWS = (
    attribution,
    collectives,
    lanes,
    waited_instances,
    waiting_members,
    queued_kernels,
    rank_labels,
)


@view(of=_VIEWS)
def lateness(trace: Trace) -> pl.DataFrame:
    """Return what late ranks did that early ranks did not.

    Between one collective and the next, each moment of a rank's GPU is put under the kinds of work
    that ran, or idle because the host had not launched yet, or idle otherwise. The difference of
    the late and the earliest rank, summed over collectives, says where the lateness comes from.
    Time in which the collective itself was ready while other work held the GPU is `QUEUED`.

    Returns:
        Frame of `LATENESS`, sorted by comm, op, step_group, then most lateness first and largest
        difference first. extra_frac is of the summed lateness; kinds that run at once on several
        streams count each, so shares may add up to more than 1. weighty: worth reading, the largest
        of a rank and what follows from `WEIGHTY_FRAC` on.
    """
    rows = _segments(trace)
    launched = attribution(trace)["launch_start_ns"]
    work = lanes(trace)

    def spent(group: pl.DataFrame) -> pl.DataFrame:
        starts = group["_since_ns"].to_numpy()
        ends = np.maximum(group["_until_ns"].to_numpy(), starts)
        queued = (group["start_ns"] - group["_until_ns"]).clip(lower_bound=0)
        found = _accounts(work[group["gpu"][0]], launched, group, (starts, ends))
        parts = [pl.Series(_SPENT + what, ns) for what, ns in found.items()]
        return group.with_columns(*parts, queued.alias(_SPENT + QUEUED))

    parts = each(spent, rows.partition_by("report", "gpu", "pid", maintain_order=True))
    if not parts:
        return pl.DataFrame(schema=LATENESS)
    return _differences(trace, pl.concat(parts, how="diagonal"))


def _segments(trace: Trace) -> pl.DataFrame:
    """Members with the time since the rank's previous collective; first ones left out."""
    columns = ["instance", "row", "activity", "rank_id", "comm", "start_ns", "end_ns"]
    ready = queued_kernels(trace).select("activity", pl.col("ready_ns").alias("_until_ns"))
    rows = waiting_members(trace).select(columns)
    rows = rows.join(ready, on="activity", how="left", maintain_order="left")
    rows = rows.with_columns(pl.coalesce("_until_ns", "start_ns").alias("_until_ns"))
    before = pl.col("end_ns").shift(1).over("comm", "rank_id")
    # In the order of instances within a communicator, a rank's are in its own order.
    rows = rows.with_columns(before.alias("_since_ns")).drop("comm", "activity", "end_ns")
    known = rows["_since_ns"].is_not_null().to_numpy()
    if rows.height:
        start = firsts(rows)
        known = np.repeat(np.logical_and.reduceat(known, start), np.diff(start, append=known.size))
    rows = rows.filter(pl.Series(known, dtype=pl.Boolean))
    process = collectives(trace).select("report", "gpu", "pid")
    process = process[rows["row"]] if rows.height else process.clear()
    return rows.drop("row").hstack(process)


def _accounts(
    work: Lanes, launched: pl.Series, group: pl.DataFrame, windows: Intervals
) -> dict[str, NDArray[np.int64]]:
    """How long of each window the GPU of one rank did what: by kind of work and of idleness."""
    report, pid = group.select("report", "pid").row(0)
    process = work.in_process(report, pid)
    _, found = work.shares_beside(windows, process)
    launch = launched.slice(work.first, work.start.size).fill_null(np.iinfo(np.int64).min)
    late, idle = shares.idle(
        work.start, work.end, work.queue, launch.to_numpy(), process[work.stream_of]
    )
    return found | {
        HOST_LATE: intervals.overlap_ns(*windows, *late),
        IDLE: intervals.overlap_ns(*windows, *idle),
    }


def _differences(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """What the late rank spent minus what the earliest spent, summed by kind."""
    spent = [c for c in rows.columns if c.startswith(_SPENT)]
    rows = rows.sort("instance", "rank_id")
    start = rows["start_ns"].to_numpy()
    first = firsts(rows)
    count = np.diff(first, append=rows.height)
    about = in_collective(trace, rows.select("instance")[first], *_BY, "late_rank_id", "skew_ns")
    earliest = np.flatnonzero(start == np.repeat(np.minimum.reduceat(start, first), count))
    early = earliest[firsts(rows.select("instance")[earliest])]
    of_late = np.repeat(about["late_rank_id"].to_numpy(), count)
    late = np.flatnonzero(rows["rank_id"].to_numpy() == of_late)
    diff = about.with_columns(
        rows[c].fill_null(0)[late] - rows[c].fill_null(0)[early] for c in spent
    ).with_columns(pl.col(_BY).cast(pl.String))
    by = [*_BY, "late_rank_id"]
    found = diff.group_by(by).agg(pl.col(spent).sum())
    found = found.unpivot(spent, index=by, variable_name="what", value_name="extra_ns")
    found = found.with_columns(pl.col("what").str.strip_prefix(_SPENT))
    totals = diff.group_by(by).agg(pl.len().alias("n"), pl.col("skew_ns").sum().alias("late_ns"))
    found = found.join(totals, on=by, how="left", nulls_equal=True)
    labels = rank_labels(trace).select(
        pl.col("rank_id").alias("late_rank_id"), pl.col("rank").alias("late_rank")
    )
    found = found.join(labels, on="late_rank_id", how="left")
    share = pl.when(pl.col("late_ns") > 0).then(pl.col("extra_ns") / pl.col("late_ns"))
    found = found.with_columns(share.alias("extra_frac"))
    place = pl.col("extra_ns").rank("ordinal", descending=True).over(by)
    n_ranks = pl.col("late_rank_id").n_unique().over(_BY)
    fits = place <= (SHOWN_ROWS // n_ranks).clip(lower_bound=1)
    weighty = (place == 1) | (fits & (pl.col("extra_frac") >= WEIGHTY_FRAC))
    found = found.sort([*by, "what"], nulls_last=True).with_columns(weighty.alias("weighty"))
    found = found.select(list(LATENESS)).cast(LATENESS)
    order = [*_BY, "late_ns", "late_rank_id", "extra_ns", "what"]
    down = [False, False, False, True, False, True, False]
    return found.sort(order, descending=down, nulls_last=True)
