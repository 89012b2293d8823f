"""What everything that holds up collectives puts at stake together, each moment counted once."""

from __future__ import annotations

import polars as pl

from tracekit.trace import Trace, view
from tracekit.views.collectives.dependents import most_felt
from tracekit.views.contention.loss import SLOWER_RATIO, contention_excess, mechanisms
from tracekit.views.waiting.queueing import collective_lags
from tracekit.views.waiting.rank_waits import waited_instances

__all__ = ["FELT", "HELD_UP", "held_up", "loss_felt"]

_PAIR = ["comm", "op", "mechanism"]
FELT = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "mechanism": pl.String(),
        "felt_ns": pl.Int64(),
    }
)
"""Columns of `loss_felt`."""
HELD_UP = pl.Schema(
    {
        "comm": pl.String(),
        "waiting_ns": pl.Int64(),
        "queueing_ns": pl.Int64(),
        "slower_ns": pl.Int64(),
        "together_ns": pl.Int64(),
    }
)
"""Columns of `held_up`."""


@view(of=[contention_excess, mechanisms, most_felt])
def _excess(trace: Trace) -> pl.DataFrame:
    """Slowed collectives of mechanisms that slow, with what dependents felt of it."""
    slow = mechanisms(trace).filter(pl.col("slowdown_lo_ratio") >= SLOWER_RATIO).select(_PAIR)
    rows = contention_excess(trace).drop_nulls("excess_ns")
    rows = rows.join(slow, on=_PAIR, how="semi", nulls_equal=True)
    delay = pl.Series("delay_felt_ns", most_felt(trace)[rows["instance"].to_numpy()])
    return rows.with_columns(delay).select(
        *_PAIR,
        "instance",
        "excess_ns",
        pl.min_horizontal("excess_ns", "delay_felt_ns").alias("felt_ns"),
    )


@view(of=[_excess])
def loss_felt(trace: Trace) -> pl.DataFrame:
    """Return how much of the lost transfer time something waited for.

    Returns:
        Frame of `FELT`, sorted by its keys, one row a mechanism that slows.
    """
    found = _excess(trace).group_by(_PAIR).agg(pl.col("felt_ns").sum())
    return found.select(list(FELT)).cast(FELT).sort(_PAIR, nulls_last=True)


@view(of=[_excess, collective_lags, waited_instances])
def held_up(trace: Trace) -> pl.DataFrame:
    """Return what the findings on each communicator put at stake, alone and together.

    Of one collective, waiting for ranks ends where the transfer begins, so it adds to the rest. A
    late start and a slower transfer put the same time after it at stake, so the larger counts.

    Returns:
        Frame of `HELD_UP`, sorted by comm: felt waiting for ranks (mean over ranks, without the
        first collective), felt queueing, slower transfers, and all of it counted once.
    """
    waited = pl.when(~pl.col("starting")).then("mean_wait_felt_ns").alias("waiting_ns")
    rows = waited_instances(trace).select("comm", "instance", waited)
    lags = collective_lags(trace).filter(pl.col("queued") & ~pl.col("dependency"))
    lags = lags.drop_nulls("instance").select("instance", pl.col("felt_ns").alias("queueing_ns"))
    slower = _excess(trace).select("instance", pl.col("excess_ns").alias("slower_ns"))
    rows = rows.join(lags, on="instance", how="left").join(slower, on="instance", how="left")
    parts = ["waiting_ns", "queueing_ns", "slower_ns"]
    rows = rows.with_columns(pl.col(parts).fill_null(0))
    once = pl.col("waiting_ns") + pl.max_horizontal("queueing_ns", "slower_ns")
    rows = rows.with_columns(once.alias("together_ns"))
    found = rows.group_by("comm").agg(pl.col(*parts, "together_ns").sum().round())
    return found.select(list(HELD_UP)).cast(HELD_UP).sort("comm")
