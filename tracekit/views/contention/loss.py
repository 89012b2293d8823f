"""What contention costs: one row a mechanism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.numerics.bootstrap import Estimate, MedianRatios, median_ratios
from tracekit.trace import Trace, view
from tracekit.views.collectives.dependents import most_felt
from tracekit.views.collectives.overlap import contention_cases
from tracekit.views.contention.groups import KEY, contention_groups
from tracekit.views.launches.step_time import share_of_steps, step_time
from tracekit.views.waiting.queueing import collective_lags
from tracekit.views.waiting.rank_waits import waited_instances

__all__ = [
    "FELT",
    "HELD_UP",
    "MECHANISM",
    "SLOWER_RATIO",
    "contention_excess",
    "held_up",
    "loss_felt",
    "mechanisms",
]

SLOWER_RATIO = 1.1
"""Lower end of the interval from which a slowdown counts; more than collectives vary by itself."""
_PAIR = ["comm", "op", "mechanism"]
MECHANISM = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "mechanism": pl.String(),
        "partners": pl.String(),
        "n_groups": pl.Int64(),
        "n_base": pl.Int64(),
        "n_cont": pl.Int64(),
        "bytes_min": pl.Int64(),
        "bytes_max": pl.Int64(),
        "slowdown_ratio": pl.Float64(),
        "slowdown_lo_ratio": pl.Float64(),
        "slowdown_hi_ratio": pl.Float64(),
        "mildest_ratio": pl.Float64(),
        "worst_ratio": pl.Float64(),
        "lost_ns": pl.Int64(),
        "lost_frac": pl.Float64(),
        "lost_all_frac": pl.Float64(),
        "lost_group": pl.String(),
        "lost_of_ns": pl.Float64(),
        "all_time_ns": pl.Float64(),
        "comm_lost_frac": pl.Float64(),
        "dram_base_frac": pl.Float64(),
        "dram_cont_frac": pl.Float64(),
        "link_base_frac": pl.Float64(),
        "link_cont_frac": pl.Float64(),
        "busbw_base_gbps": pl.Float64(),
        "busbw_cont_gbps": pl.Float64(),
        "sms_base_frac": pl.Float64(),
        "sms_cont_frac": pl.Float64(),
        "heaviest_bytes": pl.Int64(),
        "coverage_frac": pl.Float64(),
        "worst_start_ns": pl.Int64(),
        "worst_end_ns": pl.Int64(),
        "provenance": pl.Float64(),
    }
)
"""Columns of `mechanisms`."""


@view
def contention_excess(trace: Trace) -> pl.DataFrame:
    """Return `contention_cases` with what each contended collective lost.

    Returns:
        Its rows plus mechanism String and excess_ns Int64 (transfer above the baseline's median,
        at least 0); both null unless the collective is contended and its group is known.
    """
    groups = contention_groups(trace).filter("known")
    groups = groups.select(*KEY, "partner", "mechanism", "base_ns").unique([*KEY, "partner"])
    rows = contention_cases(trace).join(
        groups, on=[*KEY, "partner"], how="left", nulls_equal=True, maintain_order="left"
    )
    counts = (pl.col("state") == "contended") & pl.col("base_ns").is_not_null()
    excess = (pl.col("transfer_ns") - pl.col("base_ns")).clip(lower_bound=0).round().cast(pl.Int64)
    return rows.with_columns(
        pl.when(counts).then("mechanism").alias("mechanism"),
        pl.when(counts).then(excess).alias("excess_ns"),
    ).drop("base_ns")


@view
def mechanisms(trace: Trace) -> pl.DataFrame:
    """Return one row per (communicator, operation, mechanism) with a known group.

    ``slowdown_ratio`` is the geometric mean over groups weighted by their contended collectives;
    its interval is taken inside each bootstrap draw, so shared baselines are not counted twice.
    ``lost_frac`` is of the step group (or the capture) where it is largest, ``comm_lost_frac`` the
    loss of all mechanisms of the communicator that slow it, there where that is largest. Sampled
    columns and bus bandwidths are those of the group that lost most, of ``heaviest_bytes``.

    Returns:
        Frame of `MECHANISM`, sorted by comm, op, mechanism.
    """
    groups = contention_groups(trace).filter(pl.col("known") & (pl.col("n_cont") > 0))
    rolled = _rolled(contention_cases(trace), groups)
    shares = _shares(contention_excess(trace), step_time(trace), rolled)
    found = rolled.join(shares, on=_PAIR, how="left", nulls_equal=True, maintain_order="left")
    worst = _worst(contention_excess(trace))
    found = found.join(worst, on=_PAIR, how="left", nulls_equal=True, maintain_order="left")
    return found.select(list(MECHANISM)).cast(MECHANISM).sort(_PAIR)


def _rolled(cases: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    rows = []
    for (comm, op), part in groups.partition_by("comm", "op", as_dict=True).items():
        ratios = _ratios(cases, part)
        numbered = part.with_row_index("_at")
        for (mechanism,), own in numbered.partition_by("mechanism", as_dict=True).items():
            row = {"comm": comm, "op": op, "mechanism": mechanism}
            rows.append(row | _summary(own, ratios.rollup(own["_at"].to_numpy())))
    return pl.DataFrame(rows, schema={k: v for k, v in MECHANISM.items() if k not in _LATER})


_OF_HEAVIEST = (
    "dram_base_frac",
    "dram_cont_frac",
    "link_base_frac",
    "link_cont_frac",
    "busbw_base_gbps",
    "busbw_cont_gbps",
    "sms_base_frac",
    "sms_cont_frac",
    "coverage_frac",
)
_LATER = frozenset(
    {"lost_frac", "lost_all_frac", "lost_group", "comm_lost_frac", "lost_of_ns", "all_time_ns"}
    | {"worst_start_ns", "worst_end_ns"}
)
"""Columns that are not sums over groups."""


def _ratios(cases: pl.DataFrame, groups: pl.DataFrame) -> MedianRatios:
    """Draws of all groups of one (communicator, operation); groups of a key share a baseline."""
    keys = groups.select(KEY).unique(maintain_order=True).with_row_index("_key")
    of = groups.join(keys, on=list(KEY), how="left", nulls_equal=True, maintain_order="left")
    own = [*KEY, "partner"]

    def transfers(where: pl.DataFrame, on: list[str], state: str) -> list[NDArray[np.int64]]:
        chosen = cases.select(*on, "transfer_ns").filter(cases["state"] == state)
        sought = where.select(on).with_row_index("_nth")
        found = chosen.join(sought, on=on, nulls_equal=True, maintain_order="left")
        nth, transfer = found["_nth"].to_numpy(), found["transfer_ns"].to_numpy()
        until = np.cumsum(np.bincount(nth, minlength=where.height))
        return np.split(transfer[np.argsort(nth, kind="stable")], until[:-1])

    below, above = transfers(keys, list(KEY), "alone"), transfers(of, own, "contended")
    ratios = median_ratios(
        below,
        above,
        of["_key"].to_numpy(),
    )
    return replace(ratios, n=np.array([values.size for values in above], np.int64))


def _summary(own: pl.DataFrame, rollup: Estimate) -> dict[str, object]:
    """Totals of the groups of one mechanism; sampled values of the one that lost most."""
    heaviest = own.sort("lost_ns", descending=True, maintain_order=True).row(0, named=True)
    partners = own.group_by("partner").agg(pl.col("lost_ns").sum())
    partners = partners.sort(["lost_ns", "partner"], descending=[True, False])
    return {
        "partners": ", ".join(p or "unknown" for p in partners["partner"]),
        "n_groups": own.height,
        "n_base": own.unique(KEY)["n_base"].sum(),
        "n_cont": own["n_cont"].sum(),
        "bytes_min": own["bytes"].min(),
        "bytes_max": own["bytes"].max(),
        "slowdown_ratio": rollup.value,
        "slowdown_lo_ratio": rollup.lo,
        "slowdown_hi_ratio": rollup.hi,
        "mildest_ratio": own["slowdown_ratio"].min(),
        "worst_ratio": own["slowdown_ratio"].max(),
        "lost_ns": own["lost_ns"].sum(),
        "provenance": own["provenance"].min(),
        "heaviest_bytes": heaviest["bytes"],
        **{name: heaviest[name] for name in _OF_HEAVIEST},
    }


def _shares(excess: pl.DataFrame, times: pl.DataFrame, rolled: pl.DataFrame) -> pl.DataFrame:
    """Loss as a share of step time: worst step group, all steps, and the communicator's sum."""
    lost = (
        excess.drop_nulls("excess_ns")
        .group_by(*_PAIR, "step_group")
        .agg(pl.col("excess_ns").sum().alias("lost_ns"))
    )
    shares = share_of_steps(lost.sort(*_PAIR, "step_group", nulls_last=True), times)
    slow = rolled.filter(pl.col("slowdown_lo_ratio") >= SLOWER_RATIO).select(_PAIR)
    of_slow = shares.join(slow, on=_PAIR, how="inner", nulls_equal=True)
    comm = of_slow.group_by("comm", "step_group").agg(pl.col("lost_frac").sum())
    comm = comm.group_by("comm").agg(pl.col("lost_frac").max().alias("comm_lost_frac"))
    ordered = shares.sort("lost_frac", descending=True, nulls_last=True, maintain_order=True)
    each = ordered.group_by(_PAIR, maintain_order=True).agg(
        pl.col("lost_frac").first(),
        pl.col("step_group").first().alias("lost_group"),
        pl.col("time_ns").first().alias("lost_of_ns"),
        pl.col("all_time_ns").first(),
        (
            pl.col("lost_ns").filter(pl.col("lost_frac").is_not_null()).sum()
            / pl.col("all_time_ns").first()
        ).alias("lost_all_frac"),
    )
    return each.join(comm, on="comm", how="left", maintain_order="left")


def _worst(excess: pl.DataFrame) -> pl.DataFrame:
    """The single collective of each mechanism that lost most."""
    ordered = excess.drop_nulls("excess_ns").sort("excess_ns", "instance", descending=[True, False])
    return ordered.group_by(_PAIR, maintain_order=True).agg(
        pl.col("last_start_ns").first().alias("worst_start_ns"),
        pl.col("last_end_ns").first().alias("worst_end_ns"),
    )


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


@view
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


@view
def loss_felt(trace: Trace) -> pl.DataFrame:
    """Return how much of the lost transfer time something waited for.

    Returns:
        Frame of `FELT`, sorted by its keys, one row a mechanism that slows.
    """
    found = _excess(trace).group_by(_PAIR).agg(pl.col("felt_ns").sum())
    return found.select(list(FELT)).cast(FELT).sort(_PAIR, nulls_last=True)


@view
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
