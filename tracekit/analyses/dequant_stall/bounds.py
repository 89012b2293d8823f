"""How short a dequantising kernel could be at best, and what separating it costs in traffic."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from tracekit.analyses.dequant_stall.periods import DEQUANT
from tracekit.analyses.dequant_stall.tables import KERNELS
from tracekit.trace import Trace
from tracekit.views.device.hardware import peak_bytes_per_s
from tracekit.views.device.kernels import kernel_names

__all__ = ["least_bytes", "traffic_amplification", "weight_bits", "with_bounds"]

OUTPUT_BYTES = 2.0
"""Bytes of one dequantised weight: 16 bits."""
_BITS = (
    (4, re.compile(r"int4|nf4|fp4|4bit|awq|gptq|u4", re.IGNORECASE)),
    (8, re.compile(r"int8|fp8|e4m3|e5m2|8bit", re.IGNORECASE)),
)


def weight_bits(names: Sequence[str]) -> int | None:
    """Return the width of quantised weights that kernel names tell; None when they do not."""
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
