"""Which rank comes late to its collectives, how long the others wait, and what it did before."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.model.trace import Trace, view
from tracekit.numerics import intervals
from tracekit.numerics.intervals import Intervals
from tracekit.views.activity import activity
from tracekit.views.attribution import attribution, steps
from tracekit.views.coll_instances import instances, matching
from tracekit.views.collectives import collectives
from tracekit.views.overlap import COMM_KINDS, merged, queued_kernels
from tracekit.views.step_time import CAPTURE, step_time

__all__ = [
    "HOST_LATE",
    "IDLE",
    "LATENESS",
    "QUEUED",
    "RANK_WAITS",
    "SKEW",
    "lateness",
    "rank_labels",
    "rank_waits",
    "skews",
]

HOST_LATE, IDLE = "host launches late", "idle, work queued or waiting for an event"
QUEUED = "ready, other work holds the GPU"
_SPENT = "spent: "
SETTLED_FROM = 20
"""From so many collectives on, the first of a communicator is left out: ranks do not start
recording at one instant."""
_BY = ["comm", "op", "step_group"]
RANK_WAITS = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "step_group": pl.String(),
        "rank_id": pl.UInt32(),
        "rank": pl.String(),
        "n": pl.Int64(),
        "n_last": pl.Int64(),
        "wait_median_ns": pl.Float64(),
        "wait_ns": pl.Int64(),
        "wait_frac": pl.Float64(),
        "xfer_median_ns": pl.Float64(),
    }
)
"""Columns of `rank_waits`."""
SKEW = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "step_group": pl.String(),
        "n": pl.Int64(),
        "skew_median_ns": pl.Float64(),
        "transfer_median_ns": pl.Float64(),
        "skew_over_transfer": pl.Float64(),
        "mean_wait_ns": pl.Int64(),
        "time_ns": pl.Float64(),
        "first_skew_ns": pl.Int64(),
        "worst_start_ns": pl.Int64(),
        "worst_end_ns": pl.Int64(),
        "prov": pl.Float64(),
    }
)
"""Columns of `skews`."""
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
    }
)
"""Columns of `lateness`."""


@view(of=[collectives])
def rank_labels(trace: Trace) -> pl.DataFrame:
    """Return what to call each rank.

    Returns:
        Frame of rank_id UInt32, rank String, where String (file and GPU), rank_known Boolean
        (whether the number is the library's own; else ranks are numbered by report and GPU),
        report, gpu, pid.
    """
    rows = collectives(trace)
    keys = ["rank_id", "report", "gpu", "pid"]
    ranks = rows.group_by(keys).agg(
        pl.when(pl.col("rank").n_unique() == 1).then(pl.col("rank").first()).alias("_own")
    )
    names = pl.DataFrame(
        {"report": [r.index for r in trace.reports], "_file": [r.name for r in trace.reports]},
        schema={"report": pl.UInt16, "_file": pl.String},
    )
    ranks = ranks.join(names, on="report", how="left").sort("rank_id")
    known = ranks["_own"].null_count() == 0 and ranks["_own"].n_unique() == ranks.height
    number = pl.col("_own") if known else pl.col("rank_id").cast(pl.Int64)
    file = pl.format("{}, ", "_file") if len(trace.reports) > 1 else pl.lit("")
    return ranks.select(
        "rank_id",
        pl.format("rank {}", number).alias("rank"),
        pl.concat_str(file, pl.format("GPU {}", pl.col("gpu").fill_null(-1))).alias("where"),
        pl.lit(known).alias("rank_known"),
        "report",
        "gpu",
        "pid",
    )


@view(of=[instances, matching, steps, step_time])
def _members(trace: Trace) -> pl.DataFrame:
    """Members of matched collectives with skew, transfer and step group of their collective."""
    columns = ["instance", "skew_ns", "transfer_ns", "late_rank_id", "last_start_ns", "last_end_ns"]
    rows = matching(trace).members.join(
        instances(trace).select(columns), on="instance", how="left", maintain_order="left"
    )
    groups = steps(trace).select("step", pl.col("group").alias("step_group"))
    rows = rows.join(groups, on="step", how="left", maintain_order="left")
    label = pl.col("step_group").sort_by("rank_id").drop_nulls().first().over("instance")
    rows = rows.with_columns(label.alias("step_group"))
    if step_time(trace)["step_group"].eq(CAPTURE).all():
        rows = rows.with_columns(pl.lit(CAPTURE).alias("step_group"))
    first = pl.col("instance") == pl.col("instance").min().over("comm")
    settled = pl.col("instance").n_unique().over("comm") >= SETTLED_FROM
    return rows.with_columns((first & settled).alias("starting"))


@view(of=[_members, rank_labels, step_time])
def rank_waits(trace: Trace) -> pl.DataFrame:
    """Return how long each rank waited in its collectives, per step group.

    Returns:
        Frame of `RANK_WAITS`, sorted by comm, op, step_group, rank_id. Medians are over all
        collectives; sums leave out the first one of a communicator (see `SETTLED_FROM`).
        wait_frac is of the rank's own step time in that group.
    """
    labels = rank_labels(trace).select("rank_id", "rank", "report", "pid")
    found = (
        _members(trace)
        .group_by(*_BY, "rank_id")
        .agg(
            pl.len().alias("n"),
            (pl.col("late_rank_id") == pl.col("rank_id")).sum().alias("n_last"),
            pl.col("wait_ns").median().alias("wait_median_ns"),
            pl.col("wait_ns").filter(~pl.col("starting")).sum().alias("wait_ns"),
            pl.col("xfer_ns").median().alias("xfer_median_ns"),
        )
    )
    found = found.join(labels, on="rank_id", how="left")
    times = step_time(trace).select("report", "pid", "step_group", "time_ns")
    found = found.join(times, on=["report", "pid", "step_group"], how="left")
    share = pl.when(pl.col("time_ns") > 0).then(pl.col("wait_ns") / pl.col("time_ns"))
    found = found.with_columns(share.alias("wait_frac")).select(list(RANK_WAITS))
    return found.cast(RANK_WAITS).sort(*_BY, "rank_id", nulls_last=True)


@view(of=[_members, step_time])
def skews(trace: Trace) -> pl.DataFrame:
    """Return skew against transfer, per communicator, operation and step group.

    Returns:
        Frame of `SKEW`, sorted. mean_wait_ns sums the mean wait over ranks: what would be won if
        all ranks came at the mean moment. time_ns is the mean step time of the ranks.
    """
    rows = _members(trace)
    each = (
        rows.unique("instance", maintain_order=True)
        .drop("wait_ns")
        .join(rows.group_by("instance").agg(pl.col("wait_ns").mean()), on="instance", how="left")
    )
    normal = each.filter(~pl.col("starting"))
    worst = normal.sort("skew_ns", "instance", descending=[True, False])
    worst = worst.group_by(_BY, maintain_order=True).agg(
        (pl.col("last_start_ns") - pl.col("skew_ns")).first().alias("worst_start_ns"),
        pl.col("last_end_ns").first().alias("worst_end_ns"),
    )
    found = each.group_by(_BY).agg(
        pl.len().alias("n"),
        pl.col("skew_ns").median().alias("skew_median_ns"),
        pl.col("transfer_ns").median().alias("transfer_median_ns"),
        pl.col("wait_ns").filter(~pl.col("starting")).sum().round().alias("mean_wait_ns"),
        pl.col("skew_ns").filter("starting").max().alias("first_skew_ns"),
        pl.col("prov").min(),
    )
    times = step_time(trace).group_by("step_group").agg(pl.col("time_ns").mean())
    found = found.join(times, on="step_group", how="left")
    found = found.join(worst, on=_BY, how="left", nulls_equal=True)
    ratio = pl.when(pl.col("transfer_median_ns") > 0).then(
        pl.col("skew_median_ns") / pl.col("transfer_median_ns")
    )
    found = found.with_columns(ratio.alias("skew_over_transfer")).select(list(SKEW))
    return found.cast(SKEW).sort(_BY, nulls_last=True)


@view(of=[activity, attribution, _members, queued_kernels, rank_labels])
def lateness(trace: Trace) -> pl.DataFrame:
    """Return what late ranks did that early ranks did not.

    Between one collective and the next, each moment of a rank's GPU is put under the kinds of work
    that ran, or idle because the host had not launched yet, or idle otherwise. The difference of
    the late and the earliest rank, summed over collectives, says where the lateness comes from.
    Time in which the collective itself was ready while other work held the GPU is `QUEUED`.

    Returns:
        Frame of `LATENESS`, sorted by comm, op, step_group, then most lateness first and largest
        difference first. extra_frac is of the summed lateness; kinds that run at once on several
        streams count each, so shares may add up to more than 1.
    """
    rows = _segments(_members(trace), queued_kernels(trace))
    parts = []
    for group in rows.partition_by("report", "gpu", "pid", maintain_order=True):
        starts = group["_since_ns"].to_numpy()
        ends = np.maximum(group["_until_ns"].to_numpy(), starts)
        queued = (group["start_ns"] - group["_until_ns"]).clip(lower_bound=0)
        spent = [
            pl.Series(_SPENT + what, intervals.overlap_ns(starts, ends, *union))
            for what, union in _accounts(trace, group).items()
        ]
        parts.append(group.with_columns(*spent, queued.alias(_SPENT + QUEUED)))
    if not parts:
        return pl.DataFrame(schema=LATENESS)
    return _differences(trace, pl.concat(parts, how="diagonal"))


def _segments(members: pl.DataFrame, queued: pl.DataFrame) -> pl.DataFrame:
    """Members with the time since the rank's previous collective; first ones left out."""
    ready = queued.select("activity", pl.col("ready_ns").alias("_until_ns"))
    members = members.join(ready, on="activity", how="left", maintain_order="left")
    members = members.with_columns(pl.coalesce("_until_ns", "start_ns").alias("_until_ns"))
    before = pl.col("end_ns").shift(1).over("comm", "rank_id")
    rows = members.sort("comm", "rank_id", "instance").with_columns(before.alias("_since_ns"))
    return rows.filter(pl.col("_since_ns").is_not_null().all().over("instance"))


def _accounts(trace: Trace, group: pl.DataFrame) -> dict[str, Intervals]:
    """What the GPU of one rank did when: a union per kind of work and of idleness."""
    report, gpu, pid = group.select("report", "gpu", "pid").row(0)
    launched = attribution(trace).select(pl.col("launch_start_ns").alias("_launch"))
    work = (
        activity(trace)
        .hstack(launched)
        .filter(
            (pl.col("report") == report)
            & pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16))
            & pl.col("pid").eq_missing(pl.lit(pid, pl.UInt32))
        )
    )
    other = work.filter(~pl.col("kind").is_in(COMM_KINDS))
    found = {str(k): merged(own) for (k,), own in other.partition_by("kind", as_dict=True).items()}
    starts = work["start_ns"].to_numpy()
    reached = np.maximum.accumulate(work["end_ns"].to_numpy())
    idle_from = np.concatenate((starts[:1], reached[:-1]))
    launch = work["_launch"].fill_null(np.iinfo(np.int64).min).to_numpy()
    host_until = np.clip(launch, idle_from, np.maximum(starts, idle_from))
    found[HOST_LATE] = intervals.union(idle_from, host_until)
    found[IDLE] = intervals.union(host_until, starts)
    return found


