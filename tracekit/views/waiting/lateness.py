"""Which rank comes late to its collectives, and what it did before that the earliest did not."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.table import Column, Table
from tracekit.numerics import intervals
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.rows import shares
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.collectives.matching import firsts, matching
from tracekit.views.collectives.overlap import queued_kernels
from tracekit.views.device.lanes import Lanes, lanes
from tracekit.views.keys import row_numbers
from tracekit.views.launches.attribution import attribution
from tracekit.views.waiting.rank_waits import in_collective, rank_labels

__all__ = ["HOST_LATE", "IDLE", "LATENESS", "QUEUED", "lateness"]

HOST_LATE, IDLE = "host launches late", "idle although work was launched"
QUEUED = "ready, other work holds the GPU"
_BY = ["comm", "op", "step_group"]
LATENESS = Table(
    "lateness",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("step_group", pl.String, "", "group of like steps; null outside of steps"),
        Column("late_rank_id", pl.UInt32, "", "rank that came last"),
        Column("late_rank", pl.String, "", "rank that came last, in words"),
        Column("n", pl.Int64, "", "times that the rank came last"),
        Column("late_ns", pl.Int64, "ns", "skew of collectives at which it was last, summed"),
        Column("what", pl.String, "", "what the time went to"),
        Column("extra_ns", pl.Int64, "ns", "more time than on the earliest rank, summed"),
        Column("extra_frac", pl.Float64, "1", "of late_ns"),
        Column("weighty", pl.Boolean, "", "the largest of a rank, and large ones after it"),
    ),
    "what a late rank did that the earliest did not",
)
WEIGHTY_FRAC = 0.01
SHOWN_ROWS = 6
"""Weighty rows of a step group: so many over all ranks, but at least one a rank."""


@view
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
    if rows.is_empty():
        return LATENESS.empty()
    processes = rank_labels(trace).select("report", "gpu", "pid")
    ranks = np.flatnonzero(np.bincount(rows["rank_id"].to_numpy()))
    about, late, early = _compared(trace, rows)
    # Nobody asks what the ranks between did.
    wanted = np.zeros(rows.height, np.bool_)
    wanted[late] = wanted[early] = True
    place = np.cumsum(wanted) - 1
    rows, late, early = rows.filter(pl.Series(wanted)), place[late], place[early]
    number = rows["rank_id"].to_numpy()
    launched = attribution(trace)["launch_start_ns"]
    work = lanes(trace)

    def spent(one: int) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
        at = np.flatnonzero(number == one)
        report, gpu, pid = processes.row(one)
        starts, until = (rows[c].to_numpy()[at] for c in ("_since_ns", "_until_ns"))
        windows = starts, np.maximum(until, starts)
        queued = np.maximum(rows["start_ns"].to_numpy()[at] - until, 0)
        lane = work[gpu]
        return at, _accounts(lane, launched, lane.in_process(report, pid), windows) | {
            QUEUED: queued
        }

    parts = each(spent, ranks.tolist())
    spans = {what: np.zeros(rows.height, np.int64) for _, found in parts for what in found}
    for at, found in parts:
        for what, ns in found.items():
            spans[what][at] = ns
    return _differences(trace, about, {what: ns[late] - ns[early] for what, ns in spans.items()})


def _segments(trace: Trace) -> pl.DataFrame:
    """Members with the time since the rank's previous collective; first ones left out."""
    members = matching(trace).members
    if members.is_empty():
        return members
    since, known = _previous_end(members)
    start = firsts(members)
    known = np.repeat(np.logical_and.reduceat(known, start), np.diff(start, append=known.size))
    ready = queued_kernels(trace)["ready_ns"][members["row"]]
    rows = members.select("instance", "rank_id", "start_ns", ready, pl.Series("_since_ns", since))
    rows = rows.with_columns(pl.coalesce("ready_ns", "start_ns").alias("_until_ns"))
    return rows.drop("ready_ns").filter(pl.Series(known))


def _previous_end(members: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """When each member's rank left its previous collective in that communicator, if it had one."""
    rank, ranks = row_numbers(members.select(pl.col("comm").to_physical(), "rank_id"))
    # In the order of instances within a communicator, a rank's are in its own order.
    order = np.argsort(rank.astype(np.min_scalar_type(ranks.height)), kind="stable")
    since, known = np.zeros(order.size, np.int64), np.zeros(order.size, np.bool_)
    since[order[1:]] = members["end_ns"].to_numpy()[order[:-1]]
    known[order[1:]] = rank[order[1:]] == rank[order[:-1]]
    return since, known


def _accounts(
    work: Lanes, launched: pl.Series, process: NDArray[np.bool_], windows: Intervals
) -> dict[str, NDArray[np.int64]]:
    """How long of each window the GPU of one rank did what: by kind of work and of idleness."""
    _, found = work.overlap_by_kind(windows, process)
    launch = launched.slice(work.first, work.start.size).fill_null(np.iinfo(np.int64).min)
    late, idle = shares.idle(
        work.start, work.end, work.queue, launch.to_numpy(), process[work.stream_of]
    )
    return found | {
        HOST_LATE: intervals.overlap_ns(*windows, *late),
        IDLE: intervals.overlap_ns(*windows, *idle),
    }


def _compared(
    trace: Trace, rows: pl.DataFrame
) -> tuple[pl.DataFrame, NDArray[np.int64], NDArray[np.int64]]:
    """What is known of each collective, the row of its late rank, and that of its earliest."""
    start, first = rows["start_ns"].to_numpy(), firsts(rows)
    count = np.diff(first, append=rows.height)
    about = in_collective(trace, rows.select("instance")[first], *_BY, "late_rank_id", "skew_ns")
    earliest = np.flatnonzero(start == np.repeat(np.minimum.reduceat(start, first), count))
    early = earliest[firsts(rows.select("instance")[earliest])]
    of_late = np.repeat(about["late_rank_id"].to_numpy(), count)
    return about, np.flatnonzero(rows["rank_id"].to_numpy() == of_late), early


def _differences(
    trace: Trace, about: pl.DataFrame, more: dict[str, NDArray[np.int64]]
) -> pl.DataFrame:
    """What the late rank spent more than the earliest, summed by kind."""
    spent = list(more)
    columns = (pl.Series(what, ns) for what, ns in more.items())
    by, totals = [*_BY, "late_rank_id"], ["n", "late_ns"]
    groups = about.with_columns(*columns).group_by(by)
    summed = groups.agg(
        pl.len().alias("n"), pl.col("skew_ns").sum().alias("late_ns"), pl.col(spent).sum()
    ).with_columns(pl.col(_BY).cast(pl.String))
    found = summed.unpivot(spent, index=[*by, *totals], variable_name="what", value_name="extra_ns")
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
    found = LATENESS.select(found)
    order = [*_BY, "late_ns", "late_rank_id", "extra_ns", "what"]
    down = [False, False, False, True, False, True, False]
    return found.sort(order, descending=down, nulls_last=True)
