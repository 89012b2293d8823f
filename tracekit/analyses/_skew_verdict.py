"""What the frames of `collective_skew` say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tracekit.analyses._comm_words import (
    denominator,
    few_ok,
    no_collectives,
    only_point_to_point,
    op_name,
    op_slug,
    opaque_caveat,
    partner_name,
    pct,
    source_note,
    time,
    unmatched,
    whose,
)
from tracekit.analyses._queue_verdict import queued
from tracekit.model.analysis import Confidence, Evidence, Finding, Frames, Level, Metric
from tracekit.views.lateness import HOST_LATE, IDLE, QUEUED

__all__ = ["verdict"]

NAME = "collective_skew"
OBSERVATIONS_FOR_SURE = 20
ONE_RANK_LATE = 0.7
"""Share of the lateness from which one rank is named instead of jitter."""
Row = Mapping[str, Any]
_ORDER = {Level.CRITICAL: 0, Level.WARN: 1, Level.OK: 2}


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `collective_skew`."""
    facts = frames["facts"].row(0, named=True)
    if facts["n_comm_kernels"] == 0:
        return (no_collectives(NAME, facts),)
    if frames["communicators"].is_empty():
        return (only_point_to_point(NAME, facts),)
    found: list[Finding] = []
    groups = frames["skew"].partition_by("comm", "op", as_dict=True, maintain_order=True)
    for (comm, _), rows in groups.items():
        about = frames["communicators"].filter(pl.col("comm") == comm).row(0, named=True)
        if about["status"] == "matched":
            found.append(_straggler(frames, facts, about, rows, params))
    found = [*few_ok(found), *unmatched(frames, NAME, "skew is")]
    return (*found, *queued(frames, params))


def _straggler(frames: Frames, facts: Row, comm: Row, rows: pl.DataFrame, params: Any) -> Finding:
    judged = [(_level(frames, row, params), row) for row in rows.iter_rows(named=True)]
    level, row = min(judged, key=lambda j: (_ORDER[j[0]], -_worst_wait(frames, j[1])["wait_frac"]))
    waiting = _worst_wait(frames, row)
    late = _late_ranks(frames, row)
    op = op_name(row["op"])
    stake = int(rows["mean_wait_ns"].sum())
    whole = float(rows["time_ns"].sum() if facts["has_steps"] else row["time_ns"] or 0)
    several = frames["skew"].select("comm", "op").n_unique() > 1
    return Finding(
        id=f"{NAME}/{op_slug(row['op'])}" + (f"-{comm['comm']}" if several else ""),
        level=level,
        title=_title(frames, row, waiting, late, level),
        metrics=_metrics(frames, row, waiting, late),
        at_stake_ns=stake if level is not Level.OK else None,
        at_stake_frac=stake / whole if whole and level is not Level.OK else None,
        at_stake_of="all step time" if facts["has_steps"] else "capture",
        confidence=_confidence(facts, comm, row),
        advice=_advice(late) if level is not Level.OK else "",
        caveats=_caveats(frames, facts, row),
        scope=(("communicator", comm["comm"]), ("operation", op)),
        t_range_ns=None
        if row["worst_start_ns"] is None
        else (row["worst_start_ns"], row["worst_end_ns"]),
        thresholds={
            "skew_over_transfer": (params.warn_skew_ratio, params.critical_skew_ratio),
            "wait_frac": (params.warn_frac, params.critical_frac),
        },
        evidence=_evidence(comm, row),
    )


def _waits(frames: Frames, row: Row) -> pl.DataFrame:
    same = (pl.col(c).eq_missing(pl.lit(row[c], pl.String)) for c in ("comm", "op", "step_group"))
    return frames["rank_waits"].filter(*same)


def _worst_wait(frames: Frames, row: Row) -> dict[str, Any]:
    """The rank that waits for the largest share of its step time."""
    waits = _waits(frames, row).with_columns(pl.col("wait_frac").fill_null(0.0))
    order = ["wait_frac", "wait_ns", "rank_id"]
    return waits.sort(order, descending=[True, True, False]).row(0, named=True)


def _level(frames: Frames, row: Row, params: Any) -> Level:
    ratio, share = row["skew_over_transfer"] or 0.0, _worst_wait(frames, row)["wait_frac"]
    if ratio >= params.critical_skew_ratio and share >= params.critical_frac:
        return Level.CRITICAL
    if ratio >= params.warn_skew_ratio and share >= params.warn_frac:
        return Level.WARN
    return Level.OK


def _late_ranks(frames: Frames, row: Row) -> dict[str, Any]:
    """Who comes late how much of the time, and the largest reason for it."""
    same = (pl.col(c).eq_missing(pl.lit(row[c], pl.String)) for c in ("comm", "op", "step_group"))
    rows = frames["lateness"].filter(*same)
    if rows.is_empty():
        return {"rank": None, "share": None, "what": None, "extra": None}
    ranks = rows.unique("late_rank_id", maintain_order=True)
    total = ranks["late_ns"].sum()
    worst = ranks.row(0, named=True)
    causes = rows.group_by("what").agg(pl.col("extra_ns").sum())
    cause = causes.sort(["extra_ns", "what"], descending=[True, False]).row(0, named=True)
    known = bool(total) and cause["extra_ns"] > 0
    return {
        "rank": worst["late_rank"],
        "share": worst["late_ns"] / total if total else None,
        "what": cause["what"] if known else None,
        "extra": cause["extra_ns"] / total if known else None,
    }


