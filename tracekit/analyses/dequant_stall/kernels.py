"""How short a dequantising kernel could be at best, and what separating it costs in traffic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.analyses.dequant_stall.periods import DEQUANT, FUSED, work_of
from tracekit.analyses.dequant_stall.tables import KERNELS, STALLS, STARVATION
from tracekit.model.kernels import Classifier, KernelKind
from tracekit.model.ncu import worst_stall
from tracekit.numerics import intervals
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.samples import sampling, starvation
from tracekit.trace import Trace
from tracekit.views.counters.metrics import DRAM, TENSOR, counter, metric_names, samples_of
from tracekit.views.device.activity import WORK_KIND
from tracekit.views.device.hardware import peak_bytes_per_s
from tracekit.views.device.kernels import kernel_names
from tracekit.views.l2.ncu import profiled

__all__ = [
    "TENSOR",
    "Sampled",
    "idle_tensor_cores",
    "least_bytes",
    "stalls",
    "traffic_amplification",
    "weight_bits",
    "with_bounds",
]

OUTPUT_BYTES = 2.0
"""Bytes of one dequantised weight: 16 bits."""
_BITS = (
    (4, re.compile(r"int4|nf4|fp4|4bit|awq|gptq|u4", re.IGNORECASE)),
    (8, re.compile(r"int8|fp8|e4m3|e5m2|8bit", re.IGNORECASE)),
)


def weight_bits(names: Sequence[str]) -> int | None:
    """Return the bits of a quantised weight by kernel names; None when no name states them."""
    found = (bits for bits, pattern in _BITS if any(pattern.search(name) for name in names))
    return next(found, None)


def traffic_amplification(weight_bytes: float, output_bytes: float) -> float:
    """DRAM bytes of dequantise-then-use over those of a fused kernel.

    Args:
        weight_bytes: Bytes of one quantised weight.
        output_bytes: Bytes of one dequantised weight, written once and read once.

    Returns:
        ``(weight + 2 output) / weight``: 9 for INT4 to FP16, 5 for FP8 to FP16.
    """
    return (weight_bytes + 2 * output_bytes) / weight_bytes


def least_bytes(elements: int, bits: int, *, standalone: bool) -> float:
    """Return the bytes that a dequantising kernel moves at least; scales are left out.

    Args:
        elements: Weights that one execution dequantises.
        bits: Width of a quantised weight.
        standalone: Whether it writes the 16-bit weights; a fused kernel only reads.
    """
    return elements * (bits / 8 + (OUTPUT_BYTES if standalone else 0.0))


def with_bounds(trace: Trace, rows: pl.DataFrame, elements: int) -> pl.DataFrame:
    """Return durations of every dequantising kernel by name, with bounds where bytes are known.

    Args:
        trace: The run.
        rows: What `work_of` returns for dequantising and fused kernels.
        elements: Weights that one execution dequantises; 0 when not stated.

    Returns:
        Frame of `KERNELS`, longest first.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    table = rows.group_by("name_key", "kind").agg(
        pl.len().alias("n"),
        length.sum().alias("total_ns"),
        *(length.quantile(q, "linear").alias(f"p{round(q * 100)}_ns") for q in (0.5, 0.95, 0.99)),
        (pl.len() >= 20).alias("p95_sure"),
        (pl.len() >= 100).alias("p99_sure"),
        pl.col("gpu").unique().alias("gpus"),
    )
    named = table.join(kernel_names(trace).select("name_key", "name"), on="name_key", how="left")
    least = [
        _t_min_ns(trace, elements, *key) for key in named.select("name", "kind", "gpus").iter_rows()
    ]
    bound = pl.Series("t_min_ns", least, dtype=pl.Float64)
    named = named.with_columns(bound).with_columns(
        (pl.col("t_min_ns") / pl.col("p50_ns")).alias("efficiency_frac")
    )
    return KERNELS.conform(named.sort(["total_ns", "name"], descending=[True, False]))


