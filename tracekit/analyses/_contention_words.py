"""Numbers and words that all findings on contention share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.analyses._comm_words import denominator, partner_name, source_note
from tracekit.model.analysis import Confidence, Metric

__all__ = ["GROUP_COLUMNS", "NAME", "confidence", "lost_of", "metrics", "partner_words"]

NAME = "allreduce_contention"
OBSERVATIONS_FOR_SURE = 20
SHARED_GPU_COV = 0.5
Row = Mapping[str, Any]
GROUP_COLUMNS = (
    "bytes",
    "partner",
    "n_cont",
    "base_ns",
    "cont_ns",
    "slowdown_ratio",
    "slowdown_lo_ratio",
    "slowdown_hi_ratio",
    "lost_ns",
    "dram_cont_frac",
    "busbw_cont_gbps",
)


def partner_words(row: Row) -> str:
    """Return what ran beside the collectives, in words."""
    names = [partner_name(p) for p in str(row["partners"]).split(", ")]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def lost_of(row: Row) -> str:
    """Return what the lost share is of, in words."""
    return denominator(row["lost_group"])


def metrics(row: Row) -> tuple[Metric, ...]:
    """Return the numbers of one mechanism, most important first."""
    beside = row["busbw_cont_gbps"]
    traffic = None if beside is None else f"{2 * beside:.0f} to {3 * beside:.0f} GB/s"
    return (
        Metric(
            "slowdown_ratio",
            row["slowdown_ratio"],
            "x",
            row["slowdown_lo_ratio"],
            row["slowdown_hi_ratio"],
            row["n_cont"],
            "slowdown: transfer beside over alone, all sizes",
        ),
        Metric(
            "lost_ns",
            row["lost_ns"],
            "ns",
            n=row["n_cont"],
            doc="lost: transfer above the median alone",
        ),
        Metric("lost_frac", row["lost_frac"], "1", doc=f"lost, of {lost_of(row)}"),
        Metric(
            "lost_to_all_frac",
            row["comm_lost_frac"],
            "1",
            doc="lost to all kinds of work (decides the level)",
        ),
        Metric("dram_beside_frac", row["dram_cont_frac"], "1", doc="DRAM beside, read + write"),
        Metric("dram_alone_frac", row["dram_base_frac"], "1", doc="DRAM alone, read + write"),
        Metric("link_beside_frac", row["link_cont_frac"], "1", doc="link beside (NVLink)"),
        Metric("bus_bandwidth_alone_gbps", row["busbw_base_gbps"], "GB/s"),
        Metric("bus_bandwidth_beside_gbps", beside, "GB/s"),
        Metric("memory_traffic", traffic, doc="memory traffic of its own, 2 to 3x that"),
    )


def confidence(facts: Row, comm: Row, row: Row) -> Confidence:
    """Return how sure a slowdown is: share matched, observations, sources, clocks."""
    whole = comm["n_kernels"] / max(comm["n_ranks"], 1)
    matched = min(1.0, comm["n_matched"] / max(whole, 1))
    shared = facts["n_shared_gpus"] > 0
    why = [source_note(facts)] if row["prov"] < 1 else []
    why += ["clocks of several reports aligned on collectives"] if comm["clk"] < 1 else []
    why += ["processes take turns on one GPU"] if shared else []
    why += ["few observations"] if row["n_cont"] < OBSERVATIONS_FOR_SURE else []
    return Confidence(
        cov=min(matched, SHARED_GPU_COV) if shared else matched,
        n=row["n_cont"],
        n_hi=OBSERVATIONS_FOR_SURE,
        prov=row["prov"],
        clk=comm["clk"],
        why="; ".join(why),
    )
