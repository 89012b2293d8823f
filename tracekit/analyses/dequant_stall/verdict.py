"""What the frames of `dequant_stall` say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from tracekit.analyses.dequant_stall.kernels import traffic_amplification, weight_bits
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.model.ncu import CACHE_CAVEAT
from tracekit.numerics.samples.starvation import COARSEST_PERIOD_NS
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import duration, ratio, share, threshold

__all__ = ["bounds", "caveats", "evidence", "idle", "kernel_columns", "verdict"]

OBSERVATIONS_FOR_SURE = 50
NAMES_ONLY, NO_STEP_MARKS = 0.6, 0.6
UNCLASSIFIED_LIMIT = 0.10
AMPLIFIED, AMPLIFIED_SHARE = 3.0, 0.01
_SUMMED = ("all steps", "whole capture")


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `dequant_stall`."""
    summary = frames["summary"].row(0, named=True)
    if summary["n_dequant"] == 0:
        return (_none(frames, summary),)
    return (_exposed(frames, summary, params), *_fused(frames, summary))


def _none(frames: Frames, summary: dict[str, Any]) -> Finding:
    hidden = summary["opaque_ns"] > 0
    unclassified = summary["unclassified_frac"] or 0.0
    if hidden or unclassified >= UNCLASSIFIED_LIMIT:
        why = (
            "part of the work is hidden in CUDA graphs"
            if hidden
            else (f"{share(unclassified)} of kernel time has names that no rule classifies")
        )
        return Finding(
            id="dequant_stall/hidden",
            level=Level.UNKNOWN,
            title=f"no dequantisation kernel seen, but {why}",
            missing=(Missing("kernels inside CUDA graphs", ("kernels",)),) if hidden else (),
        )
    if summary["n_fused"]:
        return _fused(frames, summary)[0]
    return Finding(
        id="dequant_stall/none",
        level=Level.OK,
        title="no dequantisation kernels",
        metrics=(Metric("n_dequant_kernels", 0), Metric("n_fused_kernels", 0)),
        confidence=Confidence(provenance=NAMES_ONLY, why="kernels are recognised by name"),
    )


def _fused(frames: Frames, summary: dict[str, Any]) -> tuple[Finding, ...]:
    n = summary["n_fused"]
    if not n:
        return ()
    return (
        Finding(
            id="dequant_stall/fused",
            level=Level.OK,
            title=f"{n} matrix products dequantise inside the kernel: no separate kernel to remove",
            metrics=(
                Metric("n_fused_kernels", n, doc="fused-dequant gemm kernels"),
                Metric("n_dequant_kernels", summary["n_dequant"], doc="standalone"),
                *(idle(frames, summary) if summary["n_dequant"] == 0 else ()),
                *bounds(frames, "gemm_quant"),
            ),
            confidence=Confidence(provenance=NAMES_ONLY, why="kernels are recognised by name"),
            caveats=tuple(caveats(frames, summary, "gemm_quant")),
            evidence=tuple(evidence(frames, "gemm_quant")),
        ),
    )


