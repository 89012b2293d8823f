"""What the frames of `collective_skew` say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tracekit.analyses._collectives.wording import (
    combined_stake_note,
    communicator_label,
    denominator,
    denominator_of_run,
    limit_ok_findings,
    limits,
    marked_as_hint,
    no_collectives,
    only_point_to_point,
    opaque_caveat,
    operation_name,
    operation_slug,
    source_note,
    unmatched,
)
from tracekit.analyses.collective_skew.late_rank import Late, advice, cause, late_ranks
from tracekit.analyses.collective_skew.queueing import queued
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric
from tracekit.trace.analysis import Frames
from tracekit.views.waiting.lateness import HOST_LATE
from tracekit.wording.numbers import duration, share

__all__ = ["verdict"]

NAME = "collective_skew"
OBSERVATIONS_FOR_SURE = 20
LITTLE = 0.2
"""Below this blocking share of the waiting the advice says first that little is to gain."""
MOSTLY = 0.8
"""From this share on all of a wait is taken to block something."""
Row = Mapping[str, Any]
_WAIT_COLUMNS = {
    "step_group": "step group",
    "rank": "rank",
    "n": "n",
    "n_last": "came last",
    "wait_median_ns": "median wait",
    "wait_ns": "wait in all",
    "wait_blocking_ns": "blocking wait",
    "time_ns": "out of",
    "wait_frac": "wait share",
}
_LATE_COLUMNS = {
    "late_rank": "late rank",
    "n": "times late",
    "late_ns": "late in all",
    "what": "what",
    "extra_ns": "longer",
    "extra_frac": "of its lateness",
}
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
    found = [*limit_ok_findings(found), *unmatched(frames, NAME, "skew is")]
    return (*found, *limit_ok_findings(queued(frames, facts, params)))


def _straggler(frames: Frames, facts: Row, comm: Row, rows: pl.DataFrame, params: Any) -> Finding:
    judged = [(_level(frames, row, params), row) for row in rows.iter_rows(named=True)]
    level, row = min(judged, key=lambda j: (_ORDER[j[0]], -_worst_wait(frames, j[1])["wait_frac"]))
    op = operation_name(row["op"])
    stake = int(rows["mean_wait_blocking_ns"].sum()) if level is not Level.OK else 0
    whole = float(rows["time_ns"].sum() if facts["has_steps"] else row["time_ns"] or 0)
    several = frames["skew"].select("comm", "op").n_unique() > 1
    sure = _confidence(facts, comm, row)
    late = late_ranks(frames, row)
    return Finding(
        id=f"{NAME}/{operation_slug(row['op'])}" + (f"-{comm['comm']}" if several else ""),
        level=level,
        title=marked_as_hint(_title(frames, row, late, level), row["n"], sure),
        metrics=_metrics(frames, rows, row, late, params),
        at_stake_ns=stake or None,
        at_stake_frac=stake / whole if whole and stake else None,
        at_stake_of=denominator_of_run(facts, whole or None) if stake else "",
        confidence=sure,
        advice=_advice(frames, comm, rows, late) if level is not Level.OK else "",
        caveats=_caveats(frames, facts, comm, row, late),
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


def _advice(frames: Frames, comm: Row, rows: pl.DataFrame, late: Late) -> str:
    """What to do, beginning with how little there is to gain where that is so."""
    blocking, mean = int(rows["mean_wait_blocking_ns"].sum()), int(rows["mean_wait_ns"].sum())
    little = (
        f"Little is to gain here: {duration(blocking or None, 'none')} of the mean wait of"
        f" {duration(mean)} is seen to delay anything. "
    )
    parts = (advice(late), combined_stake_note(frames, comm["comm"], blocking))
    return ("" if blocking >= LITTLE * mean else little) + " ".join(p for p in parts if p)


def _waits(frames: Frames, row: Row) -> pl.DataFrame:
    same = (pl.col(c).eq_missing(pl.lit(row[c], pl.String)) for c in ("comm", "op", "step_group"))
    return frames["rank_waits"].filter(*same)


def _worst_wait(frames: Frames, row: Row) -> dict[str, Any]:
    """The rank that waits for the largest share of its step time."""
    waits = _waits(frames, row).with_columns(pl.col("wait_frac").fill_null(0.0))
    order = ["wait_frac", "wait_ns", "rank_id"]
    return waits.sort(order, descending=[True, True, False]).row(0, named=True)


def _level(frames: Frames, row: Row, params: Any) -> Level:
    ratio, wait_frac = row["skew_over_transfer"] or 0.0, _worst_wait(frames, row)["wait_frac"]
    if ratio >= params.critical_skew_ratio and wait_frac >= params.critical_frac:
        return Level.CRITICAL
    if ratio >= params.warn_skew_ratio and wait_frac >= params.warn_frac:
        return Level.WARN
    return Level.OK


def _of(row: Row, waiting: Row) -> str:
    return denominator(row["step_group"], waiting["time_ns"])


def _title(frames: Frames, row: Row, late: Late, level: Level) -> str:
    waiting = _worst_wait(frames, row)
    op, of = operation_name(row["op"]), _of(row, waiting)
    skew, transfer = duration(row["skew_median_ns"]), duration(row["transfer_median_ns"])
    sizes = f"median skew {skew}, transfer {transfer}"
    if level is Level.OK:
        return (
            f"ranks reach {op}s{communicator_label(frames, row['comm'])} together enough: {sizes};"
            f" no rank waits more than {share(waiting['wait_frac'])} of {of}"
        )
    title = (
        f"ranks wait for each other in {op}s{communicator_label(frames, row['comm'])}: {sizes};"
        f" {waiting['rank']} waits {duration(waiting['wait_ns'])}"
        f" ({share(waiting['wait_frac'])} of {of}){_blocking(waiting)}"
    )
    return f"{title}; {cause(late)}" if late.what else title


def _blocking(waiting: Row) -> str:
    """How much of the wait blocked something, where that is not most of it."""
    blocking, wait = waiting["wait_blocking_ns"] or 0, waiting["wait_ns"] or 0
    if blocking >= MOSTLY * wait:
        return ""
    if not blocking:
        return ", but nothing is seen to be delayed by that"
    return f", of which only {duration(blocking)} is seen to delay anything"


def _metrics(
    frames: Frames, rows: pl.DataFrame, row: Row, late: Late, params: Any
) -> tuple[Metric, ...]:
    waiting = _worst_wait(frames, row)
    waits = [
        Metric(
            f"wait_median_{w['rank'].replace(' ', '_')}_ns",
            w["wait_median_ns"],
            "ns",
            n=w["n"],
            doc=f"wait median {w['rank']} (came last {w['n_last']} of {w['n']} times)",
        )
        for w in _waits(frames, row).head(8).iter_rows(named=True)
    ]
    ratio = limits(params.warn_skew_ratio, params.critical_skew_ratio, ratio=True)
    doc_of_wait = f"wait of {waiting['rank']}, of {_of(row, waiting)}; level needs this too: "
    doc = "step group that is worst, of which these numbers are"
    return (
        *([Metric("step_group", row["step_group"], doc=doc)] if rows.height > 1 else []),
        Metric("skew_median_ns", row["skew_median_ns"], "ns", n=row["n"], doc="skew median"),
        Metric("transfer_median_ns", row["transfer_median_ns"], "ns", doc="transfer median"),
        Metric(
            "skew_over_transfer",
            row["skew_over_transfer"],
            "x",
            doc=f"skew over transfer; level by this: {ratio}",
        ),
        Metric(
            "wait_frac",
            waiting["wait_frac"],
            "1",
            doc=f"{doc_of_wait}{limits(params.warn_frac, params.critical_frac)}",
        ),
        *waits,
        *_late_share(late),
        *_mean_waits(rows, row),
    )


def _mean_waits(rows: pl.DataFrame, row: Row) -> list[Metric]:
    """Sums of the mean wait: of the group shown, and of all groups, which is at stake."""
    first = ", first collective left out" if row["first_skew_ns"] else ""
    doc = f"mean wait over ranks, summed{first}"
    found = [Metric("mean_wait_ns", row["mean_wait_ns"], "ns", doc=doc)]
    if rows.height > 1:
        mean, doc = int(rows["mean_wait_ns"].sum()), "mean wait all step groups, summed"
        found.append(Metric("mean_wait_all_ns", mean, "ns", doc=doc))
    blocking, every = int(rows["mean_wait_blocking_ns"].sum()), ", all step groups"
    doc = "mean wait blocking (seen to delay other work or the host)"
    doc += every if rows.height > 1 else ""
    return [*found, Metric("mean_wait_blocking_ns", blocking, "ns", doc=f"{doc}: at stake")]


def _late_share(late: Late) -> list[Metric]:
    if late.rank is None:
        return []
    doc = f"late share: part of all ranks' lateness that is {late.rank}'s"
    return [Metric("late_share_frac", late.share, "1", doc=doc)]


def _confidence(facts: Row, comm: Row, row: Row) -> Confidence:
    whole = comm["n_kernels"] / max(comm["n_ranks"], 1)
    why = [source_note(facts)] if row["provenance"] < 1 else []
    why += ["clocks of several reports aligned on collectives"] if comm["clock"] < 1 else []
    why += ["few observations"] if row["n"] < OBSERVATIONS_FOR_SURE else []
    return Confidence(
        coverage=min(1.0, comm["n_matched"] / max(whole, 1)),
        n=row["n"],
        n_hi=OBSERVATIONS_FOR_SURE,
        provenance=row["provenance"],
        clock=comm["clock"],
        why="; ".join(why),
    )


def _caveats(frames: Frames, facts: Row, comm: Row, row: Row, late: Late) -> tuple[str, ...]:
    notes = []
    if late.what == HOST_LATE:
        notes.append(
            "Recording itself delays launches, by about a microsecond or more a call: compare the"
            " step time with a run without the profiler before working on the host."
        )
    if comm["clock"] < 1:
        notes.append(
            "Clocks are aligned by the median difference of the ends of collectives, which ranks"
            " leave together; judged are the starts, so late ranks stay late. A clock that drifts"
            " during the recording would look like skew."
        )
    if row["first_skew_ns"]:
        notes.append(
            f"The first collective ({duration(row['first_skew_ns'])} of skew) is left out of sums"
            " and of step time: ranks do not start recording at one instant."
        )
    if not frames["ranks"]["rank_known"].all():
        notes.append(
            "Ranks are numbered by report and GPU: the library's own numbers were not recorded."
        )
    if facts["mad_ns"]:
        notes.append(
            f"Differences below {duration(3 * facts['mad_ns'])} between ranks count as zero."
        )
    return (*notes, *opaque_caveat(facts))


def _evidence(comm: Row, row: Row) -> tuple[Evidence, ...]:
    where = {"comm": comm["comm"], "op": row["op"]}
    settled = " (sums without the first collective)" if row["first_skew_ns"] else ""
    return (
        Evidence(
            "rank_waits", where, tuple(_WAIT_COLUMNS), f"Waiting by rank{settled}", _WAIT_COLUMNS
        ),
        Evidence(
            "lateness",
            where | {"step_group": row["step_group"], "weighty": True},
            tuple(_LATE_COLUMNS),
            "What late ranks did for longer than the earliest"
            f" ({'first collective left out; ' if row['first_skew_ns'] else ''}kinds that run at"
            " once each count)",
            _LATE_COLUMNS,
        ),
    )
