"""What the frames of `kernel_floor` say: one finding a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tracekit.analyses.kernel_floor.limits import MIN_PURE, Limit
from tracekit.analyses.kernel_floor.wording import (
    advice,
    caveats,
    class_words,
    missing,
    whole_words,
)
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import share

__all__ = ["verdict"]

CELLS_FOR_SURE = 20
_HALF = 0.5
_WORTH_SAYING = 0.1
"""Share of kernel time from which a further class is named in the title."""
_SHOWN = (
    *("kind", "n", "time_ns", "share_frac", "median_ns", "n_pure", "dram_frac", "tensor_frac"),
    *("sms_active_frac", "verdict", "why"),
)
_NAMED = ("name", *_SHOWN[:5], "dram_frac", "tensor_frac", "verdict")
_DOCS = {
    "dram_frac": "DRAM read and write, of peak",
    "dram_read_frac": "DRAM read, of peak",
    "dram_write_frac": "DRAM write, of peak",
    "tensor_frac": "tensor cores active",
    "sms_active_frac": "multiprocessors with work",
}


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `kernel_floor`."""
    if frames["gpus"].is_empty():
        title = "no limit judged: kernels do not say on which GPU they ran"
        return [Finding(id="kernel_floor/no-gpu", level=Level.UNKNOWN, title=title)]
    return [_of_gpu(frames, gpu, params) for gpu in frames["gpus"].iter_rows(named=True)]


def _of_gpu(frames: Frames, gpu: dict[str, Any], params: Any) -> Finding:
    own = frames["classes"].filter(pl.col("gpu") == gpu["gpu"])
    own = own.filter(pl.col("verdict") != Limit.COMMUNICATION.value)
    where = {"gpu": gpu["gpu"]}
    common: dict[str, Any] = {
        "id": f"kernel_floor/gpu{gpu['gpu']}",
        "scope": (("gpu", str(gpu["gpu"])),),
        "evidence": (
            Evidence("classes", where, _SHOWN, "Classes of kernels and their limits"),
            Evidence("top_kernels", where, _NAMED, "Kernels that take longest"),
        ),
    }
    if own.is_empty():
        title = f"GPU {gpu['gpu']} ran communication kernels only: no limit to judge"
        return Finding(level=Level.UNKNOWN, title=title, **common)
    known = own.filter(pl.col("verdict") != Limit.UNKNOWN.value)
    judged = gpu["judged_ns"] >= _HALF * gpu["kernel_ns"] and known.height > 0
    first = (known if judged else own).row(0, named=True)
    level = _level(known, gpu, params) if judged else Level.UNKNOWN
    return Finding(
        level=level,
        title=_title(first, own, gpu, judged=judged),
        metrics=_metrics(first, gpu),
        confidence=_confidence(first, gpu),
        advice=advice(first["verdict"]),
        caveats=caveats(first),
        missing=missing(own, gpu) if level is Level.UNKNOWN else (),
        **common,
    )


def _level(known: pl.DataFrame, gpu: dict[str, Any], params: Any) -> Level:
    """Being at a limit is fine; kernels that do not fill the GPU warn where they fill the span."""
    unfilled = pl.col("verdict").is_in([Limit.LOW_OCCUPANCY.value, Limit.LATENCY.value])
    lasting = known.filter(unfilled)["time_ns"].sum()
    return Level.WARN if lasting > params.warn_frac * gpu["span_ns"] > 0 else Level.OK


def _title(first: dict[str, Any], own: pl.DataFrame, gpu: dict[str, Any], *, judged: bool) -> str:
    part = first["time_ns"] / gpu["kernel_ns"] if gpu["kernel_ns"] else 0.0
    whose = f"{first['kind']} kernels, {share(part)} of GPU {gpu['gpu']}'s kernel time"
    if not judged:
        return f"the limit of {whose}, is not known: {first['why']}{whole_words(gpu)}"
    title = f"{class_words(first, gpu)} in {whose}{whole_words(gpu)}"
    others = [
        f"{row['kind']} {'not judged' if row['why'] else row['verdict']}"
        for row in own.iter_rows(named=True)
        if row["kind"] != first["kind"] and row["time_ns"] >= _WORTH_SAYING * gpu["kernel_ns"]
    ]
    return "; ".join([title, *others])


def _metrics(first: dict[str, Any], gpu: dict[str, Any]) -> tuple[Metric, ...]:
    n = first["n_pure"]
    shown = [
        Metric(name, first[name], "1", n=n, doc=f"{doc}, mean of samples inside the kernels")
        for name, doc in _DOCS.items()
        if first[name] is not None and n >= MIN_PURE
    ]
    if first["bound_ns"] is not None:
        doc = "most that reaching the limit could save"
        shown.append(Metric("bound_ns", first["bound_ns"], "ns", doc=doc))
    if first["speedup_most_frac"] is not None:
        doc = "most by which these kernels could be faster"
        shown.append(Metric("speedup_most_frac", first["speedup_most_frac"], "1", doc=doc))
    few = first["few_blocks_frac"]
    return (
        *shown,
        Metric("median_ns", first["median_ns"], "ns", n=first["n"], doc="median duration"),
        *(() if few is None else (Metric("few_blocks_frac", few, "1", doc=_few_doc(gpu)),)),
        Metric("kernel_ns", gpu["kernel_ns"], "ns", doc="kernel time, communication left out"),
        Metric("judged_ns", gpu["judged_ns"], "ns", doc="part of it with a verdict"),
    )


def _few_doc(gpu: dict[str, Any]) -> str:
    return f"launches with fewer blocks than the {gpu['sm_count']} multiprocessors"


def _confidence(first: dict[str, Any], gpu: dict[str, Any]) -> Confidence:
    coverage = gpu["judged_ns"] / gpu["kernel_ns"] if gpu["kernel_ns"] else 0.0
    if first["verdict"] == Limit.LATENCY.value:
        why = "durations and grids are exact; the share of kernel time with a verdict limits it"
        return Confidence(coverage=coverage, why=why)
    why = "samples inside the kernels, and the share of kernel time with a verdict"
    return Confidence(coverage=coverage, n=first["n_pure"], n_hi=CELLS_FOR_SURE, why=why)
