"""What the frames of `allreduce_contention` say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tracekit.analyses._collectives.wording import (
    combined_stake_note,
    communicator_label,
    denominator_of_run,
    limit_ok_findings,
    marked_as_hint,
    missing_sizes,
    no_collectives,
    only_point_to_point,
    opaque_caveat,
    operation_name,
    operation_slug,
    unmatched,
)
from tracekit.analyses.allreduce_contention.slowed_compute import slowed
from tracekit.analyses.allreduce_contention.wording import (
    NAME,
    blocking_loss,
    confidence,
    groups_evidence,
    groups_of,
    lost_of,
    metrics,
    partner_words,
    slowdown_range,
)
from tracekit.model.finding import Evidence, Finding, Level, Missing
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import bounds, count_of, duration, rate, ratio, share

__all__ = ["not_slowed", "nothing_to_compare", "verdict"]

Row = Mapping[str, Any]
BLAMED_FRAC = 0.01
"""Share of the loss from which a kind of work is shown."""
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
    found = [*limit_ok_findings(found), *unmatched(frames, NAME, "contention is")]
    return (*found, *slowed(frames, facts, params))


def _of_communicator(frames: Frames, facts: Row, comm: Row, params: Any) -> list[Finding]:
    rows = frames["mechanisms"].filter(pl.col("comm") == comm["comm"])
    slow = pl.col("slowdown_lo_ratio") >= params.slower_ratio
    found = [
        _slower(frames, facts, comm, row, params) for row in rows.filter(slow).iter_rows(named=True)
    ]
    calm = rows.filter(~slow)
    if calm.height and not found:
        found.append(not_slowed(frames, facts, comm, calm, params))
    if not rows.height:
        found.append(nothing_to_compare(frames, facts, comm))
    return found


def _level(row: Row, params: Any) -> Level:
    low, lost = row["slowdown_lo_ratio"], row["comm_lost_frac"] or 0.0
    if low >= params.critical_ratio and lost >= params.critical_frac:
        return Level.CRITICAL
    return Level.WARN if lost >= params.warn_frac else Level.OK


def _slower(frames: Frames, facts: Row, comm: Row, row: Row, params: Any) -> Finding:
    op, mechanism = operation_name(row["op"]), row["mechanism"]
    slug = _SLUGS.get(mechanism, mechanism)
    several = frames["communicators"].height > 1
    sure = confidence(facts, comm, row)
    return Finding(
        id=f"{NAME}/{operation_slug(row['op'])}-{slug}" + (f"-{comm['comm']}" if several else ""),
        level=_level(row, params),
        title=marked_as_hint(_title(frames, comm, row), row["n_overlapped"], sure),
        metrics=metrics(frames, row, params),
        at_stake_ns=row["lost_ns"],
        at_stake_frac=row["lost_all_frac"],
        at_stake_of=denominator_of_run(facts, row["all_time_ns"]),
        confidence=sure,
        advice=" ".join(
            s
            for s in (
                _advice(frames, row, params),
                combined_stake_note(frames, comm["comm"], row["lost_ns"]),
            )
            if s
        ),
        caveats=_caveats(frames, facts, row),
        scope=(("communicator", comm["comm"]), ("operation", op)),
        t_range_ns=(row["worst_start_ns"], row["worst_end_ns"]),
        thresholds={
            "slowdown_ratio": (params.slower_ratio, params.critical_ratio),
            "lost_to_all_frac": (params.warn_frac, params.critical_frac),
        },
        evidence=_evidence(frames, row),
        missing=_missing(facts, mechanism),
    )


def _missing(facts: Row, mechanism: str) -> tuple[Missing, ...]:
    if mechanism != "unknown":
        return missing_sizes(facts)
    counters = Missing("DRAM and NVLink counters during the transfers", ("gpu_metrics",))
    return (counters, *missing_sizes(facts))


def _title(frames: Frames, comm: Row, row: Row) -> str:
    slowdown, doubt = slowdown_range(frames, row)
    what = f"{operation_name(row['op'])}{communicator_label(frames, comm['comm'])}"
    return (
        f"{what} is {slowdown} slower while {partner_words(row)} run{doubt}:"
        f" {_cause(row)}; {duration(row['lost_ns'])} lost,"
        f" {share(row['lost_frac'], 'unknown')} of {lost_of(row)}{_all_work(row)}"
    )


def _all_work(row: Row) -> str:
    """The share that decides the level, where other kinds of work add to it."""
    own, every = row["lost_frac"] or 0.0, row["comm_lost_frac"] or 0.0
    return (
        f" ({share(every)} for all kinds of overlapping work)" if share(every) != share(own) else ""
    )


def _cause(row: Row) -> str:
    dram, link = (share(row[f"{c}_overlapped_frac"], "unknown") for c in ("dram", "link"))
    if row["mechanism"] == "bandwidth":
        return (
            f"memory bandwidth (DRAM {dram} busy, alone {share(row['dram_alone_frac'], 'unknown')})"
        )
    if row["mechanism"] == "link":
        return f"the GPU link is full ({link} busy)"
    if row["mechanism"] != "SM/scheduling":
        return "bandwidth contention candidate (no samples to confirm it)"
    if row["sms_overlapped_frac"] is None:
        room = f"DRAM {dram}, link {link} busy"
        return f"they share SMs, by elimination: memory and link have room ({room})"
    during, before = (share(row[f"sms_{c}_frac"], "unknown") for c in ("overlapped", "alone"))
    sms = f"SMs {during} in use, alone {before}"
    return f"they share SMs, not bandwidth ({sms}; DRAM {dram}, link {link} busy)"


def _advice(frames: Frames, row: Row, params: Any) -> str:
    op, partners = operation_name(row["op"]), partner_words(row)
    won = (
        f"Without the overlap at most {duration(row['lost_ns'])} of transfer time is won, less what"
    )
    won += f" the {partners} then delay."
    if row["mechanism"] == "bandwidth":
        return (
            f"Move the {partners} to where no {op} runs, or make them move fewer bytes: both need"
            f" the same memory. More SMs or a higher stream priority let the {op} start sooner, but"
            f" not move data faster while they overlap. {won}"
        )
    if row["mechanism"] == "link":
        return f"Both want the GPU link: send fewer bytes at once, or one after the other. {won}"
    if row["mechanism"] == "SM/scheduling":
        return (
            f"Memory and link have room, SMs do not: give the communication stream a higher"
            f" priority, leave some SMs free of {partners}, or run the {op} first."
            f"{_of_sizes(frames, row, params)} {won}"
        )
    return (
        "Record DRAM and NVLink counters to see whether bandwidth or SMs are scarce: the"
        f" remedies differ. {won}"
    )


def _of_sizes(frames: Frames, row: Row, params: Any) -> str:
    """What the table says about message sizes: no size is spared, or which is."""
    rows = groups_of(frames, row).drop_nulls("bytes").sort("bytes")
    if rows["bytes"].n_unique() < 2:
        return ""
    spared = rows.filter(pl.col("slowdown_lo_ratio") < params.slower_ratio)
    if spared.is_empty():
        return " Every message size is slowed, so cutting messages up would not avoid it."
    sizes = ", ".join(size(size) for size in spared["bytes"].unique(maintain_order=True))
    return f" Not slowed for sure: {sizes}."


def _caveats(frames: Frames, facts: Row, row: Row) -> tuple[str, ...]:
    notes = [
        "Slower under overlap is an association: whatever else differed then counts too.",
        _blocking(frames, row),
        "Waiting for late ranks and queueing to start are not in these numbers: other findings have"
        ' them ("ranks wait for each other", "queue behind").',
    ]
    if row["mechanism"] == "SM/scheduling" and row["sms_overlapped_frac"] is None:
        notes.append("No counter of SMs was sampled: that they lack is inferred, not measured.")
    peak, reached = facts["link_peak_gbps"], row["busbw_alone_gbps"]
    if peak is not None and reached is not None and reached > peak:
        notes.append(
            f"Bus bandwidth above the link's {rate(peak * 1e9)}: in-network reduction possible."
        )
    groups = frames["groups"].filter(pl.col("comm") == row["comm"])
    if groups["subsample"].any():
        notes.append(
            "Some transfers are shorter than the sampling period: their DRAM and SM shares are"
            " means over all transfers of the group, never of one."
        )
    if groups["bytes"].null_count():
        notes.append(
            "Message sizes are unknown: collectives of one kernel and grid are taken as alike."
        )
    if facts["mad_ns"]:
        notes.append(
            f"Differences below {duration(3 * facts['mad_ns'])} between ranks count as zero."
        )
    return (*notes, *opaque_caveat(facts))


def _blocking(frames: Frames, row: Row) -> str:
    """How much of the loss something waited for."""
    blocking = blocking_loss(frames, row)
    if blocking >= row["lost_ns"] // 2:
        return f"{duration(blocking)} of the loss was seen to delay other work or the host."
    return (
        f"Lost is transfer time; {duration(blocking or None, 'none')} of it was seen to delay other"
        " work or the host in this recording. The run gets shorter only where something waits."
    )


def _evidence(frames: Frames, row: Row) -> tuple[Evidence, ...]:
    where = {name: row[name] for name in ("comm", "op", "mechanism")}
    blamed = frames["attribution"].filter(pl.col("excess_frac") >= BLAMED_FRAC)
    kinds = sorted(set(blamed["kind"].drop_nulls()))
    return (
        groups_evidence(where),
        Evidence(
            "attribution",
            where | {"kind": kinds},
            ("gpu", "corunner", "n", "excess_ns", "excess_frac"),
            "Overlapping work that the lost time is attributed to",
            {"corunner": "overlapping work", "excess_ns": "lost", "excess_frac": "of lost"},
        ),
    )


def not_slowed(frames: Frames, facts: Row, comm: Row, rows: pl.DataFrame, params: Any) -> Finding:
    """Return the verdict on a communicator that other work does not slow."""
    first = rows.sort("n_overlapped", descending=True, maintain_order=True).row(0, named=True)
    op = operation_name(first["op"])
    interval = bounds(first["slowdown_lo_ratio"], first["slowdown_hi_ratio"], "x")
    return Finding(
        id=f"{NAME}/not_slowed"
        + ("" if frames["communicators"].height == 1 else f"-{comm['comm']}"),
        level=Level.OK,
        title=f"{op}{communicator_label(frames, comm['comm'])} is not slower while"
        f" {partner_words(first)} run: transfer {ratio(first['slowdown_ratio'])} {interval},"
        f" {count_of(first['n_overlapped'], 'collective')} against {first['n_alone']} alone",
        metrics=metrics(frames, first, params),
        confidence=confidence(facts, comm, first),
        caveats=opaque_caveat(facts),
        scope=(("communicator", comm["comm"]), ("operation", op)),
        evidence=(groups_evidence({"comm": comm["comm"]}),),
        missing=missing_sizes(facts),
    )


def nothing_to_compare(frames: Frames, facts: Row, comm: Row) -> Finding:
    """Return the verdict where no group has five collectives alone and five overlapped."""
    groups = frames["groups"].filter(pl.col("comm") == comm["comm"])
    contended = int(groups["n_overlapped"].sum())
    alone = int(groups.unique("bytes")["n_alone"].sum())
    suffix = "" if frames["communicators"].height == 1 else f"-{comm['comm']}"
    scope = (("communicator", comm["comm"]),)
    evidence = (groups_evidence({"comm": comm["comm"]}),)
    if contended == 0:
        return Finding(
            id=f"{NAME}/no_overlap{suffix}",
            level=Level.OK,
            title=f"none of {count_of(comm['n_matched'], 'collective')}"
            f"{communicator_label(frames, comm['comm'])} overlapped other work",
            confidence=confidence(
                facts, comm, {"n_overlapped": comm["n_matched"], "provenance": comm["provenance"]}
            ),
            caveats=opaque_caveat(facts),
            scope=scope,
            evidence=evidence,
            missing=missing_sizes(facts),
        )
    return Finding(
        id=f"{NAME}/no_baseline{suffix}",
        level=Level.UNKNOWN,
        title=f"contention is unknown{communicator_label(frames, comm['comm'])}: {contended}"
        f" collectives overlapped other work and {alone} ran alone, and no size has five of both",
        caveats=("Only collectives of one size, type, kernel and grid are compared.",),
        scope=scope,
        evidence=evidence,
        missing=(Missing("a longer recording, or one phase in which the other work does not run"),),
    )
