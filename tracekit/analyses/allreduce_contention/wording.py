"""Numbers and words that all findings on contention share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from tracekit.analyses._collectives.wording import denominator, limits, partner_name, source_note
from tracekit.model.finding import Confidence, Evidence, Metric
from tracekit.model.kernels import classify
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import ratio, size, span

__all__ = [
    "NAME",
    "blocking_loss",
    "confidence",
    "groups_evidence",
    "groups_of",
    "lost_of",
    "metrics",
    "partner_words",
    "slowdown_range",
]

NAME = "allreduce_contention"
OBSERVATIONS_FOR_SURE = 20
SHARED_GPU_COVERAGE = 0.5
UNSIZED = "unknown size"
UNCERTAIN_RATIO = 2.0
"""A slowdown whose interval spans this factor is uncertain."""
Row = Mapping[str, Any]
_GROUP_COLUMNS = {
    "bytes": "bytes",
    "partner": "overlapping work",
    "n_alone": "n alone",
    "n_overlapped": "n overlap",
    "alone_ns": "alone",
    "overlapped_ns": "overlap",
    "slowdown_ratio": "slowdown",
    "slowdown_lo_ratio": "",
    "slowdown_hi_ratio": "",
    "lost_ns": "lost",
    "dram_overlapped_frac": "DRAM, overlap",
    "busbw_overlapped_gbps": "bus, overlap",
}


def groups_evidence(where: Mapping[str, Any]) -> Evidence:
    """Return the table of median transfers by message size."""
    words = {name: heading for name, heading in _GROUP_COLUMNS.items() if heading}
    title = "Median transfer alone and overlapped by other work, by message size"
    return Evidence("groups", where, tuple(_GROUP_COLUMNS), title, words)


def partner_words(row: Row) -> str:
    """Return which kinds of work overlapped the collectives, in words."""
    names = [partner_name(p) for p in str(row["partners"]).split(", ")]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def lost_of(row: Row) -> str:
    """Return what the lost share is of, in words."""
    return denominator(row["lost_group"], row["lost_of_ns"])


def groups_of(frames: Frames, row: Row) -> pl.DataFrame:
    """Return the judged groups of one mechanism."""
    op = pl.col("op").eq_missing(pl.lit(row["op"], pl.String))
    same = (pl.col("comm") == row["comm"]) & op & (pl.col("mechanism") == row["mechanism"])
    return frames["groups"].filter(same & pl.col("known") & (pl.col("n_overlapped") > 0))


def blocking_loss(frames: Frames, row: Row) -> int:
    """Return how much of the lost time of one mechanism something waited for, in ns."""
    same = (pl.col(c).eq_missing(pl.lit(row[c], pl.String)) for c in ("comm", "op", "mechanism"))
    return int(frames["blocking_loss"].filter(*same)["blocking_ns"].sum())


def slowdown_range(frames: Frames, row: Row) -> tuple[str, str]:
    """Return the slowdown over sizes, and which sizes are too uncertain to be in that range."""
    rows = groups_of(frames, row)
    unsure = pl.col("slowdown_hi_ratio") >= UNCERTAIN_RATIO * pl.col("slowdown_lo_ratio")
    sure = sorted(rows.filter(~unsure)["slowdown_ratio"].to_list())
    if not sure:
        return ratio(row["slowdown_ratio"]), f" (uncertain: {_interval(row)})"
    doubts = [
        f"{size(r['bytes'], UNSIZED)} uncertain, {_interval(r)} from n={r['n_overlapped']}"
        for r in rows.filter(unsure).iter_rows(named=True)
    ]
    doubt = f" ({'; '.join(doubts[:2])})" if doubts else ""
    return span(sure[0], sure[-1], "x"), doubt


def _interval(row: Row) -> str:
    return span(row["slowdown_lo_ratio"], row["slowdown_hi_ratio"], "x")


def metrics(frames: Frames, row: Row, params: Any) -> tuple[Metric, ...]:
    """Return the numbers of one mechanism, most important first."""
    groups = groups_of(frames, row)
    sizes = groups["bytes"].n_unique()
    over = f"{sizes} sizes pooled" if sizes > 1 else size(row["heaviest_bytes"], UNSIZED)
    each = n_of_sizes(groups) if sizes > 1 else ""
    return (
        Metric(
            "slowdown_ratio",
            row["slowdown_ratio"],
            "x",
            row["slowdown_lo_ratio"],
            row["slowdown_hi_ratio"],
            row["n_overlapped"],
            f"slowdown: transfer overlapped over alone, {over}{each}; level needs its lower end: "
            + limits(params.slower_ratio, params.critical_ratio, ratio=True),
        ),
        Metric(
            "lost_ns",
            row["lost_ns"],
            "ns",
            n=row["n_overlapped"],
            doc="lost: transfer above the median alone, summed",
        ),
        Metric("lost_frac", row["lost_frac"], "1", doc=f"lost, of {lost_of(row)}"),
        *_decisive(row, params),
        Metric(
            "lost_blocking_ns",
            blocking_loss(frames, row),
            "ns",
            doc="lost blocking: part of lost that was seen to delay other work or the host",
        ),
        *_sampled(row, size(row["heaviest_bytes"], UNSIZED)),
        *_suffixes(frames, row),
    )


def _decisive(row: Row, params: Any) -> tuple[Metric, ...]:
    """The share that decides the level; there is none where nothing is slowed."""
    if row["comm_lost_frac"] is None:
        return ()
    gates = limits(params.warn_frac, params.critical_frac)
    doc = f"lost to all kinds of overlapping work; level needs this too: {gates}"
    return (Metric("lost_to_all_frac", row["comm_lost_frac"], "1", doc=doc),)


def n_of_sizes(groups: pl.DataFrame) -> str:
    """Return how many collectives each size has, where that is one number."""
    counts = set(groups["n_overlapped"].to_list())
    return f", {counts.pop()} each" if len(counts) == 1 else ""


def _sampled(row: Row, of_size: str) -> tuple[Metric, ...]:
    """The numbers of the message size that lost most."""
    rate = row["busbw_overlapped_gbps"]
    traffic = None if rate is None else span(2 * rate, 3 * rate, "GB/s")
    own = f"memory traffic of the collective itself, {of_size}: 2 to 3 x bus bandwidth overlapped"
    numbers = (
        ("dram_overlapped_frac", row["dram_overlapped_frac"], "1", "DRAM overlapped, read + write"),
        ("dram_alone_frac", row["dram_alone_frac"], "1", "DRAM alone, read + write"),
        ("link_overlapped_frac", row["link_overlapped_frac"], "1", "link overlapped (NVLink)"),
        ("sms_overlapped_frac", row["sms_overlapped_frac"], "1", "SMs overlapped, in use"),
        ("sms_alone_frac", row["sms_alone_frac"], "1", "SMs alone, in use"),
        ("bus_bandwidth_alone_gbps", row["busbw_alone_gbps"], "GB/s", "bus bandwidth alone"),
        ("bus_bandwidth_overlapped_gbps", rate, "GB/s", "bus bandwidth overlapped"),
    )
    found = [
        Metric(name, value, unit, doc=f"{doc}, {of_size}") for name, value, unit, doc in numbers
    ]
    return (*found, Metric("memory_traffic", traffic, doc=own))


def _suffixes(frames: Frames, row: Row) -> tuple[Metric, ...]:
    """The suffixes of kernel names that people take for a protocol."""
    names = groups_of(frames, row)["name"].unique()
    notes = {str(note) for n in names if (note := classify(n or "").algorithm_note)}
    suffixes = [note.removeprefix("name suffix ").partition(" (")[0] for note in sorted(notes)]
    doc = "kernel name ends in (says nothing on the protocol, not used)"
    return (Metric("kernel_name", ", ".join(suffixes), doc=doc),) if suffixes else ()


def confidence(facts: Row, comm: Row, row: Row) -> Confidence:
    """Return how sure a slowdown is: share matched, observations, sources, clocks."""
    whole = comm["n_kernels"] / max(comm["n_ranks"], 1)
    matched = min(1.0, comm["n_matched"] / max(whole, 1))
    shared = facts["n_shared_gpus"] > 0
    why = [source_note(facts)] if row["provenance"] < 1 else []
    why += ["clocks of several reports aligned on collectives"] if comm["clock"] < 1 else []
    why += ["processes take turns on one GPU"] if shared else []
    why += ["few observations"] if row["n_overlapped"] < OBSERVATIONS_FOR_SURE else []
    return Confidence(
        coverage=min(matched, SHARED_GPU_COVERAGE) if shared else matched,
        n=row["n_overlapped"],
        n_hi=OBSERVATIONS_FOR_SURE,
        provenance=row["provenance"],
        clock=comm["clock"],
        why="; ".join(why),
    )
