"""Numbers and sentences that the findings of `dequant_stall` share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from tracekit.model.finding import Evidence, Metric
from tracekit.model.ncu import CACHE_CAVEAT
from tracekit.numerics.samples.starvation import COARSEST_PERIOD_NS
from tracekit.trace.analysis import Frames

__all__ = ["bounds", "caveats", "evidence", "idle", "kernel_columns"]

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
    """Return how long tensor cores idled; nothing where sampling cannot tell."""
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
        " nor event waits tell what consumes them"
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
        how = f"were sampled every {period_ns / 1e3:.0f} us"
    return (
        f"Whether tensor cores starved is unknown: DRAM reads and tensor activity {how};"
        f" {COARSEST_PERIOD_NS // 1000} us or finer tells ({FINER})."
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
