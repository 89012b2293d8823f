"""Dequantisation stalls: how long consumers wait for weights to be expanded by separate kernels.

A *period* is the chain of consecutive dequantisation kernels on one stream directly before a
matrix product or attention kernel. Its exposed time is what no kernel on another stream of that
GPU covers: an upper bound of what fusing the dequantisation into the consumer could save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.analyses._dequant_verdict import verdict
from tracekit.model.analysis import Analysis, Frames, param
from tracekit.model.kernels import KernelKind
from tracekit.model.table import Column, Table
from tracekit.model.trace import Trace
from tracekit.numerics import intervals
from tracekit.views.activity import activity, activity_span
from tracekit.views.attribution import attribution, steps
from tracekit.views.kernels import kernel_names
from tracekit.views.overview import overview

__all__ = ["ANALYSIS", "Params"]

I64, F64, STR = pl.Int64, pl.Float64, pl.String
ALL_STEPS, NO_STEPS = "all steps", "whole capture"
_DEQUANT = KernelKind.DEQUANT.value
_FUSED = KernelKind.GEMM_QUANT.value
_PASSED_OVER = (KernelKind.QUANTIZE.value, "memset")
_CONSUMERS = tuple(
    k.value
    for k in (KernelKind.GEMM, KernelKind.GEMM_QUANT, KernelKind.MOE_GEMM, KernelKind.ATTENTION)
)
_STREAM = ["gpu", "report", "pid", "context", "stream"]


@dataclass(frozen=True)
class Params:
    """Parameters of `dequant_stall`."""

    chain_gap_us: float = param(
        20.0, unit="us", help="longest gap between two dequantisation kernels of one period"
    )
    warn_frac: float = param(0.03, unit="1", help="exposed share of a step that is a warning")
    critical_frac: float = param(0.10, unit="1", help="exposed share of a step that is critical")


PERIODS = Table(
    "periods",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("stream", I64, "", "stream"),
        Column("step", pl.UInt32, "", "step of the first kernel; null outside steps"),
        Column("group", STR, "", "step group; null outside steps"),
        Column("layer", pl.Int32, "", "layer of the first kernel; null when unknown"),
        Column("start_ns", I64, "ns", "start of the first dequantisation kernel"),
        Column("end_ns", I64, "ns", "start of the consumer"),
        Column("n_kernels", pl.UInt32, "", "dequantisation kernels in the chain"),
        Column("dequant_ns", I64, "ns", "time that they run"),
        Column("exposed_ns", I64, "ns", "part that no kernel on another stream covers"),
        Column("gap_ns", I64, "ns", "end of the last one to start of the consumer"),
        Column("consumer_wait_ns", I64, "ns", "start of the first one to start of the consumer"),
        Column("kernel", STR, "", "name of the first dequantisation kernel"),
        Column("consumer", STR, "", "name of the consumer"),
    ),
    "one chain of dequantisation kernels before its consumer",
)
GROUPS = Table(
    "groups",
    (
        Column("group", STR, "", f"step group, {ALL_STEPS!r}, or {NO_STEPS!r} without steps"),
        Column("n_steps", pl.UInt32, "", "steps with device work"),
        Column("step_ns", I64, "ns", "sum of the steps' GPU spans"),
        Column("n_periods", pl.UInt32, "", "periods inside"),
        Column("dequant_ns", I64, "ns", "dequantisation time"),
        Column("exposed_ns", I64, "ns", "exposed part"),
        Column("share_frac", F64, "1", "exposed_ns / step_ns"),
    ),
    "dequantisation as a share of one group of steps",
)
KERNELS = Table(
    "kernels",
    (
        Column("name", STR, "", "kernel name"),
        Column("kind", STR, "", "dequant, or gemm_quant when fused into the product"),
        Column("n", pl.UInt32, "", "executions"),
        Column("total_ns", I64, "ns", "sum of durations"),
        Column("p50_ns", F64, "ns", "median duration"),
        Column("p95_ns", F64, "ns", "95th percentile"),
        Column("p99_ns", F64, "ns", "99th percentile"),
        Column("p95_sure", pl.Boolean, "", "at least 20 executions"),
        Column("p99_sure", pl.Boolean, "", "at least 100 executions"),
    ),
    "one dequantising kernel",
)
SUMMARY = Table(
    "summary",
    (
        Column("n_dequant", pl.UInt32, "", "standalone dequantisation kernels"),
        Column("n_fused", pl.UInt32, "", "matrix products that dequantise inside"),
        Column("n_quantize", pl.UInt32, "", "activation quantisation kernels (no stall)"),
        Column("n_unconsumed", pl.UInt32, "", "dequantisation kernels without a consumer behind"),
        Column("n_outside_steps", pl.UInt32, "", "periods outside every step, not in the shares"),
        Column("opaque_ns", I64, "ns", "device time hidden in graph-level rows"),
        Column("unclassified_frac", F64, "1", "share of kernel time without a class"),
        Column("has_steps", pl.Boolean, "", "whether steps were found"),
    ),
    "what the verdict also needs; one row",
)


def compute(trace: Trace, params: Params) -> dict[str, pl.DataFrame]:
    """Return the frames of `ANALYSIS`."""
    kernels = _work(trace)
    periods, n_unconsumed = _periods(trace, kernels, params)
    has_steps = bool(steps(trace)["gpu_start_ns"].is_not_null().any())
    counted = periods.filter(pl.col("step").is_not_null()) if has_steps else periods
    head = overview(trace)
    kinds = dict(kernels["kind"].value_counts().iter_rows())
    summary = {
        "n_dequant": kinds.get(_DEQUANT, 0),
        "n_fused": kinds.get(_FUSED, 0),
        "n_quantize": kinds.get(KernelKind.QUANTIZE.value, 0),
        "n_unconsumed": n_unconsumed,
        "n_outside_steps": periods.height - counted.height,
        "opaque_ns": sum(g.opaque_ns for g in head.gpus),
        "unclassified_frac": head.unclassified_frac,
        "has_steps": has_steps,
    }
    return {
        "periods": periods,
        "groups": _groups(trace, counted, has_steps=has_steps),
        "kernels": _kernels(trace, kernels),
        "summary": pl.DataFrame([summary], schema=SUMMARY.schema),
    }


def _work(trace: Trace) -> pl.DataFrame:
    """Kernels and memsets in stream order, with step and layer."""
    work = activity(trace).hstack(attribution(trace).select("step", "layer"))
    on_stream = work.filter(pl.col("source").is_in(["kernel", "memset"]))
    return on_stream.sort([*_STREAM, "start_ns", "end_ns", "row"], nulls_last=True)


def _periods(trace: Trace, work: pl.DataFrame, params: Params) -> tuple[pl.DataFrame, int]:
    """Chains before a consumer, and the number of dequantisation kernels in no such chain."""
    rows = work.filter(~pl.col("kind").is_in(_PASSED_OVER))
    same_stream = pl.all_horizontal(pl.col(c).eq_missing(pl.col(c).shift(1)) for c in _STREAM)
    is_d = pl.col("kind") == _DEQUANT
    gap = pl.col("start_ns") - pl.col("end_ns").shift(1)
    joined = same_stream & is_d & (pl.col("kind").shift(1) == _DEQUANT)
    joined &= gap <= round(params.chain_gap_us * 1_000)
    follows = pl.all_horizontal(pl.col(c).eq_missing(pl.col(c).shift(-1)) for c in _STREAM)
    follows &= pl.col("kind").shift(-1).is_in(_CONSUMERS)
    rows = rows.with_columns(
        (~joined).fill_null(value=True).cum_sum().alias("chain"),
        pl.when(joined)
        .then(pl.max_horizontal("start_ns", pl.col("end_ns").shift(1)))
        .otherwise("start_ns")
        .alias("from_ns"),
        follows.fill_null(value=False).alias("consumed"),
        pl.col("start_ns").shift(-1).alias("next_ns"),
        pl.col("name_key").shift(-1).alias("next_key"),
    ).filter(is_d)
    rows = _with_exposed(rows, work)
    chains = rows.group_by("chain", maintain_order=True).agg(
        pl.col("gpu", "stream", "step", "layer", "name_key").first(),
        pl.col("start_ns").first(),
        pl.col("next_ns").last().alias("end_ns"),
        pl.len().alias("n_kernels"),
        (pl.col("end_ns") - pl.col("from_ns")).clip(0).sum().alias("dequant_ns"),
        pl.col("exposed_ns").sum(),
        (pl.col("next_ns") - pl.col("end_ns")).last().alias("gap_ns"),
        pl.col("next_key").last(),
        pl.col("consumed").last(),
    )
    consumed = chains.filter("consumed")
    n_lost = int(chains.filter(~pl.col("consumed"))["n_kernels"].sum())
    return _named(trace, consumed), n_lost


def _with_exposed(rows: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Add ``exposed_ns``: time of each row that no kernel on another stream of its GPU covers."""
    kernels = work.filter(pl.col("source") == "kernel")
    parts = []
    for key, part in rows.group_by(_STREAM, maintain_order=True):
        here = pl.all_horizontal(
            pl.col(c).eq_missing(pl.lit(v, rows.schema[c]))
            for c, v in zip(_STREAM, key, strict=True)
        )
        other = kernels.filter(pl.col("gpu").eq_missing(pl.lit(key[0], pl.Int16)) & ~here)
        busy = intervals.union(other["start_ns"].to_numpy(), other["end_ns"].to_numpy())
        start, end = part["from_ns"].to_numpy(), part["end_ns"].to_numpy()
        covered = pl.Series(intervals.overlap_ns(start, end, *busy))
        length = (part["end_ns"] - part["from_ns"]).clip(0)
        parts.append(part.with_columns((length - covered).alias("exposed_ns")))
    return pl.concat(parts) if parts else rows.with_columns(pl.lit(0, I64).alias("exposed_ns"))


