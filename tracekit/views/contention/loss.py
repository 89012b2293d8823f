"""What contention costs: one row a mechanism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.table import Column, Table
from tracekit.numerics.bootstrap import Estimate, MedianRatios, median_ratios
from tracekit.trace import Trace, view
from tracekit.views.collectives.dependents import longest_blocking
from tracekit.views.collectives.overlap import contention_cases
from tracekit.views.contention.groups import KEY, contention_groups
from tracekit.views.launches.step_time import share_of_steps, step_time
from tracekit.views.waiting.queueing import collective_lags
from tracekit.views.waiting.rank_waits import waited_instances

__all__ = [
    "BLOCKING_LOSS",
    "COMBINED_STAKE",
    "MECHANISMS",
    "SLOWER_RATIO",
    "blocking_loss",
    "combined_stake",
    "contention_excess",
    "mechanisms",
]

SLOWER_RATIO = 1.1
"""Lower end of the interval from which a slowdown counts; more than collectives vary by itself."""
_PAIR = ["comm", "op", "mechanism"]
MECHANISMS = Table(
    "mechanisms",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("mechanism", pl.String, "", "bandwidth (DRAM), link, SM/scheduling or unknown"),
        Column("partners", pl.String, "", "kinds of work that overlap, most lost time first"),
        Column("n_groups", pl.Int64, "", "groups of like collectives"),
        Column("n_alone", pl.Int64, "", "collectives with at most 5% overlap"),
        Column("n_overlapped", pl.Int64, "", "collectives with at least 50% overlap"),
        Column("bytes_min", pl.Int64, "bytes", "smallest message"),
        Column("bytes_max", pl.Int64, "bytes", "largest message"),
        Column("slowdown_ratio", pl.Float64, "x", "overlapped over alone, medians"),
        Column("slowdown_lo_ratio", pl.Float64, "x", "lower end of its 95% bootstrap interval"),
        Column("slowdown_hi_ratio", pl.Float64, "x", "upper end"),
        Column("mildest_ratio", pl.Float64, "x", "smallest slowdown of a group"),
        Column("worst_ratio", pl.Float64, "x", "largest slowdown of a group"),
        Column("lost_ns", pl.Int64, "ns", "transfer time above the median alone, summed"),
        Column("lost_frac", pl.Float64, "1", "of the step group where it is largest"),
        Column("lost_all_frac", pl.Float64, "1", "of all step time, or of the capture"),
        Column("lost_group", pl.String, "", "step group of lost_frac"),
        Column("lost_of_ns", pl.Float64, "ns", "length of that step group or of the capture"),
        Column("all_time_ns", pl.Float64, "ns", "length of all steps, or of the capture"),
        Column("comm_lost_frac", pl.Float64, "1", "the same of all mechanisms of the communicator"),
        Column(
            "dram_alone_frac", pl.Float64, "1", "DRAM read + write over transfers alone, of peak"
        ),
        Column(
            "dram_overlapped_frac",
            pl.Float64,
            "1",
            "the same over transfers that the partner overlaps",
        ),
        Column(
            "link_alone_frac", pl.Float64, "1", "NVLink, busier direction, over transfers alone"
        ),
        Column(
            "link_overlapped_frac",
            pl.Float64,
            "1",
            "the same over transfers that the partner overlaps",
        ),
        Column("busbw_alone_gbps", pl.Float64, "GB/s", "bus bandwidth alone (nccl-tests' factor)"),
        Column(
            "busbw_overlapped_gbps",
            pl.Float64,
            "GB/s",
            "the same of transfers that the partner overlaps",
        ),
        Column("sms_alone_frac", pl.Float64, "1", "SMs with work, over the transfers alone"),
        Column(
            "sms_overlapped_frac",
            pl.Float64,
            "1",
            "the same over transfers that the partner overlaps",
        ),
        Column(
            "heaviest_bytes", pl.Int64, "bytes", "size that lost most; sampled columns are of it"
        ),
        Column("coverage_frac", pl.Float64, "1", "share of the windows that samples cover"),
        Column("worst_start_ns", pl.Int64, "ns", "start of the worst case"),
        Column("worst_end_ns", pl.Int64, "ns", "its end"),
        Column("provenance", pl.Float64, "", "confidence in source of size and operation, 0..1"),
    ),
    "slowdown and loss of one mechanism",
)


@view
def contention_excess(trace: Trace) -> pl.DataFrame:
    """Return `contention_cases` with what each contended collective lost.

    Returns:
        Its rows plus mechanism String and excess_ns Int64 (transfer above the baseline's median,
        at least 0); both null unless the collective is contended and its group is known.
    """
    groups = contention_groups(trace).filter("known")
    groups = groups.select(*KEY, "partner", "mechanism", "alone_ns").unique([*KEY, "partner"])
    rows = contention_cases(trace).join(
        groups, on=[*KEY, "partner"], how="left", nulls_equal=True, maintain_order="left"
    )
    counts = (pl.col("state") == "contended") & pl.col("alone_ns").is_not_null()
    excess = (pl.col("transfer_ns") - pl.col("alone_ns")).clip(lower_bound=0).round().cast(pl.Int64)
    return rows.with_columns(
        pl.when(counts).then("mechanism").alias("mechanism"),
        pl.when(counts).then(excess).alias("excess_ns"),
    ).drop("alone_ns")


@view
def mechanisms(trace: Trace) -> pl.DataFrame:
    """Return one row per (communicator, operation, mechanism) with a known group.

    ``slowdown_ratio`` is the geometric mean over groups weighted by their contended collectives;
    its interval is taken inside each bootstrap draw, so shared baselines are not counted twice.
    ``lost_frac`` is of the step group (or the capture) where it is largest, ``comm_lost_frac`` the
    loss of all mechanisms of the communicator that slow it, there where that is largest. Sampled
    columns and bus bandwidths are those of the group that lost most, of ``heaviest_bytes``.

    Returns:
        Frame of `MECHANISMS`, sorted by comm, op, mechanism.
    """
    groups = contention_groups(trace).filter(pl.col("known") & (pl.col("n_overlapped") > 0))
    rolled = _rolled(contention_cases(trace), groups)
    shares = _shares(contention_excess(trace), step_time(trace), rolled)
    found = rolled.join(shares, on=_PAIR, how="left", nulls_equal=True, maintain_order="left")
    worst = _worst(contention_excess(trace))
    found = found.join(worst, on=_PAIR, how="left", nulls_equal=True, maintain_order="left")
    return MECHANISMS.select(found).sort(_PAIR)


def _rolled(cases: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    rows = []
    for (comm, op), part in groups.partition_by("comm", "op", as_dict=True).items():
        ratios = _ratios(cases, part)
        numbered = part.with_row_index("_at")
        for (mechanism,), own in numbered.partition_by("mechanism", as_dict=True).items():
            row = {"comm": comm, "op": op, "mechanism": mechanism}
            rows.append(row | _summary(own, ratios.rollup(own["_at"].to_numpy())))
    return pl.DataFrame(
        rows, schema={c.name: c.dtype for c in MECHANISMS.columns if c.name not in _LATER}
    )


_OF_HEAVIEST = (
    "dram_alone_frac",
    "dram_overlapped_frac",
    "link_alone_frac",
    "link_overlapped_frac",
    "busbw_alone_gbps",
    "busbw_overlapped_gbps",
    "sms_alone_frac",
    "sms_overlapped_frac",
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
        "n_alone": own.unique(KEY)["n_alone"].sum(),
        "n_overlapped": own["n_overlapped"].sum(),
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


BLOCKING_LOSS = Table(
    "blocking_loss",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("mechanism", pl.String, "", "bandwidth (DRAM), link, SM/scheduling or unknown"),
        Column("blocking_ns", pl.Int64, "ns", "part that something was seen to wait for"),
    ),
    "lost transfer time that something waited for",
)
COMBINED_STAKE = Table(
    "combined_stake",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column(
            "waiting_ns",
            pl.Int64,
            "ns",
            "blocking wait, mean over ranks, first collective left out",
        ),
        Column("queueing_ns", pl.Int64, "ns", "blocking part of queueing"),
        Column("slower_ns", pl.Int64, "ns", "transfer time above the median alone"),
        Column("combined_ns", pl.Int64, "ns", "all three, each moment counted once"),
    ),
    "what all findings on one communicator put at stake together",
)
CASES = Table(
    "collectives",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("bytes", pl.Int64, "bytes", "whole message; null when unknown"),
        Column("n_seen", pl.UInt32, "", "ranks that were recorded"),
        Column("last_start_ns", pl.Int64, "ns", "latest start over the ranks"),
        Column("last_end_ns", pl.Int64, "ns", "last end over the ranks"),
        Column("transfer_ns", pl.Int64, "ns", "last end - latest start"),
        Column("skew_ns", pl.Int64, "ns", "latest start - first start"),
        Column("overlap_frac", pl.Float64, "1", "share of the transfer that other work overlaps"),
        Column("state", pl.String, "", "alone, contended or partly"),
        Column("partner", pl.String, "", "kind of work that overlaps it most"),
        Column("mechanism", pl.String, "", "bandwidth (DRAM), link, SM/scheduling or unknown"),
        Column("excess_ns", pl.Int64, "ns", "time above the median without overlap"),
        Column("step_group", pl.String, "", "group of like steps; null outside of steps"),
    ),
    "one collective, matched across its ranks",
)


@view
def _excess(trace: Trace) -> pl.DataFrame:
    """Slowed collectives of mechanisms that slow, with the part that blocked dependents."""
    slow = mechanisms(trace).filter(pl.col("slowdown_lo_ratio") >= SLOWER_RATIO).select(_PAIR)
    rows = contention_excess(trace).drop_nulls("excess_ns")
    rows = rows.join(slow, on=_PAIR, how="semi", nulls_equal=True)
    delay = pl.Series("delay_blocking_ns", longest_blocking(trace)[rows["instance"].to_numpy()])
    return rows.with_columns(delay).select(
        *_PAIR,
        "instance",
        "excess_ns",
        pl.min_horizontal("excess_ns", "delay_blocking_ns").alias("blocking_ns"),
    )


@view
def blocking_loss(trace: Trace) -> pl.DataFrame:
    """Return how much of the lost transfer time something waited for.

    Returns:
        Frame of `BLOCKING_LOSS`, sorted by its keys, one row a mechanism that slows.
    """
    found = _excess(trace).group_by(_PAIR).agg(pl.col("blocking_ns").sum())
    return BLOCKING_LOSS.select(found).sort(_PAIR, nulls_last=True)


@view
def combined_stake(trace: Trace) -> pl.DataFrame:
    """Return what the findings on each communicator put at stake, alone and together.

    Of one collective, waiting for ranks ends where the transfer begins, so it adds to the rest. A
    late start and a slower transfer put the same time after it at stake, so the larger counts.

    Returns:
        Frame of `COMBINED_STAKE`, sorted by comm: blocking waits for ranks (mean over ranks,
        without the first collective), blocking queueing, slower transfers, and all of it counted
        once.
    """
    waited = pl.when(~pl.col("starting")).then("mean_wait_blocking_ns").alias("waiting_ns")
    rows = waited_instances(trace).select("comm", "instance", waited)
    lags = collective_lags(trace).filter(pl.col("queued") & ~pl.col("dependency"))
    lags = lags.drop_nulls("instance").select(
        "instance", pl.col("blocking_ns").alias("queueing_ns")
    )
    slower = _excess(trace).select("instance", pl.col("excess_ns").alias("slower_ns"))
    rows = rows.join(lags, on="instance", how="left").join(slower, on="instance", how="left")
    parts = ["waiting_ns", "queueing_ns", "slower_ns"]
    rows = rows.with_columns(pl.col(parts).fill_null(0))
    once = pl.col("waiting_ns") + pl.max_horizontal("queueing_ns", "slower_ns")
    rows = rows.with_columns(once.alias("combined_ns"))
    found = rows.group_by("comm").agg(pl.col(*parts, "combined_ns").sum().round())
    return COMBINED_STAKE.select(found).sort("comm")