def _t_min_ns(
    trace: Trace, elements: int, name: str, kind: str, gpus: Sequence[int | None]
) -> float | None:
    """Least time of one execution; on several GPUs that of the fastest."""
    bits = weight_bits([name])
    rates = [peak_bytes_per_s(trace, g) for g in trace.gpus if g.index in gpus]
    fastest = max((rate for rate in rates if rate is not None), default=None)
    if elements <= 0 or bits is None or fastest is None:
        return None
    return least_bytes(elements, bits, standalone=kind == DEQUANT) / fastest * 1e9


def stalls(trace: Trace) -> pl.DataFrame:
    """Return one row a dequantising kernel that Nsight Compute profiled, longest first.

    Counters are averaged over its executions, weighed by their time where that was counted.
    """
    rows = profiled(trace)
    classifier = Classifier(trace.settings.kernel_overrides)
    kinds = {name: classifier.classify(name).kind.value for name in rows["name"].drop_nulls()}
    kind = pl.col("name").replace_strict(kinds, default=None, return_dtype=pl.String)
    rows = rows.with_columns(kind.alias("kind")).filter(pl.col("kind").is_in([DEQUANT, FUSED]))
    counters = [c for c in rows.columns if c.startswith("stall_")]
    counters += ["warp_latency", "issue_active", "alu_pct", "tensor_pct"]
    counters += ["occupancy_frac", "occupancy_gap_pp"]
    weight = pl.col("time_ns").fill_null(1.0)
    means = (
        (pl.col(c) * weight).sum() / weight.filter(pl.col(c).is_not_null()).sum() for c in counters
    )
    table = rows.group_by("name", "kind").agg(
        pl.len().alias("n"),
        pl.col("time_ns").sum().alias("total_ns"),
        *means,
    )
    table = table.with_columns(pl.col(counters).fill_nan(None))
    found = [worst_stall(row) for row in table.iter_rows(named=True)]
    read = pl.DataFrame(
        {
            "reason": [f.reason for f in found],
            "stall_frac": [f.share for f in found],
            "flagged": [f.flagged for f in found],
            "reading": [f.reading if f.flagged else "" for f in found],
        },
        schema={c: STALLS.schema[c] for c in ("reason", "stall_frac", "flagged", "reading")},
    )
    table = table.hstack(read).with_columns(pl.col("issue_active").alias("issue_active_frac"))
    return STALLS.conform(table.sort(["total_ns", "name"], descending=[True, False]))


READ = DRAM[0][0]
SLOW_BELOW = 0.8
"""Share of its bandwidth bound below which a fused kernel counts as starved."""
_PRODUCTS = (KernelKind.GEMM.value, KernelKind.MOE_GEMM.value)


class Sampled(NamedTuple):
    """What samples say.

    Attributes:
        stretches: Frame of `STARVATION`.
        period_ns: Longest sampling period of the two counters; None when not both were sampled
            on every GPU that dequantises.
        known: Whether that is fine enough to see a dequantisation kernel.
    """

    stretches: pl.DataFrame
    period_ns: int | None
    known: bool


def idle_tensor_cores(
    trace: Trace, periods: pl.DataFrame, kernels: pl.DataFrame, rows: pl.DataFrame
) -> Sampled:
    """Find starvation and valleys.

    Args:
        trace: The run.
        periods: Frame of `PERIODS`.
        kernels: Frame of `KERNELS`, whose bounds decide which fused kernels are slow.
        rows: What `work_of` returns for dequantising and fused kernels.
    """
    gpus = rows["gpu"].drop_nulls().unique().sort().to_list()
    sampled = [p for p in (_period_ns(trace, gpu) for gpu in gpus) if p is not None]
    if not sampled or len(sampled) < len(gpus):
        return Sampled(STARVATION.empty(), None, known=False)
    period = max(sampled)
    if period > starvation.COARSEST_PERIOD_NS:
        return Sampled(STARVATION.empty(), period, known=False)
    names = kernel_names(trace).select("name_key", "name")
    rows = work_of(trace, (DEQUANT, FUSED, *_PRODUCTS))
    bounds = kernels.select("name", pl.col("kind").cast(WORK_KIND), "t_min_ns")
    rows = rows.join(names, on="name_key", how="left").join(bounds, on=["name", "kind"], how="left")
    found = [
        part
        for gpu in gpus
        for part in _of_gpu(gpu, _cells(trace, gpu), rows.filter(pl.col("gpu") == gpu), periods)
    ]
    stretches = pl.concat([STARVATION.empty(), *found]).sort("gpu", "start_ns", "what")
    return Sampled(stretches, period, known=True)


