"""The words of `kernel_floor`: what a limit means and what helps."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit.analyses.kernel_floor.limits import Limit
from tracekit.model.finding import Missing
from tracekit.model.ncu import METRICS
from tracekit.wording.numbers import duration, share

__all__ = ["NCU_COMMAND", "advice", "caveats", "class_words", "missing", "whole_words"]

NCU_COMMAND = (
    "ncu --cache-control none --clock-control none --replay-mode application --metrics"
    f" {','.join(raw for raw, _ in METRICS.values())} --csv --page raw --log-file kernels.csv"
    " YOUR_COMMAND"
)
_ADVICE = {
    Limit.DRAM: "Only fewer bytes help: quantise, fuse neighbouring kernels, or batch more work"
    " per byte read.",
    Limit.TENSOR: "Only fewer operations or a lower precision help.",
    Limit.NEAR_DRAM: "Little is left above the memory bandwidth: fewer bytes (quantise, fuse,"
    " batch) help more than a faster kernel.",
    Limit.NEAR_TENSOR: "Little is left above the arithmetic rate: fewer operations or a lower"
    " precision help more than a faster kernel.",
    Limit.LATENCY: "Fuse these kernels or batch more work into each: they end before the GPU is"
    " full.",
    Limit.LOW_OCCUPANCY: "Give these kernels more blocks, or blocks of more even length: many"
    " multiprocessors have no work while they run.",
    Limit.UNSATURATED: f"Profile these kernels with Nsight Compute to see what their warps wait"
    f" for: {NCU_COMMAND}",
}
_SMALL_SHARE = 0.5


def class_words(row: dict[str, Any], gpu: dict[str, Any]) -> str:
    """Return the limit of a class of kernels with its numbers."""
    dram, tensor = share(row["dram_frac"]), share(row["tensor_frac"])
    match row["verdict"]:
        case Limit.DRAM:
            return f"at the DRAM limit: {dram} of peak bandwidth{_split(row)}"
        case Limit.TENSOR:
            return f"tensor cores {tensor} busy: at the limit"
        case Limit.NEAR_DRAM:
            most = share(row["speedup_most_frac"])
            return (
                f"near the DRAM limit: {dram} of peak bandwidth{_split(row)}, at most {most} faster"
            )
        case Limit.NEAR_TENSOR:
            most = share(row["speedup_most_frac"])
            return f"tensor cores {tensor} busy: near the limit, at most {most} faster"
        case Limit.LATENCY:
            return (
                f"latency-bound: median {duration(row['median_ns'])} on fewer blocks than"
                f" {gpu['sm_count']} multiprocessors"
            )
        case Limit.LOW_OCCUPANCY:
            return (
                f"low occupancy: {share(row['sms_active_frac'])} of multiprocessors have work, DRAM"
                f" {dram}, tensor cores {tensor} busy"
            )
        case _:
            return f"no limit reached: DRAM {dram}, tensor cores {tensor} busy"


def _split(row: dict[str, Any]) -> str:
    if row["dram_read_frac"] is None or row["dram_write_frac"] is None:
        return ""
    return f" (read {share(row['dram_read_frac'])}, write {share(row['dram_write_frac'])})"


def whole_words(gpu: dict[str, Any]) -> str:
    """Return how little of the span kernels fill, where the limit is therefore a small matter."""
    if gpu["span_ns"] and gpu["kernel_ns"] < _SMALL_SHARE * gpu["span_ns"]:
        return f" (kernels fill {share(gpu['kernel_ns'] / gpu['span_ns'])} of its span)"
    return ""


def advice(verdict: str) -> str:
    """Return what helps kernels with that verdict, "" where nothing is known."""
    return _ADVICE.get(Limit(verdict), "")


def caveats(row: dict[str, Any]) -> tuple[str, ...]:
    """Return how the verdict on a class can be wrong."""
    if row["verdict"] in (Limit.LATENCY, Limit.UNKNOWN):
        return ()
    found = [
        "Only samples that lie to nine tenths inside these kernels count; what runs at the same"
        " time on other streams is in them too."
    ]
    if row["bound_ns"] is not None and row["verdict"] in (Limit.DRAM, Limit.NEAR_DRAM):
        found.append(
            "The bound takes 0.94 of peak bandwidth as reachable, measured on one H200, unless"
            " hardware.achievable_gbps is set."
        )
    return tuple(found)


def missing(classes: pl.DataFrame, gpu: dict[str, Any]) -> tuple[Missing, ...]:
    """Return what would show the limit of the classes without a verdict."""
    if not gpu["sampled"]:
        what = "sampled DRAM and tensor activity of the GPU"
        return (Missing(what, ("gpu_metrics", "metric_names")),)
    unknown = classes.filter(pl.col("verdict") == Limit.UNKNOWN.value)
    if unknown.is_empty():
        return ()
    return (Missing("kernels counted one at a time by Nsight Compute", (), NCU_COMMAND),)
