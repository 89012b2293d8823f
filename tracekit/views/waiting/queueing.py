"""Collectives that were ready but did not start, because other work held the GPU."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.cupti import STREAM_WAIT_EVENT
from tracekit.model.table import Column, Table
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.collectives.dependents import dependents, longest_blocking
from tracekit.views.collectives.kernels import collectives
from tracekit.views.collectives.matching import instances, last_starts
from tracekit.views.collectives.overlap import MIN_LAG_NS, other_streams, queued_kernels
from tracekit.views.device.activity import activity, identified
from tracekit.views.device.lanes import lanes
from tracekit.views.keys import row_numbers
from tracekit.views.launches.attribution import attribution, steps
from tracekit.views.launches.step_time import share_of_steps, step_time

__all__ = ["QUEUEING", "collective_lags", "queueing"]

"""``sync_type`` of a stream that waits for an event."""
QUEUEING = Table(
    "queueing",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("partner", pl.String, "", "kind of work that ran longest meanwhile"),
        Column("dependency", pl.Boolean, "", "may have waited for an event instead of for room"),
        Column("one_rank", pl.Boolean, "", "unmatched: other ranks may have been later still"),
        Column("n", pl.Int64, "", "collectives that queue"),
        Column("n_all", pl.Int64, "", "collectives in all"),
        Column("queued_median_ns", pl.Float64, "ns", "median time from ready to start"),
        Column("queued_ns", pl.Int64, "ns", "time from ready to start, summed over collectives"),
        Column("queued_frac", pl.Float64, "1", "of the step group where it is largest"),
        Column("queued_group", pl.String, "", "step group of queued_frac"),
        Column("queued_of_ns", pl.Float64, "ns", "what queued_frac is of"),
        Column("blocking_ns", pl.Int64, "ns", "part that something was seen to wait for"),
        Column("blocking_frac", pl.Float64, "1", "the same of all step time or of the capture"),
    ),
    "ready collectives that could not start",
)
_BY = ["comm", "op", "partner", "dependency", "one_rank"]


@view
def collective_lags(trace: Trace) -> pl.DataFrame:
    """Return the communication kernels whose start counts, one a matched collective.

    Returns:
        Rows of `collectives`, in its order, plus instance UInt32 (null when unmatched), ready_ns
        and lag_ns Int64 (null unless queued), blocking_ns Int64 (see `queueing`), one_rank, queued
        and dependency Boolean.
    """
    return _with_dependency(trace, _queued(trace))


@view
def queueing(trace: Trace) -> pl.DataFrame:
    """Return how long collectives waited to start behind other work of their GPU.

    A kernel is ready when it has been launched and its stream has finished what came before. Of a
    collective that is matched across ranks only the rank that started last counts: the queueing of
    the others is hidden by it.

    Returns:
        Frame of `QUEUEING`, sorted by queued_ns, most first. ``dependency``: the host had
        made the stream wait for an event, and it started just when another stream had finished
        everything launched before, so the lag may be a dependency instead of queueing.
        blocking_ns: how much of queued_ns something waited for at the end of the collective
        (`dependents`), so that an earlier start could have won it; waiting of other ranks is not in
        it. Shares are of queued_of_ns, the time of the step group where queueing is largest.
    """
    rows = collective_lags(trace)
    total = rows.group_by("comm", "op").agg(pl.len().alias("n_all"))
    partners = _partners(trace, rows.filter("queued"))
    rows = rows.filter("queued").join(partners, on="activity", how="left", maintain_order="left")
    found = rows.group_by(_BY).agg(
        pl.len().alias("n"),
        pl.col("lag_ns").median().alias("queued_median_ns"),
        pl.col("lag_ns").sum().alias("queued_ns"),
        pl.col("blocking_ns").sum(),
    )
    shares = _shares(trace, rows)
    found = found.join(shares, on=_BY, how="left", nulls_equal=True)
    found = found.join(total, on=["comm", "op"], how="left", nulls_equal=True)
    order = ["queued_ns", *_BY]
    return QUEUEING.select(found).sort(
        order, descending=[True] + [False] * len(_BY), nulls_last=True
    )


def _queued(trace: Trace) -> pl.DataFrame:
    """The communication kernels that count, with their lag and whether it was queueing."""
    columns = [*queued_kernels(trace), last_starts(trace)["instance"], _felt(trace)]
    at, single = _counting(trace)
    rows = collectives(trace).hstack(columns)[at]
    return rows.with_columns(
        pl.Series("one_rank", single),
        pl.min_horizontal("lag_ns", "delay_blocking_ns").alias("blocking_ns"),
        pl.col("lag_ns").is_not_null().alias("queued"),
    )


def _counting(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of `collectives` that count, and whether nothing of their communicator is matched.

    Members at the ragged ends of a matched communicator have no partner: they are left out.
    """
    rows, of = collectives(trace).select("start_ns", "activity"), last_starts(trace)
    matched = of["instance"].is_not_null().to_numpy()
    comm, comms = row_numbers(collectives(trace).select(pl.col("comm").to_physical()))
    single = np.ones(comms.height, np.bool_)
    single[comm[matched]] = False
    latest = (rows["start_ns"] == of["last_start_ns"]).fill_null(value=False).to_numpy()
    at = np.flatnonzero(latest)
    # Of several that began last, the first on its GPU: written last, it stays.
    at = at[np.argsort(rows["activity"].to_numpy()[at], kind="stable")][::-1]
    chosen = np.zeros(matched.size, np.bool_)
    first = np.empty(instances(trace).height, np.int64)
    first[of["instance"].fill_null(0).to_numpy()[at]] = at
    chosen[first] = True
    chosen |= single[comm]
    at = np.flatnonzero(chosen)
    return at, single[comm[at]]


