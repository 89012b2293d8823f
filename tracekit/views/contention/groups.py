"""Compares overlapped collectives with the same collectives alone: slowdown, loss, mechanism.

Only like is compared with like: the same communicator, operation, type, size, kernel and grid.
Contended collectives are split by the overlapping work, because pooling partners hides the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.table import Column, Table
from tracekit.numerics import intervals
from tracekit.numerics.association import theil_sen
from tracekit.numerics.bootstrap import lost, median_ratio
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.collectives.kernels import bus_factor
from tracekit.views.collectives.matching import instances, matching
from tracekit.views.collectives.overlap import comm_overlap, contention_cases
from tracekit.views.counters import metrics
from tracekit.views.device.hardware import achievable_frac

__all__ = ["GROUPS", "KEY", "SATURATED_FRAC", "contention_groups"]

KEY = ("comm", "op", "dtype", "bytes", "name", "grid")
"""What a collective and its baseline have in common."""
SATURATED_FRAC = 0.8
"""Share of what is achievable from which DRAM or the link counts as used up."""
GROUPS = Table(
    "groups",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("dtype", pl.String, "", "element type"),
        Column("bytes", pl.Int64, "bytes", "whole message; null when unknown"),
        Column("name", pl.String, "", "kernel name, or kind of copy"),
        Column("grid", pl.String, "", "grid of the kernel"),
        Column("partner", pl.String, "", "kind of work that overlaps it most"),
        Column("n_alone", pl.Int64, "", "collectives with at most 5% overlap"),
        Column("n_overlapped", pl.Int64, "", "collectives with at least 50% overlap"),
        Column("alone_ns", pl.Float64, "ns", "median transfer alone"),
        Column("overlapped_ns", pl.Float64, "ns", "median transfer that the partner overlaps"),
        Column("slowdown_ratio", pl.Float64, "x", "overlapped over alone, medians"),
        Column("slowdown_lo_ratio", pl.Float64, "x", "lower end of its 95% bootstrap interval"),
        Column("slowdown_hi_ratio", pl.Float64, "x", "upper end"),
        Column("known", pl.Boolean, "", "five collectives on either side"),
        Column("per_overlap", pl.Float64, "", "relative slope over overlap share (Theil-Sen)"),
        Column("lost_ns", pl.Int64, "ns", "transfer time above the median alone, summed"),
        Column("mechanism", pl.String, "", "bandwidth (DRAM), link, SM/scheduling or unknown"),
        Column(
            "dram_alone_frac", pl.Float64, "1", "DRAM read + write over transfers alone, of peak"
        ),
        Column(
            "dram_overlapped_frac",
            pl.Float64,
            "1",
            "the same over transfers that the partner overlaps",
        ),
        Column("dram_overlapped_lo_frac", pl.Float64, "1", "lower end over windows"),
        Column("dram_overlapped_hi_frac", pl.Float64, "1", "upper end over windows"),
        Column(
            "link_alone_frac", pl.Float64, "1", "NVLink, busier direction, over transfers alone"
        ),
        Column(
            "link_overlapped_frac",
            pl.Float64,
            "1",
            "the same over transfers that the partner overlaps",
        ),
        Column("sms_alone_frac", pl.Float64, "1", "SMs with work, over the transfers alone"),
        Column(
            "sms_overlapped_frac",
            pl.Float64,
            "1",
            "the same over transfers that the partner overlaps",
        ),
        Column("coverage_frac", pl.Float64, "1", "share of the windows that samples cover"),
        Column("subsample", pl.Boolean, "", "windows are shorter than the sampling period"),
        Column("busbw_alone_gbps", pl.Float64, "GB/s", "bus bandwidth alone (nccl-tests' factor)"),
        Column(
            "busbw_overlapped_gbps",
            pl.Float64,
            "GB/s",
            "the same of transfers that the partner overlaps",
        ),
        Column("lag_alone_p95_ns", pl.Float64, "ns", "95th percentile of start - ready alone"),
        Column("lag_overlapped_ns", pl.Float64, "ns", "median of start - ready, overlapped"),
        Column("provenance", pl.Float64, "", "confidence in source of size and operation, 0..1"),
    ),
    "like collectives overlapped by one partner, against alone",
)
BANDWIDTH, LINK, SCHEDULING, UNKNOWN = "bandwidth", "link", "SM/scheduling", "unknown"


_LOOKED_AT = (
    *("instance", "state", "partner", "transfer_ns", "overlap_frac", "lag_ns", "nranks_at_least"),
    "provenance",
)


@view
def contention_groups(trace: Trace) -> pl.DataFrame:
    """Return one row per (key, partner) with at least one contended collective.

    Keys without any contended collective get one row with a null partner. Medians, slowdown and
    loss are of transfers (last end - latest start); shares of DRAM and link are means over the
    transfer windows of the group, of the GPU where they are highest.

    Returns:
        Frame of `GROUPS`, sorted by it. ``known`` says that both sides have five collectives;
        ``per_overlap`` is the slope of transfer over overlap, relative to no overlap.
    """
    rows, groups = [], list[NDArray[np.uint32]]()
    cases = contention_cases(trace).select(*KEY, *_LOOKED_AT)
    for key, part in sorted(_partition(cases, KEY), key=_sortable):
        about = dict(zip(KEY, key, strict=True))
        alone = part.filter(pl.col("state") == "alone")
        contended = part.filter(pl.col("state") == "contended")
        before = len(groups)
        groups.append(alone["instance"].to_numpy())
        by_partner = sorted(_partition(contended, ("partner",)), key=_sortable)
        for (partner,), own in by_partner or [((None,), contended)]:
            same = pl.col("partner").eq_missing(pl.lit(partner, pl.String))
            near = part.filter((pl.col("state") == "alone") | same)
            row = about | {"partner": partner} | _timing(alone, own, near)
            rows.append((row, before, len(groups)))
            groups.append(own["instance"].to_numpy())
    found = sides(trace, groups)
    on = {gpu for side in found for gpu, _ in side.dram}
    achievable = {gpu: achievable_frac(trace, trace.gpus[gpu]) for gpu in on}
    return pl.DataFrame(
        [row | _levels(achievable, found[before], found[during]) for row, before, during in rows],
        schema=GROUPS.schema,
    )


def _partition(
    frame: pl.DataFrame, by: Sequence[str]
) -> list[tuple[tuple[object, ...], pl.DataFrame]]:
    return list(frame.partition_by(*by, as_dict=True, maintain_order=True).items())


def _sortable(part: tuple[tuple[object, ...], pl.DataFrame]) -> tuple[tuple[bool, int, str], ...]:
    return tuple((k is None, k if isinstance(k, int) else 0, str(k)) for k in part[0])


def _timing(alone: pl.DataFrame, own: pl.DataFrame, near: pl.DataFrame) -> dict[str, object]:
    """Medians, slowdown, loss, bus bandwidth and start lag of one group."""
    base, cont = alone["transfer_ns"].to_numpy(), own["transfer_ns"].to_numpy()
    slowdown = median_ratio(base, cont)
    slope, at_zero = theil_sen(near["overlap_frac"].to_numpy(), near["transfer_ns"].to_numpy())
    alone_ns = float(np.median(base)) if base.size else None
    overlapped_ns = float(np.median(cont)) if cont.size else None
    loss = lost(base, cont) if base.size and cont.size else None
    lag = alone["lag_ns"].drop_nulls().to_numpy()
    return {
        "n_alone": base.size,
        "n_overlapped": cont.size,
        "alone_ns": alone_ns,
        "overlapped_ns": overlapped_ns,
        "slowdown_ratio": None
        if alone_ns is None or overlapped_ns is None
        else overlapped_ns / alone_ns,
        "slowdown_lo_ratio": _number(slowdown.lo),
        "slowdown_hi_ratio": _number(slowdown.hi),
        "known": bool(np.isfinite(slowdown.lo)),
        "per_overlap": _number(slope / at_zero) if at_zero > 0 else None,
        "lost_ns": None if loss is None else round(loss),
        "busbw_alone_gbps": _bus_bandwidth(alone, alone_ns),
        "busbw_overlapped_gbps": _bus_bandwidth(own, overlapped_ns),
        "lag_alone_p95_ns": float(np.percentile(lag, 95)) if lag.size else None,
        "lag_overlapped_ns": own["lag_ns"].median(),
        "provenance": pl.concat([alone["provenance"], own["provenance"]]).min(),
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _bus_bandwidth(cases: pl.DataFrame, transfer_ns: float | None) -> float | None:
    """Bus bandwidth in GB/s (bytes per ns) of the median transfer; None without a size."""
    if cases.is_empty() or not transfer_ns:
        return None
    op, size, ranks = (cases[column][0] for column in ("op", "bytes", "nranks_at_least"))
    factor = bus_factor(op, ranks or 0)
    return None if size is None or factor is None else size / transfer_ns * factor


def _levels(achievable: dict[int, float], before: Side, during: Side) -> dict[str, object]:
    """The sampled columns of one group, and its mechanism."""
    known = [(g, v.mean_frac) for g, v in during.dram if v.mean_frac is not None]
    dram = [frac / achievable[g] for g, frac in known]
    quiet = [v.mean_frac for _, v in before.dram if v.mean_frac is not None]
    highest = max((v for _, v in during.dram), key=lambda v: v.mean_frac or 0.0, default=None)
    return {
        "mechanism": _mechanism(max(dram, default=None), during.link_frac),
        "dram_alone_frac": max(quiet, default=None),
        "dram_overlapped_frac": None if highest is None else highest.mean_frac,
        "dram_overlapped_lo_frac": None if highest is None else highest.lo_frac,
        "dram_overlapped_hi_frac": None if highest is None else highest.hi_frac,
        "link_alone_frac": before.link_frac,
        "link_overlapped_frac": during.link_frac,
        "sms_alone_frac": before.sms_frac,
        "sms_overlapped_frac": during.sms_frac,
        "coverage_frac": min((v.coverage_frac for _, v in during.dram), default=None),
        "subsample": None if highest is None else highest.subsample,
    }


def _mechanism(dram_frac: float | None, link_frac: float | None) -> str:
    if dram_frac is None:
        return UNKNOWN
    if dram_frac >= SATURATED_FRAC:
        return BANDWIDTH
    if link_frac is None:
        return UNKNOWN
    return LINK if link_frac >= SATURATED_FRAC else SCHEDULING


Int64: TypeAlias = NDArray[np.int64]
_NO_GPU = -1


@dataclass(frozen=True)
class Side:
    """What counters said over the windows of some collectives.

    Attributes:
        dram: Level of each GPU that was sampled.
        link_frac: Share of the link in its busier direction, highest over GPUs.
        sms_frac: Share of multiprocessors, highest over GPUs.
    """

    dram: list[tuple[int, metrics.Level]]
    link_frac: float | None
    sms_frac: float | None


@dataclass(frozen=True)
class _OnGpu:
    """Transfer windows on one GPU.

    Attributes:
        gpu: Which.
        instance: uint32[n], of which collective.
        start: int64[n], ns.
        end: int64[n], ns.
        dram: Counters of its memory.
        link: Counters of both directions of its link.
        sms: Counters of its multiprocessors.
    """

    gpu: int
    instance: NDArray[np.uint32]
    start: Int64
    end: Int64
    dram: tuple[metrics.Counter, ...]
    link: tuple[tuple[metrics.Counter, ...], tuple[metrics.Counter, ...]]
    sms: tuple[metrics.Counter, ...]


_OfGroup: TypeAlias = tuple[int, metrics.Level | None, list[float | None], float | None]
"""A GPU, its level of DRAM, and its means of both directions of the link and of processors."""


def sides(trace: Trace, groups: Sequence[NDArray[np.uint32]]) -> list[Side]:
    """Return the levels over the transfer windows of groups of collectives.

    Args:
        trace: May read ``gpu_metrics`` and ``metric_names``.
        groups: Numbers of the collectives of each group; none is in two.
    """
    group_of = np.full(instances(trace).height, len(groups), np.uint32)
    for number, group in enumerate(groups):
        group_of[group] = number
    found = each(lambda one: _levels_on(one, group_of, len(groups)), _by_gpu(trace))
    return [_side([own[k] for own in found if k in own]) for k in range(len(groups))]


def _side(found: list[_OfGroup]) -> Side:
    dram = [(gpu, level) for gpu, level, _, _ in found if level is not None]
    link = [share for _, _, both, _ in found for share in both]
    return Side(dram, _highest(link), _highest([share for _, _, _, share in found]))


def _by_gpu(trace: Trace) -> list[_OnGpu]:
    """Transfer windows and counters of each GPU with matched collectives."""
    members = matching(trace).members
    if members.is_empty():
        return []
    start = comm_overlap(trace).kernels["window_start_ns"][members["row"]].to_numpy()
    instance, end = (members[c].to_numpy() for c in ("instance", "end_ns"))
    gpu = members["gpu"].fill_null(_NO_GPU).to_numpy()
    found = []
    for one in sorted(members["gpu"].drop_nulls().unique().to_list(), key=str):
        rows = np.flatnonzero(gpu == one)
        sms = metrics.total(trace, one, metrics.SMS_ACTIVE)
        counters = metrics.dram(trace, one), metrics.link(trace, one), sms
        found.append(_OnGpu(one, instance[rows], start[rows], end[rows], *counters))
    return found


def _levels_on(one: _OnGpu, group_of: NDArray[np.uint32], n_groups: int) -> dict[int, _OfGroup]:
    """The levels on one GPU of each group with a window there."""
    group = group_of[one.instance]
    order = np.argsort(group.astype(np.min_scalar_type(n_groups)), kind="stable")
    until = np.cumsum(np.bincount(group, minlength=n_groups + 1))
    parts = {k: rows for k, rows in enumerate(np.split(order, until[:-1])[:-1]) if rows.size}
    unions = [intervals.union(one.start[rows], one.end[rows]) for rows in parts.values()]
    dram = metrics.levels_over(one.dram, unions)
    receiving, sending = (_means(side, unions) for side in one.link)
    links = [list(both) for both in zip(receiving, sending, strict=True)]
    each_group = zip(parts, dram, links, _means(one.sms, unions), strict=True)
    return {k: (one.gpu, level, link, sms) for k, level, link, sms in each_group}


def _means(counters: Sequence[metrics.Counter], unions: list[Intervals]) -> list[float | None]:
    found = metrics.mean_over_each(counters, unions)
    return [None if mean is None else mean[0] for mean in found]


def _highest(shares: list[float | None]) -> float | None:
    return max((share for share in shares if share is not None), default=None)