def _title(frames: Frames, row: Row, waiting: Row, late: Row, level: Level) -> str:
    op = op_name(row["op"])
    sizes = f"median skew {time(row['skew_median_ns'])}, transfer {time(row['transfer_median_ns'])}"
    if level is Level.OK:
        return (
            f"ranks reach {op}s{whose(frames, row['comm'])} together enough: {sizes}; no rank waits"
            f" more than {pct(waiting['wait_frac'])} of {denominator(row['step_group'])}"
        )
    title = (
        f"ranks wait for each other in {op}s{whose(frames, row['comm'])}: {sizes};"
        f" {waiting['rank']} waits {pct(waiting['wait_frac'])} of {_its(row)}"
    )
    if late["what"] is None:
        return title
    who = late["rank"] if (late["share"] or 0) >= ONE_RANK_LATE else "whoever is late"
    return f"{title}; {who}: {_cause(late)}"


def _its(row: Row) -> str:
    group = denominator(row["step_group"])
    return group.replace("step time", "its step time")


def _cause(late: Row) -> str:
    share = pct(min(late["extra"], 1.0))
    if late["what"] == HOST_LATE:
        return f"its host launches late ({share} of the lateness)"
    if late["what"] == QUEUED:
        return f"it is ready, but other work holds its GPU ({share} of the lateness)"
    if late["what"] == IDLE:
        return f"its GPU idles with work queued or waits for an event ({share} of the lateness)"
    return f"its {partner_name(late['what'])} take longer ({share} of the lateness)"


def _metrics(frames: Frames, row: Row, waiting: Row, late: Row) -> tuple[Metric, ...]:
    waits = [
        Metric(
            f"wait_median_{w['rank'].replace(' ', '_')}_ns",
            w["wait_median_ns"],
            "ns",
            n=w["n"],
            doc=f"wait median {w['rank']} (came last {w['n_last']} times)",
        )
        for w in _waits(frames, row).head(8).iter_rows(named=True)
    ]
    return (
        Metric("skew_median_ns", row["skew_median_ns"], "ns", n=row["n"], doc="skew median"),
        Metric("transfer_median_ns", row["transfer_median_ns"], "ns", doc="transfer median"),
        Metric("skew_over_transfer", row["skew_over_transfer"], "x", doc="skew over transfer"),
        Metric(
            "wait_frac", waiting["wait_frac"], "1", doc=f"wait of {waiting['rank']}, of {_its(row)}"
        ),
        *waits,
        Metric("mean_wait_ns", row["mean_wait_ns"], "ns", doc="mean wait over ranks, summed"),
        Metric("late_share_frac", late["share"], "1", doc=f"late share of {late['rank']}"),
    )


def _confidence(facts: Row, comm: Row, row: Row) -> Confidence:
    whole = comm["n_kernels"] / max(comm["n_ranks"], 1)
    why = [source_note(facts)] if row["prov"] < 1 else []
    why += ["clocks of several reports aligned on collectives"] if comm["clk"] < 1 else []
    why += ["few observations"] if row["n"] < OBSERVATIONS_FOR_SURE else []
    return Confidence(
        cov=min(1.0, comm["n_matched"] / max(whole, 1)),
        n=row["n"],
        n_hi=OBSERVATIONS_FOR_SURE,
        prov=row["prov"],
        clk=comm["clk"],
        why="; ".join(why),
    )


def _advice(late: Row) -> str:
    if late["what"] is None:
        return "Look at what the late rank does before its collectives (table below)."
    jitter = (late["share"] or 0) < ONE_RANK_LATE
    who = (
        f"The ranks take turns being late ({late['rank']} {pct(late['share'])} of the lateness):"
        " this is jitter, not one slow rank."
        if jitter
        else f"{late['rank'].capitalize()} is late, the others wait."
    )
    if late["what"] == HOST_LATE:
        return (
            f"{who} Its GPU is idle because its host has not launched the next kernel yet: cut the"
            " launching work (CUDA graphs, fewer and larger kernels), pin the launching threads to"
            " their own cores, and keep other work off that process's Python thread. A faster link"
            " or smaller messages would not help."
        )
    if late["what"] == QUEUED:
        return (
            f"{who} Its collective was launched in time and found no room on its GPU: launch it"
            " before the work that holds the GPU, or give its stream a higher priority (the"
            " findings on queueing name that work). A faster link would not help."
        )
    if late["what"] == IDLE:
        return (
            f"{who} Its GPU has nothing runnable although work was launched: look for waits on"
            " events of another stream, and for launches that queue behind copies."
        )
    return (
        f"{who} Give it less of that work or find out why it takes longer there (what runs beside"
        " it, clocks, batch split). A faster link would not help."
    )


def _caveats(frames: Frames, facts: Row, row: Row) -> tuple[str, ...]:
    notes = []
    if row["first_skew_ns"]:
        notes.append(
            f"The first collective ({time(row['first_skew_ns'])} of skew) is left out of the sums:"
            " ranks do not start recording at one instant."
        )
    if not frames["ranks"]["rank_known"].all():
        notes.append(
            "Ranks are numbered by report and GPU: the library's own numbers were not recorded."
        )
    if facts["mad_ns"]:
        notes.append(f"Differences below {3 * facts['mad_ns']:.0f} ns between ranks count as zero.")
    return (*notes, *opaque_caveat(facts))


def _evidence(comm: Row, row: Row) -> tuple[Evidence, ...]:
    where = {"comm": comm["comm"], "op": row["op"]}
    group = where | {"step_group": row["step_group"]}
    return (
        Evidence(
            "rank_waits",
            where,
            ("step_group", "rank", "n", "n_last", "wait_median_ns", "wait_ns", "wait_frac"),
            "Waiting by rank",
        ),
        Evidence(
            "lateness",
            group,
            ("late_rank", "n", "late_ns", "what", "extra_ns", "extra_frac"),
            "What late ranks did that the earliest did not",
        ),
    )
