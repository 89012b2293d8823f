"""Hand-made diagnoses for tests of reports: every field that a format may meet, no trace needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from tracekit import analyses
from tracekit.model.diagnosis import ClassShare, Diagnosis, GpuTime, Overview, Quality
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.model.inputs import Alignment, Gpu, Report

COMMAND = (
    "nsys profile -t cuda,nvtx --gpu-metrics-devices=all --gpu-metrics-set=gh100-ct "
    "--gpu-metrics-frequency=100000 -o report YOUR_COMMAND"
)

STEPS = pl.DataFrame(
    {
        "step": pl.Series(range(7), dtype=pl.UInt32),
        "kernel": ["void dequantize_int4_kernel<(int)128>(int*)"] * 7,
        "start_ns": [1_000_000_000 + i * 600_000 for i in range(7)],
        "dequant_ns": [255_600, 250_000, 261_000, 255_000, 255_100, 253_900, None],
        "dequant_frac": [0.481, 0.476, 0.47, 0.479, 0.475, 0.477, None],
        "overlapped": [False] * 7,
    }
)

CRITICAL = Finding(
    id="dequant_stall/steps",
    level=Level.CRITICAL,
    title="Dequantisation fills 47.6% of the GPU span of dequant_then_gemm steps",
    metrics=(
        Metric("dequant_frac", 0.476, "1", 0.469, 0.483, 10, "share of the group's GPU span"),
        Metric("exposed_ns", 2_557_100, "ns", n=80, doc="exposed dequantisation time"),
        Metric("tensor_active_frac", None, "1", doc="tensor pipe active"),
    ),
    at_stake_ns=2_557_100,
    at_stake_frac=0.344,
    at_stake_of="all steps' GPU span",
    confidence=Confidence(n=80, n_hi=30, provenance=0.6, why="kernels are recognised by name"),
    advice="Use a fused W4A16 GEMM (Marlin, Machete).",
    caveats=("A kernel named like a dequantiser may do other work too.",),
    scope=(("gpu", "0"), ("step group", "dequant_then_gemm")),
    t_range_ns=(1_000_000_000, 1_000_524_000),
    thresholds={"dequant_frac": (0.05, 0.2), "exposed_ns": (None, None)},
    evidence=(Evidence("steps", title="Dequantisation by step"),),
)
FINE = Finding(
    id="kv_fragmentation/copies",
    level=Level.OK,
    title="KV relocation copies 1.07 MB, 0.0029% of step time",
    confidence=Confidence(),
)
UNKNOWN = Finding(
    id="l2_miss/unsampled",
    level=Level.UNKNOWN,
    title="L2 hit rate was not sampled",
    missing=(Missing("the compute-triage counters", ("gpu_metrics",), COMMAND),),
)

OVERVIEW = Overview(
    has_device_activity=True,
    span_ns=7_420_000,
    gpus=(GpuTime(0, 7_420_000, 6_767_000, 0, 653_000, 0, 0, 500, 0),),
    classes=(
        ClassShare("gemm", 100, 3_700_000, 0.55),
        ClassShare("dequant", 80, 2_557_100, 0.38),
        ClassShare("elementwise", 300, 437_000, 0.065),
        ClassShare("unclassified", 3, 33_000, 0.005),
    ),
    unclassified_frac=0.005,
    n_kernels=483,
    n_launches=483,
    n_graph_launches=0,
    n_with_launch=483,
    n_steps=20,
    step_groups={"dequant_then_gemm": (10, 524_000.0), "bf16": (10, 206_000.0)},
)
REPORT = Report(
    0,
    "int4_dequant.sqlite",
    "sha256:" + "ab" * 32,
    product="NVIDIA Nsight Systems 2025.3.2.474",
    schema_version="3.20.3",
    nsys_version=(2025, 3, 2),
    duration_ns=1_230_000_000,
    tables={"kernels": 483},
    present=("kernels",),
)
DEQUANT = Diagnosis(
    reports=(REPORT,),
    gpus=(Gpu(0, "NVIDIA H200", "GH100", 62_914_560, 150_000_000_000, used=True),),
    alignment=(Alignment(0, 0, None, 0, "one session"),),
    overview=OVERVIEW,
    quality=(Quality(Level.OK, "2 zero-length ranges dropped", 2),),
    findings=(CRITICAL, FINE, UNKNOWN),
    frames={"dequant_stall": {"steps": STEPS}},
    params={"dequant_stall": {"warn_frac": 0.05}},
    provenance={"tracekit": "0.1.0"},
)
"""One critical, one fine and one unknown finding."""

NO_GPU = replace(
    DEQUANT,
    gpus=(),
    overview=Overview(False, None, (), (), None, 0, None, 0, 0, 0),
    quality=(),
    findings=(UNKNOWN,),
    frames={},
)
"""A CPU-only recording."""

OPAQUE = replace(
    DEQUANT,
    overview=replace(
        OVERVIEW,
        span_ns=210_000_000,
        gpus=(GpuTime(0, 210_000_000, 210_000_000, 200_000_000, 0, 0, 1_000_000, 10, 10),),
    ),
)
"""Ten kernels of 1 ms, one of them NCCL, beside ten opaque graph launches of 20 ms."""


def frames_of(analysis: str, **rows: Sequence[Mapping[str, Any]]) -> dict[str, pl.DataFrame]:
    """Return the result frames of an analysis: empty but for the given rows, other columns null."""
    found = {table.name: table for table in analyses.load(analysis).results}
    return {
        name: table.conform(pl.DataFrame(rows[name])) if name in rows else table.empty()
        for name, table in found.items()
    }
