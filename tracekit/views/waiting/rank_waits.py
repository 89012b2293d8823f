"""How long each rank waits for late ones in its collectives, and how far ranks are apart."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.model.table import Column, Table
from tracekit.trace import Trace, view
from tracekit.views.collectives.dependents import dependents
from tracekit.views.collectives.kernels import collectives
from tracekit.views.collectives.matching import firsts, instances, matching
from tracekit.views.launches.attribution import steps
from tracekit.views.launches.step_time import CAPTURE, step_time

__all__ = [
    "RANK_WAITS",
    "SKEW",
    "in_collective",
    "rank_labels",
    "rank_waits",
    "skews",
    "waited_instances",
    "waiting_members",
]

SETTLED_FROM = 20
"""From so many collectives on, the first of a communicator is left out: ranks do not start
recording at one instant."""
_BY = ["comm", "op", "step_group"]
_TEXTS = pl.col(_BY).cast(pl.String)
RANK_WAITS = Table(
    "rank_waits",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("step_group", pl.String, "", "group of like steps; null outside of steps"),
        Column("rank_id", pl.UInt32, "", "number of the rank in this run"),
        Column("rank", pl.String, "", "rank in words"),
        Column("n", pl.Int64, "", "collectives"),
        Column("n_last", pl.Int64, "", "collectives at which this rank came last"),
        Column("wait_median_ns", pl.Float64, "ns", "median wait"),
        Column("wait_ns", pl.Int64, "ns", "waiting for late ranks, summed"),
        Column("wait_blocking_ns", pl.Int64, "ns", "part of wait_ns that something waited through"),
        Column(
            "first_wait_ns", pl.Int64, "ns", "wait in the first collective, not in sums or time_ns"
        ),
        Column("time_ns", pl.Int64, "ns", "the rank's own step time in that group"),
        Column("wait_frac", pl.Float64, "1", "of the rank's own step time"),
        Column("xfer_median_ns", pl.Float64, "ns", "median of own end - latest start"),
    ),
    "waiting of one rank in one step group",
)
SKEW = Table(
    "skew",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("step_group", pl.String, "", "group of like steps; null outside of steps"),
        Column("n", pl.Int64, "", "collectives"),
        Column("skew_median_ns", pl.Float64, "ns", "median skew"),
        Column("transfer_median_ns", pl.Float64, "ns", "median transfer"),
        Column("skew_over_transfer", pl.Float64, "", "median skew over median transfer"),
        Column("mean_wait_ns", pl.Int64, "ns", "mean wait over ranks, summed"),
        Column("mean_wait_blocking_ns", pl.Int64, "ns", "part of it that something waited through"),
        Column("time_ns", pl.Float64, "ns", "mean step time of the ranks"),
        Column("first_skew_ns", pl.Int64, "ns", "skew of the first collective, not in sums"),
        Column("worst_start_ns", pl.Int64, "ns", "start of the worst case"),
        Column("worst_end_ns", pl.Int64, "ns", "its end"),
        Column("provenance", pl.Float64, "", "confidence in source of size and operation, 0..1"),
    ),
    "skew against transfer in one step group",
)
RANKS = Table(
    "ranks",
    (
        Column("rank_id", pl.UInt32, "", "number of the rank in this run"),
        Column("rank", pl.String, "", "rank in words"),
        Column("where", pl.String, "", "file and GPU of the rank"),
        Column("rank_known", pl.Boolean, "", "whether the number is the library's own"),
        Column("report", pl.UInt16, "", "report"),
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("pid", pl.UInt32, "", "process"),
    ),
    "one rank",
)


@view
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


@view
def waiting_members(trace: Trace) -> pl.DataFrame:
    """Return the members of matched collectives with what something waited through.

    Returns:
        `Matching.members` plus wait_blocking_ns Int64. Waits below the error of the clocks count as
        none.
    """
    members = matching(trace).members
    blocking = dependents(trace)["wait_blocking_ns"]
    blocking = blocking[members["row"]] if members.height else blocking.clear()
    shorter = pl.min_horizontal("wait_blocking_ns", "wait_ns").alias("wait_blocking_ns")
    return members.hstack([blocking]).with_columns(shorter)


@view
def waited_instances(trace: Trace) -> pl.DataFrame:
    """Return one row per matched collective: how long its ranks waited.

    Returns:
        Frame of instance, comm, op, skew_ns, transfer_ns, late_rank_id, last_start_ns,
        last_end_ns and provenance of `instances`, step_group Categorical (null outside steps),
        starting Boolean (the first of its communicator, see `SETTLED_FROM`), and mean_wait_ns and
        mean_wait_blocking_ns Float64, means over ranks; a row a row of `instances`.
    """
    columns = ["instance", "comm", "op", "skew_ns", "transfer_ns", "late_rank_id"]
    rows = instances(trace).select(*columns, "last_start_ns", "last_end_ns", "step", "provenance")
    rows = rows.with_columns(pl.col("comm", "op").cast(pl.Categorical))
    groups = steps(trace).select("step", pl.col("group").cast(pl.Categorical).alias("step_group"))
    rows = rows.join(groups, on="step", how="left", maintain_order="left").drop("step")
    if step_time(trace)["step_group"].eq(CAPTURE).all():
        rows = rows.with_columns(pl.lit(CAPTURE, pl.Categorical).alias("step_group"))
    first = pl.col("instance") == pl.col("instance").min().over("comm")
    settled = pl.len().over("comm") >= SETTLED_FROM
    rows = rows.with_columns((first & settled).alias("starting"))
    members = waiting_members(trace)
    start = firsts(members)
    n = np.diff(start, append=members.height)
    means = {
        f"mean_{c}": np.add.reduceat(members[c].to_numpy(), start) / n
        if n.size
        else np.zeros(0, np.float64)
        for c in ("wait_ns", "wait_blocking_ns")
    }
    return rows.with_columns(**{name: pl.Series(mean) for name, mean in means.items()})


def in_collective(trace: Trace, members: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return `members` with columns of `waited_instances`.

    Args:
        trace: The run.
        members: Has the column ``instance``.
        columns: Which.
    """
    of = waited_instances(trace).select(columns)
    return members.hstack(of[members["instance"]] if members.height else of.clear())