def _period_ns(trace: Trace, gpu: int) -> int | None:
    """Longest sampling period of DRAM read and tensor activity; None unless both were sampled."""
    if not {READ, TENSOR} <= metric_names(trace, gpu):
        return None
    read, tensor = (counter(trace, gpu, name) for name in (READ, TENSOR))
    # A partitioned GPU reports zero for counters that its partitions share.
    if read is None or not read.cells.value.any():
        return None
    other = _all_cells(trace, gpu, TENSOR) if tensor is None else tensor.cells
    return max(read.cells.period_ns, other.period_ns)


def _cells(trace: Trace, gpu: int) -> tuple[sampling.Cells, sampling.Cells]:
    """DRAM read and tensor activity in percent."""
    read, tensor = (_all_cells(trace, gpu, name) for name in (READ, TENSOR))
    return read.keep(read.value >= 0), tensor.keep(tensor.value >= 0)


def _all_cells(trace: Trace, gpu: int, name: str) -> sampling.Cells:
    edge = trace.settings.sampling_edge
    return sampling.cells(*samples_of(trace, gpu, name), edge)


def _of_gpu(
    gpu: int,
    pair: tuple[sampling.Cells, sampling.Cells],
    rows: pl.DataFrame,
    periods: pl.DataFrame,
) -> list[pl.DataFrame]:
    own = periods.filter(pl.col("gpu") == gpu)
    length = pl.col("end_ns") - pl.col("start_ns")
    slow = rows.filter((pl.col("kind") == FUSED) & (pl.col("t_min_ns") < SLOW_BELOW * length))
    waiting = {"dequant period": _union(own), "fused kernel": _union(slow)}
    running = {
        "dequant kernel": _union(rows.filter(pl.col("kind") == DEQUANT)),
        "fused kernel": _union(rows.filter(pl.col("kind") == FUSED)),
        "matrix product": _union(rows.filter(pl.col("kind").is_in(_PRODUCTS))),
    }
    least = 2 * max(c.period_ns for c in pair)
    parts = []
    for what, where, stretches in (
        ("starvation", waiting, starvation.starved(*pair)),
        ("valley", running, starvation.valleys(*pair)),
    ):
        if stretches is not None:
            parts.append(_labelled(gpu, what, stretches, where, least))
    return parts


def _labelled(
    gpu: int, what: str, stretches: Intervals, where: dict[str, Intervals], least_ns: int
) -> pl.DataFrame:
    """Stretches cut to what they may be blamed on, those too short to be seen left out."""
    both = [np.concatenate(side) for side in zip(*where.values(), strict=True)]
    start, end = intervals.intersect(*stretches, *intervals.union(*both))
    long_enough = end - start >= least_ns
    start, end = start[long_enough], end[long_enough]
    names = list(where)
    covered = np.array([intervals.overlap_ns(start, end, *where[name]) for name in names])
    inside = [names[i] for i in covered.argmax(axis=0)] if start.size else []
    frame = pl.DataFrame(
        {"start_ns": start, "end_ns": end, "inside": pl.Series(inside, dtype=pl.String)}
    )
    return STARVATION.conform(frame.with_columns(gpu=pl.lit(gpu), what=pl.lit(what)))


def _union(rows: pl.DataFrame) -> Intervals:
    return intervals.union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