def _exposed(frames: Frames, summary: dict[str, Any], params: Any) -> Finding:
    groups, kernels = frames["groups"], frames["kernels"].filter(pl.col("kind") == "dequant")
    total = groups.filter(pl.col("group").is_in(_SUMMED)).row(0, named=True)
    per = groups.filter(~pl.col("group").is_in(_SUMMED) & (pl.col("n_periods") > 0))
    worst = per.row(0, named=True) if per.height else total
    exposed, overall = worst["share_frac"] or 0.0, total["share_frac"] or 0.0
    amplification = _amplification(kernels["name"].to_list())
    level = _level(exposed, params, amplification)
    where = (
        f"of GPU time in steps '{worst['group']}' ({share(overall)} over all steps)"
        if per.height > 0 and summary["has_steps"]
        else "of the capture's span (no step markers)"
    )
    hidden = total["dequant_ns"] - total["exposed_ns"]
    title = f"separate dequantisation kernels take {share(exposed)} {where}"
    title += "; none of it overlaps other work" if hidden == 0 else f", {duration(hidden)} hidden"
    names = ", ".join(kernels["name"].head(2).to_list())
    return Finding(
        id="dequant_stall/exposed",
        level=level,
        title=title if total["n_periods"] else _unconsumed_title(summary),
        metrics=_metrics(frames, worst, total, kernels, amplification),
        at_stake_ns=total["exposed_ns"],
        at_stake_frac=overall,
        at_stake_of="GPU step time" if summary["has_steps"] else "capture span",
        confidence=Confidence(
            n=total["n_periods"],
            n_hi=OBSERVATIONS_FOR_SURE,
            provenance=NAMES_ONLY if summary["has_steps"] else min(NAMES_ONLY, NO_STEP_MARKS),
            why="kernels are recognised by name; every interval is measured exactly",
        ),
        advice=(
            f"Use a kernel that dequantises inside the matrix product (Marlin, Machete, fpA_intB)"
            f" instead of {names} followed by a GEMM, or keep the weights in 16 bits where memory"
            " allows. Removing it entirely bounds the gain at"
            f" {ratio(1 / (1 - min(exposed, 0.99)))} for these steps."
        )
        if level is not Level.OK
        else "",
        caveats=tuple(caveats(frames, summary, "dequant")),
        scope=(("step group", worst["group"]),),
        thresholds={"share_frac": (params.warn_frac, params.critical_frac)},
        evidence=(
            Evidence("groups", title="Share by step group"),
            Evidence("kernels", {}, kernel_columns(frames), "Dequantisation kernels"),
            Evidence(
                "periods",
                columns=("step", "layer", "dequant_ns", "exposed_ns", "gap_ns", "consumer"),
                title="Periods",
            ),
            *evidence(frames, "dequant"),
        ),
    )


def _unconsumed_title(summary: dict[str, Any]) -> str:
    n = summary["n_dequant"]
    return f"{n} dequantisation kernels, none directly before a consumer inside a step"


def _level(exposed: float, params: Any, amplification: float | None) -> Level:
    if exposed >= params.critical_frac:
        return Level.CRITICAL
    amplified = amplification is not None and amplification >= AMPLIFIED
    if exposed >= params.warn_frac or (amplified and exposed >= AMPLIFIED_SHARE):
        return Level.WARN
    return Level.OK


def _amplification(names: Sequence[str]) -> float | None:
    """Traffic amplification guessed from the widths in the kernel names; None without a width."""
    bits = weight_bits(names)
    return None if bits is None else traffic_amplification(bits / 8, 2.0)


def _metrics(
    frames: Frames,
    worst: dict[str, Any],
    total: dict[str, Any],
    kernels: pl.DataFrame,
    amplification: float | None,
) -> tuple[Metric, ...]:
    periods = frames["periods"]
    n = total["n_periods"]
    gap = periods["gap_ns"].median() if periods.height else None
    first = kernels.row(0, named=True)
    return (
        Metric("share_frac", worst["share_frac"], "1", n=worst["n_periods"], doc=worst["group"]),
        Metric("share_all_frac", total["share_frac"], "1", n=n, doc=total["group"]),
        Metric("dequant_ns", total["dequant_ns"], "ns", n=n, doc="in all periods"),
        Metric("exposed_ns", total["exposed_ns"], "ns", n=n, doc="not covered by other streams"),
        Metric("kernel_p50_ns", first["p50_ns"], "ns", n=first["n"], doc=first["name"]),
        Metric("gap_p50_ns", _float(gap), "ns", n=n, doc="from the last one to the consumer"),
        Metric("n_dequant_kernels", int(kernels["n"].sum())),
        Metric(
            "traffic_amplification",
            amplification,
            "x",
            doc="DRAM bytes against a fused kernel; width guessed from the name",
        ),
        *bounds(frames, "dequant"),
        *idle(frames, frames["summary"].row(0, named=True)),
    )


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


