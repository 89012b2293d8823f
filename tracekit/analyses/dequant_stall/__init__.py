"""Dequantisation stalls: how long consumers wait for weights to be expanded by separate kernels.

A *period* is the chain of consecutive dequantisation kernels on one stream directly before a
matrix product or attention kernel. Its exposed time is what no kernel on another stream of that
GPU covers: an upper bound of what fusing the dequantisation into the consumer could save.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.analyses.dequant_stall.chart import chart
from tracekit.analyses.dequant_stall.kernels import idle_tensor_cores, stalls, with_bounds
from tracekit.analyses.dequant_stall.periods import DEQUANT, FUSED, periods, work_of
from tracekit.analyses.dequant_stall.tables import (
    ALL_STEPS,
    GROUPS,
    KERNELS,
    NO_STEPS,
    PERIODS,
    STALLS,
    STARVATION,
    SUMMARY,
)
from tracekit.analyses.dequant_stall.verdict import verdict
from tracekit.model.kernels import KernelKind
from tracekit.trace import Trace
from tracekit.trace.analysis import Analysis, param
from tracekit.views.launches.attribution import event_waits, steps
from tracekit.views.launches.step_time import gpu_time_of_capture, gpu_time_of_steps
from tracekit.views.overview.totals import overview

__all__ = ["ANALYSIS", "Params"]


@dataclass(frozen=True)
class Params:
    """Parameters of `dequant_stall`."""

    chain_gap_us: float = param(
        20.0, unit="us", help="longest gap between two dequantisation kernels of one period"
    )
    warn_frac: float = param(0.03, unit="1", help="exposed share of a step that is a warning")
    critical_frac: float = param(0.10, unit="1", help="exposed share of a step that is critical")
    weight_elements: int = param(
        0, help="weights that one dequantising kernel handles, for bounds of its time; 0: not known"
    )


def compute(trace: Trace, params: Params) -> dict[str, pl.DataFrame]:
    """Return the frames of `ANALYSIS`."""
    chains, n_unconsumed = periods(trace, round(params.chain_gap_us * 1_000))
    rows = work_of(trace, (DEQUANT, FUSED))
    kernels = with_bounds(trace, rows, params.weight_elements)
    has_steps = bool(steps(trace)["gpu_start_ns"].is_not_null().any())
    counted = chains.filter(pl.col("step").is_not_null()) if has_steps else chains
    sampled = idle_tensor_cores(trace, chains, kernels, rows)
    head = overview(trace)
    kinds = {share.kind: share.n for share in head.classes}
    waits = event_waits(trace) if kinds.get(DEQUANT) else None
    summary = {
        "n_dequant": kinds.get(DEQUANT, 0),
        "n_fused": kinds.get(FUSED, 0),
        "n_quantize": kinds.get(KernelKind.QUANTIZE.value, 0),
        "n_unconsumed": n_unconsumed,
        "n_by_event": chains.filter(pl.col("via") == "event").height,
        "n_waits": None if waits is None else waits.height,
        "n_waits_unresolved": None if waits is None else waits.height - waits.drop_nulls().height,
        "n_outside_steps": chains.height - counted.height,
        "sample_period_ns": sampled.period_ns,
        "starvation_known": sampled.known,
        "opaque_ns": sum(g.opaque_ns for g in head.gpus),
        "unclassified_frac": head.unclassified_frac,
        "has_steps": has_steps,
    }
    return {
        "periods": chains,
        "groups": _groups(trace, counted, has_steps=has_steps),
        "kernels": kernels,
        "starvation": sampled.stretches,
        "stalls": stalls(trace),
        "summary": pl.DataFrame([summary], schema=SUMMARY.schema),
    }


def _groups(trace: Trace, counted: pl.DataFrame, *, has_steps: bool) -> pl.DataFrame:
    """Shares per step group and over all, most exposed first."""
    sums = (
        pl.len().alias("n_periods"),
        pl.col("dequant_ns").sum(),
        pl.col("exposed_ns").sum(),
    )
    if has_steps:
        spans = gpu_time_of_steps(trace).group_by("step").agg(pl.col("time_ns").sum())
        spans = spans.join(steps(trace).select("step", "group"), on="step")
        length = pl.col("time_ns").sum().alias("step_ns")
        base = spans.group_by("group").agg(pl.len().alias("n_steps"), length)
        per = base.join(counted.group_by("group").agg(*sums), on="group", how="left")
        total = per.select(pl.lit(ALL_STEPS).alias("group"), pl.exclude("group").sum())
        per = pl.concat([per, total.select(per.columns)])
    else:
        per = counted.select(
            pl.lit(NO_STEPS).alias("group"),
            pl.lit(0).alias("n_steps"),
            pl.lit(gpu_time_of_capture(trace)).alias("step_ns"),
            *sums,
        )
    zero = [pl.col(c).fill_null(0) for c in ("n_periods", "dequant_ns", "exposed_ns")]
    per = per.with_columns(zero).with_columns(
        pl.when(pl.col("step_ns") > 0)
        .then(pl.col("exposed_ns") / pl.col("step_ns"))
        .alias("share_frac")
    )
    return GROUPS.conform(per.sort(["share_frac", "group"], descending=[True, False]))


ANALYSIS = Analysis(
    name="dequant_stall",
    question="How much step time do consumers wait for separate dequantisation kernels?",
    requires=("kernels",),
    params=Params,
    results=(PERIODS, GROUPS, KERNELS, STARVATION, STALLS, SUMMARY),
    compute=compute,
    verdict=verdict,
    chart=chart,
)
