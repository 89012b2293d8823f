"""What the frames of `allreduce_contention` say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tracekit.analyses._comm_words import (
    amount,
    denominator,
    no_collectives,
    op_name,
    opaque_caveat,
    partner_name,
    pct,
    source_note,
    time,
    unmatched,
    whose,
)
from tracekit.analyses._slowed_verdict import slowed
from tracekit.model.analysis import (
    Confidence,
    Evidence,
    Finding,
    Frames,
    Level,
    Metric,
    Missing,
)

__all__ = ["verdict"]

NAME = "allreduce_contention"
OBSERVATIONS_FOR_SURE = 20
SHARED_GPU_COV = 0.5
Row = Mapping[str, Any]
_SLUGS = {"SM/scheduling": "sm"}
_GROUP_COLUMNS = (
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


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `allreduce_contention`."""
    facts = frames["facts"].row(0, named=True)
    if facts["n_comm_kernels"] == 0:
        return (no_collectives(NAME, facts),)
    found: list[Finding] = []
    matched = frames["communicators"].filter(pl.col("status") == "matched")
    for communicator in matched.sort("comm").iter_rows(named=True):
        found += _of_communicator(frames, facts, communicator, params)
    found += unmatched(frames, NAME, "contention is")
    return (*found, *slowed(frames, facts, params))


def _of_communicator(frames: Frames, facts: Row, comm: Row, params: Any) -> list[Finding]:
    rows = frames["mechanisms"].filter(pl.col("comm") == comm["comm"])
    slow = pl.col("slowdown_lo_ratio") >= params.slower_ratio
    found = [
        _slower(frames, facts, comm, row, params) for row in rows.filter(slow).iter_rows(named=True)
    ]
    unharmed = rows.filter(~slow)
    if unharmed.height and not found:
        found.append(_unharmed(frames, facts, comm, unharmed))
    if not rows.height:
        found.append(_nothing_to_compare(frames, facts, comm))
    return found


def _level(row: Row, params: Any) -> Level:
    low, lost = row["slowdown_lo_ratio"], row["comm_lost_frac"] or 0.0
    if low >= params.critical_ratio and lost >= params.critical_frac:
        return Level.CRITICAL
    return Level.WARN if lost >= params.warn_frac else Level.OK


def _slower(frames: Frames, facts: Row, comm: Row, row: Row, params: Any) -> Finding:
    op, partners = op_name(row["op"]), _partners(row)
    mechanism = row["mechanism"]
    lost = f"{time(row['lost_ns'])} lost, {pct(row['lost_frac'])} of {_of(row)}"
    title = f"{op}{whose(frames, comm['comm'])} is {_range(row)} slower while {partners} run"
    slug = _SLUGS.get(mechanism, mechanism)
    several = frames["communicators"].height > 1
    return Finding(
        id=f"{NAME}/{op}-{slug}" + (f"-{comm['comm']}" if several else ""),
        level=_level(row, params),
        title=f"{title}: {_cause(row)}; {lost}",
        metrics=_metrics(row),
        at_stake_ns=row["lost_ns"],
        at_stake_frac=row["lost_all_frac"],
        at_stake_of="all step time" if facts["has_steps"] else "capture",
        confidence=_confidence(facts, comm, row),
        advice=_advice(row, op, partners),
        caveats=_caveats(frames, facts, row),
        scope=(("communicator", comm["comm"]), ("operation", op)),
        t_range_ns=(row["worst_start_ns"], row["worst_end_ns"]),
        thresholds={
            "slowdown_ratio": (params.slower_ratio, params.critical_ratio),
            "comm_lost_frac": (params.warn_frac, params.critical_frac),
        },
        evidence=_evidence(comm, row),
        missing=()
        if mechanism != "unknown"
        else (Missing("DRAM and NVLink counters during the transfers", ("gpu_metrics",)),),
    )


def _partners(row: Row) -> str:
    names = [partner_name(p) for p in str(row["partners"]).split(", ")]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _range(row: Row) -> str:
    if row["n_groups"] == 1:
        return f"{row['slowdown_ratio']:.2f}x"
    return f"{row['mildest_ratio']:.2f}x to {row['worst_ratio']:.2f}x"


def _of(row: Row) -> str:
    return denominator(row["lost_group"])


def _cause(row: Row) -> str:
    dram, link = pct(row["dram_cont_frac"]), pct(row["link_cont_frac"])
    if row["mechanism"] == "bandwidth":
        return f"memory bandwidth (DRAM {dram} busy, alone {pct(row['dram_base_frac'])})"
    if row["mechanism"] == "link":
        return f"the GPU link is full ({link} busy)"
    if row["mechanism"] == "SM/scheduling":
        return f"they share SMs, not bandwidth (DRAM {dram}, link {link} busy)"
    return "bandwidth contention candidate (no samples to confirm it)"