def _named(trace: Trace, chains: pl.DataFrame) -> pl.DataFrame:
    names = kernel_names(trace).select("name_key", "name")
    groups = steps(trace).select("step", "group")
    chains = chains.join(groups, on="step", how="left", maintain_order="left")
    chains = chains.join(
        names.rename({"name": "kernel"}), on="name_key", how="left", maintain_order="left"
    ).join(
        names.rename({"name_key": "next_key", "name": "consumer"}),
        on="next_key",
        how="left",
        maintain_order="left",
    )
    wait = (pl.col("end_ns") - pl.col("start_ns")).alias("consumer_wait_ns")
    chains = chains.with_columns(wait).sort("start_ns", "gpu", "stream")
    return PERIODS.conform(chains)


def _groups(trace: Trace, counted: pl.DataFrame, *, has_steps: bool) -> pl.DataFrame:
    """Shares per step group and over all, most exposed first."""
    sums = (
        pl.len().alias("n_periods"),
        pl.col("dequant_ns").sum(),
        pl.col("exposed_ns").sum(),
    )
    if has_steps:
        spans = steps(trace).drop_nulls("gpu_start_ns")
        length = (pl.col("gpu_end_ns") - pl.col("gpu_start_ns")).sum().alias("step_ns")
        base = spans.group_by("group").agg(pl.len().alias("n_steps"), length)
        per = base.join(counted.group_by("group").agg(*sums), on="group", how="left")
        total = per.select(pl.lit(ALL_STEPS).alias("group"), pl.exclude("group").sum())
        per = pl.concat([per, total.select(per.columns)])
    else:
        span = activity_span(trace)
        per = counted.select(
            pl.lit(NO_STEPS).alias("group"),
            pl.lit(0).alias("n_steps"),
            pl.lit(span[1] - span[0] if span else 0).alias("step_ns"),
            *sums,
        )
    zero = [pl.col(c).fill_null(0) for c in ("n_periods", "dequant_ns", "exposed_ns")]
    per = per.with_columns(zero).with_columns(
        pl.when(pl.col("step_ns") > 0)
        .then(pl.col("exposed_ns") / pl.col("step_ns"))
        .alias("share_frac")
    )
    return GROUPS.conform(per.sort(["share_frac", "group"], descending=[True, False]))


