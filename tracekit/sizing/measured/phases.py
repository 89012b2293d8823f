"""Bytes, bandwidth and time of the steps that a trace recorded."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.sizing.unknown import Missing
from tracekit.trace import Trace
from tracekit.views.counters import metrics
from tracekit.views.counters.levels import means_over
from tracekit.views.device.activity import activity
from tracekit.views.device.hardware import peak_bytes_per_s
from tracekit.views.launches.attribution import attribution, steps

__all__ = ["MeasuredPhase", "phases"]

_PHASES = {
    "prefill": re.compile(r"(?i)prefill|prompt"),
    "decode": re.compile(r"(?i)decode|generat"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPhase:
    """Steps of one group on one GPU.

    Attributes:
        group: Text of the steps, numbers as N.
        phase: ``prefill`` or ``decode`` as the text says; None if it does not.
        gpu: Index of the GPU.
        device: Its name.
        n_steps: Steps with work on it.
        time_s: Median time from first to last work of a step.
        p99_s: 99th percentile of it.
        dram_frac: Mean DRAM activity over the steps, 0..1; None if it was not sampled.
        tensor_frac: Mean activity of the tensor cores; None if it was not sampled.
        coverage_frac: Sampled share of the steps, 0..1.
        dram_bytes: DRAM traffic of a step on average; None if unknown.
        dram_bytes_per_s: Over the time of the steps; None if unknown.
        peak_bytes_per_s: Peak memory bandwidth that shares were taken of; None if unknown.
        missing: What is not known, and what it would take.
    """

    group: str
    phase: str | None
    gpu: int
    device: str
    n_steps: int
    time_s: float
    p99_s: float
    dram_frac: float | None
    tensor_frac: float | None
    coverage_frac: float
    dram_bytes: float | None
    dram_bytes_per_s: float | None
    peak_bytes_per_s: float | None
    missing: tuple[Missing, ...]


def phases(trace: Trace) -> tuple[MeasuredPhase, ...]:
    """Return what the steps of each group did on each GPU; empty without steps.

    The time of a step is that of the device: host time before and after its work does not count.
    """
    spans = _spans(trace)
    found = []
    for (group, gpu), rows in spans.group_by("group", "gpu", maintain_order=True):
        found.append(_phase(trace, str(group), int(str(gpu)), rows))
    return tuple(found)


def _spans(trace: Trace) -> pl.DataFrame:
    """First start and last end of each step on each GPU."""
    work = activity(trace).select("gpu", "start_ns", "end_ns", attribution(trace)["step"])
    spans = work.drop_nulls(["step", "gpu"]).group_by("step", "gpu")
    found = spans.agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    named = steps(trace).select("step", "group")
    return found.join(named, on="step").sort("group", "gpu", "start_ns")


def _phase(trace: Trace, group: str, gpu: int, rows: pl.DataFrame) -> MeasuredPhase:
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    length = (ends - starts) / 1e9
    about = trace.gpus[gpu]
    dram, coverage = _mean(metrics.dram(trace, gpu), starts, ends)
    tensor, _ = _mean(metrics.total(trace, gpu, (metrics.TENSOR,)), starts, ends)
    peak = peak_bytes_per_s(trace, about)
    rate = None if dram is None or peak is None else dram * peak
    missing = []
    if dram is None:
        needs = "DRAM counters were not sampled over the steps: record with --gpu-metrics-devices"
        missing.append(Missing("DRAM traffic", needs))
    elif peak is None:
        missing.append(Missing("DRAM traffic in bytes", "the GPU's peak bandwidth is not known"))
    return MeasuredPhase(
        group=group,
        phase=next((name for name, text in _PHASES.items() if text.search(group)), None),
        gpu=gpu,
        device=about.name,
        n_steps=rows.height,
        time_s=float(np.median(length)),
        p99_s=float(np.percentile(length, 99)),
        dram_frac=dram,
        tensor_frac=tensor,
        coverage_frac=coverage,
        dram_bytes=None if rate is None else rate * float(length.mean()),
        dram_bytes_per_s=rate,
        peak_bytes_per_s=peak,
        missing=tuple(missing),
    )


def _mean(
    counters: tuple[metrics.Counter, ...], starts: metrics.Int64, ends: metrics.Int64
) -> tuple[float | None, float]:
    """Mean over all windows weighted by time, and the covered share."""
    if not counters:
        return None, 0.0
    mean, coverage = means_over(counters, starts, ends)
    length = (ends - starts).astype(np.float64)
    covered = float((coverage * length).sum() / length.sum())
    known = np.isfinite(mean)
    if covered < 0.5 or not known.any():
        return None, covered
    weights = (coverage * length)[known]
    return float(np.average(mean[known], weights=weights)), covered
