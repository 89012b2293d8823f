"""What the frames of `allreduce_contention` say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tracekit.analyses._comm_words import (
    few_ok,
    missing_sizes,
    no_collectives,
    only_point_to_point,
    op_name,
    op_slug,
    opaque_caveat,
    pct,
    time,
    unmatched,
    whose,
)
from tracekit.analyses._contention_calm import nothing_to_compare, unharmed
from tracekit.analyses._contention_words import (
    GROUP_COLUMNS,
    NAME,
    confidence,
    lost_of,
    metrics,
    partner_words,
)
from tracekit.analyses._slowed_verdict import slowed
from tracekit.model.analysis import (
    Evidence,
    Finding,
    Frames,
    Level,
    Missing,
)
from tracekit.model.kernels import classify

__all__ = ["verdict"]

Row = Mapping[str, Any]
_SLUGS = {"SM/scheduling": "sm"}


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `allreduce_contention`."""
    facts = frames["facts"].row(0, named=True)
    if facts["n_comm_kernels"] == 0:
        return (no_collectives(NAME, facts),)
    if frames["communicators"].is_empty():
        return (only_point_to_point(NAME, facts),)
    found: list[Finding] = []
    matched = frames["communicators"].filter(pl.col("status") == "matched")
    for communicator in matched.sort("comm").iter_rows(named=True):
        found += _of_communicator(frames, facts, communicator, params)
    found = [*few_ok(found), *unmatched(frames, NAME, "contention is")]
    return (*found, *slowed(frames, facts, params))


def _of_communicator(frames: Frames, facts: Row, comm: Row, params: Any) -> list[Finding]:
    rows = frames["mechanisms"].filter(pl.col("comm") == comm["comm"])
    slow = pl.col("slowdown_lo_ratio") >= params.slower_ratio
    found = [
        _slower(frames, facts, comm, row, params) for row in rows.filter(slow).iter_rows(named=True)
    ]
    calm = rows.filter(~slow)
    if calm.height and not found:
        found.append(unharmed(frames, facts, comm, calm))
    if not rows.height:
        found.append(nothing_to_compare(frames, facts, comm))
    return found


def _level(row: Row, params: Any) -> Level:
    low, lost = row["slowdown_lo_ratio"], row["comm_lost_frac"] or 0.0
    if low >= params.critical_ratio and lost >= params.critical_frac:
        return Level.CRITICAL
    return Level.WARN if lost >= params.warn_frac else Level.OK


def _slower(frames: Frames, facts: Row, comm: Row, row: Row, params: Any) -> Finding:
    op, partners = op_name(row["op"]), partner_words(row)
    mechanism = row["mechanism"]
    lost = f"{time(row['lost_ns'])} lost, {pct(row['lost_frac'])} of {lost_of(row)}"
    title = f"{op}{whose(frames, comm['comm'])} is {_range(row)} slower while {partners} run"
    slug = _SLUGS.get(mechanism, mechanism)
    several = frames["communicators"].height > 1
    return Finding(
        id=f"{NAME}/{op_slug(row['op'])}-{slug}" + (f"-{comm['comm']}" if several else ""),
        level=_level(row, params),
        title=f"{title}: {_cause(row)}; {lost}",
        metrics=metrics(row),
        at_stake_ns=row["lost_ns"],
        at_stake_frac=row["lost_all_frac"],
        at_stake_of="all step time" if facts["has_steps"] else "capture",
        confidence=confidence(facts, comm, row),
        advice=_advice(row, op, partners),
        caveats=_caveats(frames, facts, row),
        scope=(("communicator", comm["comm"]), ("operation", op)),
        t_range_ns=(row["worst_start_ns"], row["worst_end_ns"]),
        thresholds={
            "slowdown_ratio": (params.slower_ratio, params.critical_ratio),
            "lost_to_all_frac": (params.warn_frac, params.critical_frac),
        },
        evidence=_evidence(comm, row),
        missing=missing_sizes(facts)
        if mechanism != "unknown"
        else (
            Missing("DRAM and NVLink counters during the transfers", ("gpu_metrics",)),
            *missing_sizes(facts),
        ),
    )


def _range(row: Row) -> str:
    if row["n_groups"] == 1:
        return f"{row['slowdown_ratio']:.2f}x"
    return f"{row['mildest_ratio']:.2f}x to {row['worst_ratio']:.2f}x"


def _cause(row: Row) -> str:
    dram, link = pct(row["dram_cont_frac"]), pct(row["link_cont_frac"])
    if row["mechanism"] == "bandwidth":
        return f"memory bandwidth (DRAM {dram} busy, alone {pct(row['dram_base_frac'])})"
    if row["mechanism"] == "link":
        return f"the GPU link is full ({link} busy)"
    if row["mechanism"] == "SM/scheduling":
        return f"they share SMs, not bandwidth (DRAM {dram}, link {link} busy)"
    return "bandwidth contention candidate (no samples to confirm it)"


def _advice(row: Row, op: str, partners: str) -> str:
    share = f"{pct(row['lost_frac'])} of {lost_of(row)}"
    won = f"Without the overlap at most {time(row['lost_ns'])} ({share}) is won, less what the"
    won += f" {partners} then delay."
    if row["mechanism"] == "bandwidth":
        return (
            f"Move the {partners} to where no {op} runs, or make them move fewer bytes: both need"
            f" the same memory, so more SMs or another stream priority would not help. {won}"
        )
    if row["mechanism"] == "link":
        return f"Both want the GPU link: send fewer bytes at once, or one after the other. {won}"
    if row["mechanism"] == "SM/scheduling":
        return (
            f"Memory and link have room, SMs do not: give the communication stream a higher"
            f" priority, leave some SMs free of {partners}, or run the {op} first. Smaller messages"
            f" would not help. {won}"
        )
    return (
        "Record DRAM and NVLink counters to tell a lack of bandwidth from a lack of SMs: the"
        f" remedies differ. {won}"
    )


def _caveats(frames: Frames, facts: Row, row: Row) -> tuple[str, ...]:
    notes = [
        "Slower beside other work is an association: whatever else differed then counts too.",
        "Waiting for late ranks is not in these numbers; collective_skew reports it.",
    ]
    peak, reached = facts["link_peak_gbps"], row["busbw_base_gbps"]
    if peak is not None and reached is not None and reached > peak:
        notes.append(
            f"Bus bandwidth above the link's {peak:.0f} GB/s: in-network reduction possible."
        )
    groups = frames["groups"].filter(pl.col("comm") == row["comm"])
    suffixes = {classify(n or "").algorithm_note for n in groups["name"].unique()} - {None}
    notes += [f"Nothing here rests on the {note}." for note in sorted(map(str, suffixes))]
    if groups["subsample"].any():
        notes.append(
            "Some transfers are shorter than the sampling period: their DRAM shares are means over"
            " all transfers of the group, never of one."
        )
    if groups["bytes"].null_count():
        notes.append(
            "Message sizes are unknown: collectives of one kernel and grid are taken as alike."
        )
    if facts["mad_ns"]:
        notes.append(f"Differences below {3 * facts['mad_ns']:.0f} ns between ranks count as zero.")
    return (*notes, *opaque_caveat(facts))


def _evidence(comm: Row, row: Row) -> tuple[Evidence, ...]:
    where = {"comm": comm["comm"], "op": row["op"], "mechanism": row["mechanism"]}
    return (
        Evidence("groups", where, GROUP_COLUMNS, "Transfer by message size"),
        Evidence(
            "attribution",
            where,
            ("gpu", "corunner", "n", "excess_ns", "excess_frac"),
            "What the lost time goes with",
        ),
    )