@view
def rank_waits(trace: Trace) -> pl.DataFrame:
    """Return how long each rank waited in its collectives, per step group.

    Returns:
        Frame of `RANK_WAITS`, sorted by comm, op, step_group, rank_id. Medians are over all
        collectives; sums leave out the first one of a communicator (see `SETTLED_FROM`).
        wait_blocking_ns: part of wait_ns through which something waited (`dependents`).
        first_wait_ns: wait in the first collective. wait_frac is of time_ns, the rank's own step
        time in that group without the wait in the first collective.
    """
    labels = rank_labels(trace).select("rank_id", "rank", "report", "pid")
    columns = ["instance", "comm", "op", "rank_id", "wait_ns", "wait_blocking_ns", "xfer_ns"]
    members = waiting_members(trace).select(columns)
    found = (
        in_collective(trace, members, "late_rank_id", "starting", "step_group")
        .group_by(*_BY, "rank_id")
        .agg(
            pl.len().alias("n"),
            (pl.col("late_rank_id") == pl.col("rank_id")).sum().alias("n_last"),
            pl.col("wait_ns").median().alias("wait_median_ns"),
            pl.col("wait_ns").filter(~pl.col("starting")).sum().alias("wait_ns"),
            pl.col("wait_blocking_ns").filter(~pl.col("starting")).sum(),
            pl.col("wait_ns").filter("starting").sum().alias("first_wait_ns"),
            pl.col("xfer_ns").median().alias("xfer_median_ns"),
        )
    )
    found = found.join(labels, on="rank_id", how="left").with_columns(_TEXTS)
    times = step_time(trace).select("report", "pid", "step_group", "time_ns")
    found = found.join(times, on=["report", "pid", "step_group"], how="left")
    found = found.with_columns(pl.col("time_ns") - pl.col("first_wait_ns"))
    share = pl.when(pl.col("time_ns") > 0).then(pl.col("wait_ns") / pl.col("time_ns"))
    found = RANK_WAITS.select(found.with_columns(share.alias("wait_frac")))
    return found.sort(*_BY, "rank_id", nulls_last=True)


@view
def skews(trace: Trace) -> pl.DataFrame:
    """Return skew against transfer, per communicator, operation and step group.

    Returns:
        Frame of `SKEW`, sorted. mean_wait_ns sums the mean wait over ranks: what would be won if
        all ranks came at the mean moment; mean_wait_blocking_ns the part of it through which
        something waited. time_ns is the mean step time of the ranks, without the first collective's
        wait.
    """
    each = waited_instances(trace)
    normal = each.filter(~pl.col("starting"))
    worst = normal.sort("skew_ns", "instance", descending=[True, False])
    worst = (
        worst.group_by(_BY, maintain_order=True)
        .agg(
            (pl.col("last_start_ns") - pl.col("skew_ns")).first().alias("worst_start_ns"),
            pl.col("last_end_ns").first().alias("worst_end_ns"),
        )
        .with_columns(_TEXTS)
    )
    found = (
        each.group_by(_BY)
        .agg(
            pl.len().alias("n"),
            pl.col("skew_ns").median().alias("skew_median_ns"),
            pl.col("transfer_ns").median().alias("transfer_median_ns"),
            pl.col("mean_wait_ns", "mean_wait_blocking_ns")
            .filter(~pl.col("starting"))
            .sum()
            .round(),
            pl.col("mean_wait_ns").filter("starting").sum().round().alias("_first_ns"),
            pl.col("skew_ns").filter("starting").max().alias("first_skew_ns"),
            pl.col("provenance").min(),
        )
        .with_columns(_TEXTS)
    )
    times = step_time(trace).group_by("step_group").agg(pl.col("time_ns").mean())
    found = found.join(times, on="step_group", how="left")
    found = found.with_columns(pl.col("time_ns") - pl.col("_first_ns"))
    found = found.join(worst, on=_BY, how="left", nulls_equal=True)
    ratio = pl.when(pl.col("transfer_median_ns") > 0).then(
        pl.col("skew_median_ns") / pl.col("transfer_median_ns")
    )
    found = SKEW.select(found.with_columns(ratio.alias("skew_over_transfer")))
    return found.sort(_BY, nulls_last=True)
