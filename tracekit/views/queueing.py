"""Collectives that were ready but did not start, because other work held the GPU."""

from __future__ import annotations

import polars as pl

from tracekit.model.trace import Trace, view
from tracekit.numerics import intervals
from tracekit.views.activity import activity
from tracekit.views.attribution import steps
from tracekit.views.coll_instances import matching
from tracekit.views.collectives import collectives
from tracekit.views.overlap import COMM_KINDS, comm_overlap, company_of, merged
from tracekit.views.step_time import share_of_steps, step_time

__all__ = ["QUEUEING", "queueing"]

MIN_LAG_NS = 20_000
"""Shorter lags are the ordinary latency of a launch."""
BUSY_FRAC = 0.9
"""Share of the lag during which other work must have kept the GPU busy."""
QUEUEING = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "partner": pl.String(),
        "ordered": pl.Boolean(),
        "one_rank": pl.Boolean(),
        "n": pl.Int64(),
        "n_all": pl.Int64(),
        "queued_median_ns": pl.Float64(),
        "queued_ns": pl.Int64(),
        "queued_frac": pl.Float64(),
        "queued_group": pl.String(),
    }
)
"""Columns of `queueing`."""
_BY = ["comm", "op", "partner", "ordered", "one_rank"]


@view(of=[activity, collectives, comm_overlap, matching, step_time, steps])
def queueing(trace: Trace) -> pl.DataFrame:
    """Return how long collectives waited to start behind other work of their GPU.

    A kernel is ready when it has been launched and its stream has finished what came before. Of a
    collective that is matched across ranks only the rank that started last counts: the queueing of
    the others is hidden by it.

    Returns:
        Frame of `QUEUEING`, sorted by queued_ns, most first. ``ordered``: the stream had been told
        to wait for an event, so the lag may be a dependency instead of queueing.
    """
    rows = _queued(trace)
    total = rows.group_by("comm", "op").agg(pl.len().alias("n_all"))
    partners = _partners(trace, rows.filter("queued"))
    rows = rows.filter("queued").join(partners, on="activity", how="left", maintain_order="left")
    found = rows.group_by(_BY).agg(
        pl.len().alias("n"),
        pl.col("lag_ns").median().alias("queued_median_ns"),
        pl.col("lag_ns").sum().alias("queued_ns"),
    )
    shares = _shares(trace, rows)
    found = found.join(shares, on=_BY, how="left", nulls_equal=True)
    found = found.join(total, on=["comm", "op"], how="left", nulls_equal=True)
    order = ["queued_ns", *_BY]
    return (
        found.select(list(QUEUEING))
        .cast(QUEUEING)
        .sort(order, descending=[True] + [False] * len(_BY), nulls_last=True)
    )


def _queued(trace: Trace) -> pl.DataFrame:
    """The communication kernels that count, with their lag and whether it was queueing."""
    overlap = comm_overlap(trace).kernels.select(
        "activity", "ready_ns", "lag_ns", "queued_ns", "ordered"
    )
    members = matching(trace).members.select("activity", "instance")
    rows = collectives(trace).join(overlap, on="activity", how="left", maintain_order="left")
    rows = rows.join(members, on="activity", how="left", maintain_order="left")
    matched = pl.col("instance").is_not_null()
    latest = pl.col("start_ns") == pl.col("start_ns").max().over("instance")
    rows = rows.with_columns((~matched).alias("one_rank")).filter(~matched | latest)
    rows = rows.filter(~matched | pl.col("activity").is_first_distinct().over("instance"))
    long_enough = pl.col("lag_ns") >= MIN_LAG_NS
    held = pl.col("queued_ns") >= BUSY_FRAC * pl.col("lag_ns")
    return rows.with_columns((long_enough & held).fill_null(value=False).alias("queued"))


def _partners(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The kind of work that held the GPU longest during the lag of each kernel."""
    work = activity(trace).filter(~pl.col("kind").is_in(COMM_KINDS))
    parts = []
    for group in rows.partition_by("gpu", "pid", "stream", maintain_order=True):
        ready, begun = group["ready_ns"].to_numpy(), group["start_ns"].to_numpy()
        beside = company_of(work, group)
        for (kind,), own in beside.partition_by("kind", as_dict=True).items():
            shared = intervals.overlap_ns(ready, begun, *merged(own))
            part = group.select("activity", pl.lit(kind, pl.String).alias("partner"))
            parts.append(part.with_columns(pl.Series("shared", shared)))
    schema = {"activity": pl.UInt32, "partner": pl.String, "shared": pl.Int64}
    found = pl.concat(parts) if parts else pl.DataFrame(schema=schema)
    found = found.sort("activity", "shared", "partner", descending=[False, True, False])
    return found.unique("activity", keep="first", maintain_order=True).drop("shared")


def _shares(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Largest share of step time (or of the capture) per row of the answer."""
    groups = steps(trace).select("step", pl.col("group").alias("step_group"))
    rows = rows.join(groups, on="step", how="left", maintain_order="left")
    lost = rows.group_by(*_BY, "step_group").agg(pl.col("lag_ns").sum().alias("lost_ns"))
    lost = share_of_steps(lost.sort(*_BY, "step_group", nulls_last=True), step_time(trace))
    lost = lost.sort("lost_frac", descending=True, nulls_last=True, maintain_order=True)
    return lost.group_by(_BY, maintain_order=True).agg(
        pl.col("lost_frac").first().alias("queued_frac"),
        pl.col("step_group").first().alias("queued_group"),
    )