def _differences(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """What the late rank spent minus what the earliest spent, summed by kind."""
    spent = [c for c in rows.columns if c.startswith(_SPENT)]
    rows = rows.with_columns(pl.col(spent).fill_null(0)).sort("instance")
    earliest = pl.col("rank_id").sort_by("start_ns", "rank_id").first().over("instance")
    late = rows.filter(pl.col("rank_id") == pl.col("late_rank_id"))
    early = rows.filter(pl.col("rank_id") == earliest)
    each = late.select(
        "instance", *_BY, "late_rank_id", "skew_ns", *(late[c] - early[c] for c in spent)
    )
    by = [*_BY, "late_rank_id"]
    found = each.group_by(by).agg(pl.col(spent).sum())
    found = found.unpivot(spent, index=by, variable_name="what", value_name="extra_ns")
    found = found.with_columns(pl.col("what").str.strip_prefix(_SPENT))
    totals = each.group_by(by).agg(pl.len().alias("n"), pl.col("skew_ns").sum().alias("late_ns"))
    found = found.join(totals, on=by, how="left", nulls_equal=True)
    labels = rank_labels(trace).select(
        pl.col("rank_id").alias("late_rank_id"), pl.col("rank").alias("late_rank")
    )
    found = found.join(labels, on="late_rank_id", how="left")
    share = pl.when(pl.col("late_ns") > 0).then(pl.col("extra_ns") / pl.col("late_ns"))
    found = found.with_columns(share.alias("extra_frac")).select(list(LATENESS)).cast(LATENESS)
    order = [*_BY, "late_ns", "late_rank_id", "extra_ns", "what"]
    down = [False, False, False, True, False, True, False]
    return found.sort(order, descending=down, nulls_last=True)
