"""What `l2_miss` could not measure, why, and what would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from tracekit.model.finding import Evidence, Finding, Level, Missing
from tracekit.model.ncu import PROFILE
from tracekit.trace.analysis import Frames

__all__ = ["invalid", "not_sampled"]


def not_sampled(summary: dict[str, Any]) -> Finding:
    """Return the finding for a trace without a sampled L2 hit rate."""
    title, advice = _why_not_sampled(summary)
    what = "a sampled L2 hit rate; Nsight Compute counts misses per kernel instead"
    return Finding(
        id="l2_miss/not-sampled",
        level=Level.UNKNOWN,
        title=title,
        advice=advice,
        caveats=("DRAM reads are no stand-in: they also grow with what has to be read once.",)
        if summary["n_metrics"]
        else (),
        missing=(
            *((Missing(what, ("gpu_metrics",), summary["command"]),) if summary["command"] else ()),
            Missing("L2 sectors and misses of each kernel", (), PROFILE),
        ),
    )


def _why_not_sampled(summary: dict[str, Any]) -> tuple[str, str]:
    if summary["n_kernels"] == 0 and not summary["n_metrics"]:
        return "not judged: no kernels and no hardware counters were recorded", ""
    if summary["blocked"] == "permission":
        return (
            "L2 hit rate not collected: permission to read GPU counters was refused",
            "Run nsys as root or with CAP_SYS_ADMIN, or load the driver with"
            " NVreg_RestrictProfilingToAdminUsers=0 (NVIDIA's page on ERR_NVGPUCTRPERM).",
        )
    if summary["blocked"] == "in use":
        return (
            "L2 hit rate not collected: another tool holds the GPU counters",
            "Pause it while recording (for DCGM: dcgmi profile --pause, then --resume).",
        )
    if summary["n_metrics"] == 0:
        return "L2 hit rate not available: no hardware counters were sampled", ""
    n = summary["n_metrics"]
    advice = (
        ""
        if summary["command"]
        else (
            f"For chip {summary['chip']} look for a set with an L2 hit rate in"
            " `nsys profile --gpu-metrics-set=help`."
        )
    )
    return (
        f"L2 miss not available from this capture: none of {n} counters is an L2 hit rate",
        advice,
    )


def invalid(frames: Frames, counter: dict[str, Any]) -> Iterator[Finding]:
    """Say which layers (or kernels) have samples, but too few valid ones."""
    table, name = ("layers", "layer") if counter["n_layers"] else ("kernels", "name")
    rows = frames[table].filter(
        (pl.col("gpu") == counter["gpu"]) & pl.col("hit_frac").is_null() & (pl.col("cells") > 0)
    )
    if rows.is_empty():
        return
    first = rows.row(0, named=True)
    label = f"layer {first['layer']} ({first['label']})" if table == "layers" else first["name"]
    more = f" and {rows.height - 1} more" if rows.height > 1 else ""
    bad = first["cells"] - first["valid_cells"]
    counted = _counted(frames, counter["gpu"], first["layer"]) if table == "layers" else None
    told = "" if counted is None else f"; Nsight Compute counted {counted:.0%} misses"
    yield Finding(
        id=f"l2_miss/invalid-gpu{counter['gpu']}",
        level=Level.UNKNOWN,
        title=f"L2 hit rate of {label}{more} unknown: {bad} of {first['cells']} samples invalid"
        + told,
        caveats=(
            "The counter left its scale: misses counted more often than look-ups, as happens when"
            " lines are fetched in parts. Nsight Compute can tell.",
        ),
        scope=(("gpu", str(counter["gpu"])), ("counter", counter["name"])),
        evidence=(
            Evidence(
                table,
                {"gpu": counter["gpu"], "hit_frac": None},
                (name, "cells", "valid_cells"),
                "Without a valid hit rate",
            ),
        ),
        missing=(Missing("L2 sectors and misses of each kernel", (), PROFILE),)
        if counted is None
        else (),
    )


def _counted(frames: Frames, gpu: int, layer: int) -> float | None:
    """Miss share of a layer as Nsight Compute counted it; None when it did not."""
    rows = frames["ncu_layers"].filter(gpu=gpu, layer=layer).drop_nulls("miss_frac")
    return float(rows["miss_frac"][0]) if rows.height else None