def _metrics(row: Row) -> tuple[Metric, ...]:
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
        Metric("lost_frac", row["lost_frac"], "1", doc=f"lost, of {_of(row)}"),
        Metric(
            "comm_lost_frac",
            row["comm_lost_frac"],
            "1",
            doc="lost beside any kind of work, for the level",
        ),
        Metric("dram_cont_frac", row["dram_cont_frac"], "1", doc="DRAM read + write, beside"),
        Metric("dram_base_frac", row["dram_base_frac"], "1", doc="DRAM read + write, alone"),
        Metric("link_cont_frac", row["link_cont_frac"], "1", doc="NVLink, beside"),
        Metric("busbw_base_gbps", row["busbw_base_gbps"], "GB/s", doc="bus bandwidth alone"),
        Metric("busbw_cont_gbps", beside, "GB/s", doc="bus bandwidth beside"),
        Metric("memory_traffic", traffic, doc="its own memory traffic, 2 to 3x bus bandwidth"),
    )


def _confidence(facts: Row, comm: Row, row: Row) -> Confidence:
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


def _advice(row: Row, op: str, partners: str) -> str:
    share = f"{pct(row['lost_frac'])} of {_of(row)}"
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
    if groups["subsample"].any():
        notes.append(
            "Some transfers are shorter than the sampling period: their DRAM shares are means over"
            " all transfers of the group, never of one."
        )
    if facts["mad_ns"]:
        notes.append(f"Differences below {3 * facts['mad_ns']:.0f} ns between ranks count as zero.")
    return (*notes, *opaque_caveat(facts))


def _evidence(comm: Row, row: Row) -> tuple[Evidence, ...]:
    where = {"comm": comm["comm"], "op": row["op"], "mechanism": row["mechanism"]}
    return (
        Evidence("groups", where, _GROUP_COLUMNS, "Transfer by message size"),
        Evidence(
            "attribution",
            where,
            ("gpu", "corunner", "n", "excess_ns", "excess_frac"),
            "What the lost time goes with",
        ),
    )


def _unharmed(frames: Frames, facts: Row, comm: Row, rows: pl.DataFrame) -> Finding:
    first = rows.sort("n_cont", descending=True, maintain_order=True).row(0, named=True)
    op = op_name(first["op"])
    interval = f"[{first['slowdown_lo_ratio']:.2f}, {first['slowdown_hi_ratio']:.2f}]"
    return Finding(
        id=f"{NAME}/unharmed" + ("" if frames["communicators"].height == 1 else f"-{comm['comm']}"),
        level=Level.OK,
        title=f"{op}{whose(frames, comm['comm'])} is not slower beside {_partners(first)}: transfer"
        f" {first['slowdown_ratio']:.2f}x {interval}, {amount(first['n_cont'], 'collective')}"
        f" against {first['n_base']} alone",
        metrics=_metrics(first),
        confidence=_confidence(facts, comm, first),
        caveats=opaque_caveat(facts),
        scope=(("communicator", comm["comm"]), ("operation", op)),
        evidence=(
            Evidence("groups", {"comm": comm["comm"]}, _GROUP_COLUMNS, "Transfer by message size"),
        ),
    )


def _nothing_to_compare(frames: Frames, facts: Row, comm: Row) -> Finding:
    """No group has five collectives alone and five beside other work."""
    groups = frames["groups"].filter(pl.col("comm") == comm["comm"])
    contended = int(groups["n_cont"].sum())
    alone = int(groups.unique("bytes")["n_base"].sum())
    suffix = "" if frames["communicators"].height == 1 else f"-{comm['comm']}"
    scope = (("communicator", comm["comm"]),)
    evidence = (Evidence("groups", {"comm": comm["comm"]}, _GROUP_COLUMNS, "Transfer by size"),)
    if contended == 0:
        return Finding(
            id=f"{NAME}/no_overlap{suffix}",
            level=Level.OK,
            title=f"none of {amount(comm['n_matched'], 'collective')}{whose(frames, comm['comm'])}"
            " ran beside other work",
            confidence=_confidence(
                facts, comm, {"n_cont": comm["n_matched"], "prov": comm["prov"]}
            ),
            caveats=opaque_caveat(facts),
            scope=scope,
            evidence=evidence,
        )
    return Finding(
        id=f"{NAME}/no_baseline{suffix}",
        level=Level.UNKNOWN,
        title=f"contention is unknown{whose(frames, comm['comm'])}: {contended} collectives ran"
        f" beside other work and {alone} alone, and no size has five of both",
        caveats=("Only collectives of one size, type, kernel and grid are compared.",),
        scope=scope,
        evidence=evidence,
        missing=(Missing("a longer recording, or one phase in which the other work does not run"),),
    )