def _felt(trace: Trace) -> pl.Series:
    """What dependents waited for after the latest start, the most over the ranks."""
    instance = last_starts(trace)["instance"]
    delay = dependents(trace)["delay_blocking_ns"].to_numpy(writable=True)
    matched = np.flatnonzero(instance.is_not_null().to_numpy())
    delay[matched] = longest_blocking(trace)[instance.drop_nulls().to_numpy()]
    return pl.Series("delay_blocking_ns", delay)


def _with_dependency(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Mark the kernels whose lag may be a wait for an event of another stream.

    An event is recorded on a stream and waited for on another in one go, as frameworks do it, so
    the wait ends when everything launched there before it has finished.
    """
    waits = trace.frame("sync").filter(pl.col("sync_type") == STREAM_WAIT_EVENT)
    nowhere = rows.with_columns(pl.lit(value=False).alias("dependency"))
    if waits.is_empty():
        return nowhere
    rows = _told(waits, rows.with_row_index("_at"))
    if rows["_wait_call_ns"].null_count() == rows.height:
        return nowhere
    launched = attribution(trace).select(pl.col("launch_start_ns").alias("_launch"))
    work = activity(trace).select("gpu", "queue", "end_ns").hstack(launched)
    work = identified(trace, work.drop_nulls("_launch").sort("_launch"), "pid", "stream")
    parts = []
    for group in rows.partition_by("report", "gpu", "pid", "stream", maintain_order=True):
        waited, start = (
            group["_wait_call_ns"].fill_null(-1).to_numpy(),
            group["start_ns"].to_numpy(),
        )
        ready = group["ready_ns"].fill_null(0).to_numpy()
        depends = np.zeros(group.height, np.bool_)
        for other in other_streams(work, group).partition_by("pid", "stream", maintain_order=True):
            done = np.maximum.accumulate(other["end_ns"].to_numpy())
            before = np.searchsorted(other["_launch"].to_numpy(), waited) - 1
            finished = np.where(before < 0, -1, done[before])
            just = (finished > ready) & (finished <= start) & (start - finished <= MIN_LAG_NS)
            depends |= just & (waited >= 0)
        parts.append(group.with_columns(pl.Series("dependency", depends)))
    return pl.concat(parts).sort("_at").drop("_at", "_wait_call_ns")


def _told(waits: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Add when the host last made the stream wait for an event since the launch before."""
    keys = ["report", "pid", "stream"]
    waits = waits.select(*keys, pl.col("start_ns").alias("_wait_call_ns")).sort("_wait_call_ns")
    launches = rows.with_columns(pl.col("launch_start_ns").fill_null(0).alias("_launch"))
    launches = launches.sort("_launch", "activity").with_columns(
        pl.col("_launch").shift(1).over(keys).fill_null(0).alias("_earlier")
    )
    joined = launches.join_asof(
        waits,
        left_on="_launch",
        right_on="_wait_call_ns",
        by=keys,
        strategy="backward",
        check_sortedness=False,
    )
    recent = pl.when(pl.col("_wait_call_ns") > pl.col("_earlier")).then("_wait_call_ns")
    return joined.with_columns(recent.alias("_wait_call_ns")).drop("_launch", "_earlier")


def _partners(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The kind of work that held the GPU longest during the lag of each kernel."""
    work = lanes(trace)

    def partners(group: pl.DataFrame) -> list[pl.DataFrame]:
        ready, begun = group["ready_ns"].to_numpy(), group["start_ns"].to_numpy()
        gpu, pid, stream = group.select("gpu", "pid", "stream").row(0)
        lane = work[gpu]
        _, kinds = lane.overlap_by_kind((ready, begun), lane.not_on(pid, stream))
        return [
            group.select(
                "activity",
                pl.lit(kind, pl.String).alias("partner"),
                pl.Series("shared", shared),
            )
            for kind, shared in kinds.items()
        ]

    groups = rows.partition_by("gpu", "pid", "stream", maintain_order=True)
    parts = [part for of_group in each(partners, groups) for part in of_group]
    schema = {"activity": pl.UInt32, "partner": pl.String, "shared": pl.Int64}
    found = pl.concat(parts) if parts else pl.DataFrame(schema=schema)
    found = found.sort("activity", "shared", "partner", descending=[False, True, False])
    return found.unique("activity", keep="first", maintain_order=True).drop("shared")


def _shares(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Largest share of step time (or of the capture) per row of the answer."""
    groups = steps(trace).select("step", pl.col("group").alias("step_group"))
    rows = rows.join(groups, on="step", how="left", maintain_order="left")
    lost = rows.group_by(*_BY, "step_group").agg(
        pl.col("lag_ns").sum().alias("lost_ns"), pl.col("blocking_ns").sum().alias("_blocking_ns")
    )
    lost = share_of_steps(lost.sort(*_BY, "step_group", nulls_last=True), step_time(trace))
    lost = lost.sort("lost_frac", descending=True, nulls_last=True, maintain_order=True)
    return lost.group_by(_BY, maintain_order=True).agg(
        pl.col("lost_frac").first().alias("queued_frac"),
        pl.col("step_group").first().alias("queued_group"),
        pl.col("time_ns").first().alias("queued_of_ns"),
        (pl.col("_blocking_ns").sum() / pl.col("all_time_ns").first()).alias("blocking_frac"),
    )