FINER = "--gpu-metrics-frequency=100000"
_STALLS = (
    *("name", "n", "issue_active_frac", "reason", "stall_frac", "flagged", "reading"),
    "occupancy_gap_pp",
)
_DOCS = {
    "starvation": "DRAM reads high, tensor cores idle, dequantising work to blame",
    "valley": "DRAM reads and tensor cores both idle while dequantising work or products run",
}


def idle(frames: Frames, summary: dict[str, Any]) -> tuple[Metric, ...]:
    """Return how long tensor cores idled; nothing where sampling is too coarse."""
    if not summary["starvation_known"]:
        return ()
    rows = frames["starvation"]
    found = []
    for what, doc in _DOCS.items():
        own = rows.filter(pl.col("what") == what)
        length = int((own["end_ns"] - own["start_ns"]).sum())
        found.append(Metric(f"{what}_ns", length, "ns", n=own.height, doc=doc))
    return tuple(found)


def bounds(frames: Frames, kind: str) -> tuple[Metric, ...]:
    """Return the bound of the longest kernel of a kind; nothing where its bytes are not known."""
    rows = frames["kernels"].filter(pl.col("kind") == kind).drop_nulls("t_min_ns")
    if rows.is_empty():
        return ()
    first = rows.row(0, named=True)
    doc = f"bytes over DRAM bandwidth, scales left out: {first['name']}"
    return (
        Metric("t_min_ns", first["t_min_ns"], "ns", n=first["n"], doc=doc),
        Metric("efficiency_frac", first["efficiency_frac"], "1", doc="t_min over the median"),
    )


def caveats(frames: Frames, summary: dict[str, Any], kind: str) -> Iterator[str]:
    """Return how a finding about one kind of kernel can be wrong."""
    stalls = frames["stalls"].filter(pl.col("kind") == kind)
    if kind == "dequant":
        yield (
            "The share is an upper bound of the gain: a fused kernel also spends time on"
            " dequantising."
        )
        yield "A dequantisation kernel under a name that the classifier does not know is missed."
        if summary["n_unconsumed"]:
            yield _unconsumed(summary)
    elif stalls.is_empty():
        yield "How well the fused kernel runs is a question for Nsight Compute."
    if not summary["starvation_known"]:
        yield _unsampled(summary["sample_period_ns"])
    if frames["kernels"].filter((pl.col("kind") == kind) & (pl.col("efficiency_frac") > 1)).height:
        yield "A kernel cannot beat its bound: weight_elements is not what one execution handles."
    if stalls.height:
        yield CACHE_CAVEAT


def _unconsumed(summary: dict[str, Any]) -> str:
    text = (
        f"{summary['n_unconsumed']} dequantisation kernels are not counted: neither stream order"
        " nor event waits show what consumes them"
    )
    if summary["n_waits_unresolved"]:
        text += (
            f" ({summary['n_waits_unresolved']} of {summary['n_waits']} waits name no recorded"
            " event)"
        )
    return f"{text}."


def _unsampled(period_ns: int | None) -> str:
    how = "were not sampled"
    if period_ns is not None:
        how = f"were sampled every {duration(period_ns)}"
    return (
        f"Whether tensor cores starved is unknown: DRAM reads and tensor activity {how};"
        f" {threshold(COARSEST_PERIOD_NS / 1000, ' us')} or finer shows it ({FINER})."
    )


def kernel_columns(frames: Frames) -> tuple[str, ...]:
    """Return the columns of the kernels' table worth showing: bounds only where there are any."""
    kernels = frames["kernels"]
    absent = {"t_min_ns", "efficiency_frac"} if kernels["t_min_ns"].is_null().all() else set()
    return tuple(c for c in kernels.columns if c not in absent)


def evidence(frames: Frames, kind: str) -> Iterator[Evidence]:
    """Return the tables that only some recordings fill."""
    if frames["starvation"].height:
        yield Evidence("starvation", title="Sampled stretches of idle tensor cores")
    if frames["stalls"].filter(pl.col("kind") == kind).height:
        yield Evidence("stalls", {"kind": kind}, _STALLS, "Stall reasons (Nsight Compute)")
