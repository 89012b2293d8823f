"""Collectives beside other work against the same collectives alone: slowdown, loss, mechanism.

Only like is compared with like: the same communicator, operation, type, size, kernel and grid.
Contended collectives are split by what ran beside them, because pooling partners hides the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.model.hardware import Hardware, lookup, peak_bandwidth
from tracekit.model.trace import Gpu, Trace, view
from tracekit.numerics import intervals
from tracekit.numerics.correlate import theil_sen
from tracekit.numerics.resample import lost, median_ratio, thinned
from tracekit.numerics.threads import each
from tracekit.views import metrics
from tracekit.views.coll_instances import matching
from tracekit.views.collectives import bus_factor
from tracekit.views.overlap import comm_overlap, contention_cases

__all__ = [
    "GROUP",
    "KEY",
    "SATURATED_FRAC",
    "contention_groups",
    "gpu_hardware",
]

KEY = ("comm", "op", "dtype", "bytes", "name", "grid")
"""What a collective and its baseline have in common."""
SATURATED_FRAC = 0.8
"""Share of what is achievable from which DRAM or the link counts as used up."""
GROUP = pl.Schema(
    {
        "comm": pl.String(),
        "op": pl.String(),
        "dtype": pl.String(),
        "bytes": pl.Int64(),
        "name": pl.String(),
        "grid": pl.String(),
        "partner": pl.String(),
        "n_base": pl.Int64(),
        "n_cont": pl.Int64(),
        "base_ns": pl.Float64(),
        "cont_ns": pl.Float64(),
        "slowdown_ratio": pl.Float64(),
        "slowdown_lo_ratio": pl.Float64(),
        "slowdown_hi_ratio": pl.Float64(),
        "known": pl.Boolean(),
        "per_overlap": pl.Float64(),
        "lost_ns": pl.Int64(),
        "mechanism": pl.String(),
        "dram_base_frac": pl.Float64(),
        "dram_cont_frac": pl.Float64(),
        "dram_cont_lo_frac": pl.Float64(),
        "dram_cont_hi_frac": pl.Float64(),
        "link_base_frac": pl.Float64(),
        "link_cont_frac": pl.Float64(),
        "sms_base_frac": pl.Float64(),
        "sms_cont_frac": pl.Float64(),
        "coverage_frac": pl.Float64(),
        "subsample": pl.Boolean(),
        "busbw_base_gbps": pl.Float64(),
        "busbw_cont_gbps": pl.Float64(),
        "lag_base_p95_ns": pl.Float64(),
        "lag_cont_ns": pl.Float64(),
        "prov": pl.Float64(),
    }
)
"""Columns of `contention_groups`."""
BANDWIDTH, LINK, SCHEDULING, UNKNOWN = "bandwidth", "link", "SM/scheduling", "unknown"
_Counters = tuple[metrics.Counter, ...]


def gpu_hardware(gpu: Gpu) -> Hardware | None:
    """Return the table row of a GPU of the trace, None when it is not in the table."""
    return lookup(
        gpu.name or None, gpu.chip or None, sm_count=gpu.sm_count, memory_bytes=gpu.memory_bytes
    )


@view(
    "gpu_metrics", "metric_names", of=[contention_cases, comm_overlap, matching, *metrics.SAMPLED]
)
def contention_groups(trace: Trace) -> pl.DataFrame:
    """Return one row per (key, partner) with at least one contended collective.

    Keys without any contended collective get one row with a null partner. Medians, slowdown and
    loss are of transfers (last end - latest start); shares of DRAM and link are means over the
    transfer windows of the group, of the GPU where they are highest.

    Returns:
        Frame of `GROUP`, sorted by it. ``known`` says that both sides have five collectives;
        ``per_overlap`` is the slope of transfer over overlap, relative to no overlap.
    """
    cases = contention_cases(trace)
    sampler = _Sampler(trace, _counters(trace))
    rows = []
    for key, part in sorted(_partition(cases, KEY), key=lambda kv: _sortable(kv[0])):
        alone = part.filter(pl.col("state") == "alone")
        contended = part.filter(pl.col("state") == "contended")
        before = sampler.side(alone)
        about = dict(zip(KEY, key, strict=True))
        groups = sorted(_partition(contended, ("partner",)), key=lambda kv: _sortable(kv[0]))
        for (partner,), own in groups or [((None,), contended)]:
            beside = pl.col("partner").eq_missing(pl.lit(partner, pl.String))
            near = part.filter((pl.col("state") == "alone") | beside)
            row = about | {"partner": partner} | _timing(alone, own, near)
            rows.append(row | sampler.levels(before, sampler.side(own)))
    return pl.DataFrame(rows, schema=GROUP)


def _partition(
    frame: pl.DataFrame, by: Sequence[str]
) -> list[tuple[tuple[object, ...], pl.DataFrame]]:
    return list(frame.partition_by(*by, as_dict=True, maintain_order=True).items())


def _sortable(key: tuple[object, ...]) -> tuple[tuple[bool, int, str], ...]:
    return tuple((k is None, k if isinstance(k, int) else 0, str(k)) for k in key)


def _timing(alone: pl.DataFrame, own: pl.DataFrame, near: pl.DataFrame) -> dict[str, object]:
    """Medians, slowdown, loss, bus bandwidth and start lag of one group."""
    base, cont = alone["transfer_ns"].to_numpy(), own["transfer_ns"].to_numpy()
    slowdown = median_ratio(thinned(base), thinned(cont))
    slope, at_zero = theil_sen(near["overlap_frac"].to_numpy(), near["transfer_ns"].to_numpy())
    base_ns = float(np.median(base)) if base.size else None
    cont_ns = float(np.median(cont)) if cont.size else None
    loss = lost(base, cont) if base.size and cont.size else None
    lag = alone["lag_ns"].drop_nulls().to_numpy()
    return {
        "n_base": base.size,
        "n_cont": cont.size,
        "base_ns": base_ns,
        "cont_ns": cont_ns,
        "slowdown_ratio": None if base_ns is None or cont_ns is None else cont_ns / base_ns,
        "slowdown_lo_ratio": _number(slowdown.lo),
        "slowdown_hi_ratio": _number(slowdown.hi),
        "known": bool(np.isfinite(slowdown.lo)),
        "per_overlap": _number(slope / at_zero) if at_zero > 0 else None,
        "lost_ns": None if loss is None else round(loss),
        "busbw_base_gbps": _bus_bandwidth(alone, base_ns),
        "busbw_cont_gbps": _bus_bandwidth(own, cont_ns),
        "lag_base_p95_ns": float(np.percentile(lag, 95)) if lag.size else None,
        "lag_cont_ns": own["lag_ns"].median(),
        "prov": pl.concat([alone["prov"], own["prov"]]).min(),
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _bus_bandwidth(cases: pl.DataFrame, transfer_ns: float | None) -> float | None:
    """Bus bandwidth in GB/s (bytes per ns) of the median transfer; None without a size."""
    if cases.is_empty() or not transfer_ns:
        return None
    op, size, ranks = cases.select("op", "bytes", "nranks_at_least").row(0)
    factor = bus_factor(op, ranks or 0)
    return None if size is None or factor is None else size / transfer_ns * factor


@dataclass(frozen=True)
class _Side:
    """What counters said over the windows of some collectives.

    Attributes:
        dram: Level of each GPU that was sampled.
        link_frac: Share of the link in its busier direction, highest over GPUs.
        sms_frac: Share of multiprocessors, highest over GPUs.
    """

    dram: list[tuple[int, metrics.Level]]
    link_frac: float | None
    sms_frac: float | None


_Levels = tuple[int, metrics.Level | None, list[float | None], float | None]
"""A GPU, its level of DRAM, and its means of both directions of the link and of processors."""
_Sampled = tuple[_Counters, tuple[_Counters, _Counters], _Counters]
"""DRAM, both directions of the link, and multiprocessors of one GPU."""


def _counters(trace: Trace) -> dict[int, _Sampled]:
    """Counters of the GPUs with matched collectives."""
    gpus = matching(trace).members["gpu"].drop_nulls().unique().sort()
    return {
        g: (
            metrics.dram(trace, g),
            metrics.link(trace, g),
            metrics.total(trace, g, metrics.SMS_ACTIVE),
        )
        for g in gpus
    }


class _Sampler:
    """Means of the counters over the transfer windows of a group, per GPU."""

    def __init__(self, trace: Trace, counters: dict[int, _Sampled]) -> None:
        kernels = comm_overlap(trace).kernels.select("activity", "window_start_ns")
        members = matching(trace).members.select("instance", "activity", "gpu", "end_ns")
        windows = members.join(kernels, on="activity", how="left", maintain_order="left")
        windows = windows.drop_nulls("gpu").sort("instance", maintain_order=True)
        self._of = windows["instance"].to_numpy()
        self._gpu = windows["gpu"].to_numpy()
        self._start = windows["window_start_ns"].to_numpy()
        self._end = windows["end_ns"].to_numpy()
        self._counters = counters
        self._achievable = {g: _achievable_frac(trace, trace.gpus[g]) for g in counters}

    def levels(self, before: _Side, during: _Side) -> dict[str, object]:
        """Return the sampled columns of one group and its mechanism."""
        known = [(g, v.mean_frac) for g, v in during.dram if v.mean_frac is not None]
        dram = [frac / self._achievable[g] for g, frac in known]
        quiet = [v.mean_frac for _, v in before.dram if v.mean_frac is not None]
        highest = max((v for _, v in during.dram), key=lambda v: v.mean_frac or 0.0, default=None)
        return {
            "mechanism": _mechanism(max(dram, default=None), during.link_frac),
            "dram_base_frac": max(quiet, default=None),
            "dram_cont_frac": None if highest is None else highest.mean_frac,
            "dram_cont_lo_frac": None if highest is None else highest.lo_frac,
            "dram_cont_hi_frac": None if highest is None else highest.hi_frac,
            "link_base_frac": before.link_frac,
            "link_cont_frac": during.link_frac,
            "sms_base_frac": before.sms_frac,
            "sms_cont_frac": during.sms_frac,
            "coverage_frac": min((v.coverage_frac for _, v in during.dram), default=None),
            "subsample": None if highest is None else highest.subsample,
        }

    def side(self, cases: pl.DataFrame) -> _Side:
        """Return the levels over the transfer windows of some collectives."""
        found = each(self._on_gpu, self._by_gpu(cases))
        dram = [(gpu, level) for gpu, level, _, _ in found if level is not None]
        link = [share for _, _, sides, _ in found for share in sides]
        sms = [share for _, _, _, share in found]
        return _Side(dram, _highest(link), _highest(sms))

    def _on_gpu(self, one: tuple[int, intervals.Intervals]) -> _Levels:
        gpu, windows = one
        dram, sides, sms = self._counters[gpu]
        link = [_mean(side, windows) for side in sides]
        return gpu, metrics.level_over(dram, windows), link, _mean(sms, windows)

    def _by_gpu(self, cases: pl.DataFrame) -> list[tuple[int, intervals.Intervals]]:
        begin, end = (
            np.searchsorted(self._of, cases["instance"].sort().to_numpy(), side=side)
            for side in ("left", "right")
        )
        count = end - begin
        rows = np.repeat(begin - np.cumsum(count) + count, count) + np.arange(count.sum())
        gpu = self._gpu[rows]
        parts = [(int(g), rows[gpu == g]) for g in np.unique(gpu)]
        return [
            (g, intervals.union(self._start[own], self._end[own]))
            for g, own in sorted(parts, key=lambda part: str(part[0]))
        ]


def _mean(counters: _Counters, windows: intervals.Intervals) -> float | None:
    found = metrics.mean_over(counters, windows)
    return None if found is None else found[0]


def _highest(shares: list[float | None]) -> float | None:
    return max((share for share in shares if share is not None), default=None)


def _achievable_frac(trace: Trace, gpu: Gpu) -> float:
    """What the user measured as achievable DRAM bandwidth, as a share of the peak; else 1."""
    achievable = trace.settings.get("hardware.achievable_gbps")
    peak = trace.settings.get("hardware.peak_gbps")
    if peak is None:
        reported = gpu.bandwidth_bytes_per_s
        found = peak_bandwidth(gpu_hardware(gpu), reported_bytes_per_s=reported)
        peak = None if found is None else found.gb_per_s
    if achievable is None or peak is None:
        return 1.0
    return min(1.0, float(achievable) / float(peak))


def _mechanism(dram_frac: float | None, link_frac: float | None) -> str:
    if dram_frac is None:
        return UNKNOWN
    if dram_frac >= SATURATED_FRAC:
        return BANDWIDTH
    if link_frac is None:
        return UNKNOWN
    return LINK if link_frac >= SATURATED_FRAC else SCHEDULING