def _kernels(trace: Trace, work: pl.DataFrame) -> pl.DataFrame:
    """Durations of every dequantising kernel, by name."""
    rows = work.filter(pl.col("kind").is_in([_DEQUANT, _FUSED]))
    length = pl.col("end_ns") - pl.col("start_ns")
    table = rows.group_by("name_key", "kind").agg(
        pl.len().alias("n"),
        length.sum().alias("total_ns"),
        *(length.quantile(q, "linear").alias(f"p{round(q * 100)}_ns") for q in (0.5, 0.95, 0.99)),
        (pl.len() >= 20).alias("p95_sure"),
        (pl.len() >= 100).alias("p99_sure"),
    )
    named = table.join(kernel_names(trace).select("name_key", "name"), on="name_key", how="left")
    return KERNELS.conform(named.sort(["total_ns", "name"], descending=[True, False]))


def plot(frames: Frames, axes: object) -> None:
    """Draw dequantisation against the rest of each step group; one bar a group."""
    groups = frames["groups"]
    bars: Sequence[str] = groups["group"].to_list()
    shares = [s or 0.0 for s in groups["share_frac"].to_list()]
    if not any(shares):
        return
    axes.barh(bars, shares, height=0.6)  # type: ignore[attr-defined]
    axes.set_xlabel("exposed dequantisation / GPU step time (share, 0..1)")  # type: ignore[attr-defined]
    axes.invert_yaxis()  # type: ignore[attr-defined]


ANALYSIS = Analysis(
    name="dequant_stall",
    question="How much step time do consumers wait for separate dequantisation kernels?",
    requires=("kernels",),
    uses=(
        "strings",
        "memcpy",
        "memset",
        "graph_trace",
        "graph_nodes",
        "runtime",
        "nvtx",
        "overhead",
    ),
    params=Params,
    results=(PERIODS, GROUPS, KERNELS, SUMMARY),
    compute=compute,
    verdict=verdict,
    plot=plot,
)
