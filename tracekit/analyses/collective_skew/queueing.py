"""Findings on collectives that were ready but did not start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from tracekit.analyses._collectives.wording import (
    FEW,
    combined_stake_note,
    communicator_label,
    denominator,
    denominator_of_run,
    limits,
    operation_name,
    operation_slug,
    partner_name,
)
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import count_of, duration, share

__all__ = ["queued"]

NAME = "collective_skew"
OBSERVATIONS_FOR_SURE = 20
QUEUE_PROVENANCE = 0.6
Row = Mapping[str, Any]
_UNSURE = (
    "A stream that waits for an event looks the same when the event comes from the work in front."
)
_INFERRED = "That room on the GPU was missing is inferred: the kernel was ready, others ran."
_DELAYED = (
    "Work counts as delayed when it had been launched, its stream had nothing else to do, and it"
    " began within 10 us after the collective (a host call: returned within 20 us). Waits of other"
    " kinds, or outside this recording, are not seen."
)
_COLUMNS = {
    "partner": "behind",
    "n": "n queued",
    "n_all": "of n",
    "queued_median_ns": "median queued",
    "queued_ns": "queued in all",
    "queued_frac": "queued share",
    "blocking_ns": "blocking",
}


def queued(frames: Frames, facts: Row, params: Any) -> tuple[Finding, ...]:
    """Return one finding per partner behind which ready collectives queue for long enough.

    Queueing costs time only where something waits for the collective: a finding is a warning, and
    has time at stake, only as far as that is seen.

    Args:
        frames: With ``queueing``, ``combined_stake`` and ``communicators``.
        facts: Row of ``facts``.
        params: Thresholds of `collective_skew`.
    """
    rows = frames["queueing"].filter(pl.col("queued_frac") >= params.warn_frac)
    return tuple(_queued(frames, facts, row, params) for row in rows.iter_rows(named=True))


def _level(row: Row, params: Any) -> Level:
    if row["dependency"] or row["one_rank"]:
        return Level.UNKNOWN
    if (row["blocking_frac"] or 0.0) < params.warn_frac:
        return Level.OK
    return Level.UNKNOWN if row["n"] < FEW else Level.WARN


def _queued(frames: Frames, facts: Row, row: Row, params: Any) -> Finding:
    op, level = operation_name(row["op"]), _level(row, params)
    slug = f"queued-{operation_slug(row['op'])}-{(row['partner'] or 'other').replace(' ', '_')}"
    slug += "-event" if row["dependency"] else ""
    slug += f"-{row['comm']}" if frames["communicators"].height > 1 else ""
    claimed = level is Level.WARN
    whole = row["blocking_ns"] / row["blocking_frac"] if row["blocking_frac"] else None
    return Finding(
        id=f"{NAME}/{slug}",
        level=level,
        title=_title(frames, row, level),
        metrics=_metrics(row, params),
        at_stake_ns=row["blocking_ns"] if claimed else None,
        at_stake_frac=row["blocking_frac"] if claimed else None,
        at_stake_of=denominator_of_run(facts, whole) if claimed else "",
        confidence=Confidence(
            n=row["n"],
            n_hi=OBSERVATIONS_FOR_SURE,
            provenance=QUEUE_PROVENANCE,
            why="what a kernel waits for is inferred from launches and streams"
            + ("; few observations" if row["n"] < OBSERVATIONS_FOR_SURE else ""),
        ),
        advice=_advice(frames, row, claimed=claimed),
        caveats=(_UNSURE if row["dependency"] else _INFERRED, _DELAYED),
        scope=(("communicator", row["comm"]), ("operation", op)),
        thresholds={"blocking_frac": (params.warn_frac, None)},
        missing=_what_would_tell(row, level),
        evidence=(
            Evidence(
                "queueing",
                {"comm": row["comm"], "op": row["op"]},
                tuple(_COLUMNS),
                "Ready collectives that did not start",
                _COLUMNS,
            ),
        ),
    )


def _title(frames: Frames, row: Row, level: Level) -> str:
    tail = " or wait for an event of theirs (candidate)" if row["dependency"] else ""
    alone = " (candidate: on the only rank recorded)" if row["one_rank"] else ""
    whole = denominator(row["queued_group"], row["queued_of_ns"])
    few = level is Level.UNKNOWN and not tail and not alone
    what = count_of(row["n"], operation_name(row["op"]))
    return (
        f"{'hint, too few to judge: ' if few else ''}{what}"
        f"{communicator_label(frames, row['comm'])} of {row['n_all']} queue behind"
        f" {partner_name(row['partner'])}{tail}: ready but not started for a median of"
        f" {duration(row['queued_median_ns'])}{alone}, {duration(row['queued_ns'])} in all,"
        f" {share(row['queued_frac'])} of {whole}; {_cost(row)}"
    )


def _cost(row: Row) -> str:
    if not row["blocking_ns"]:
        return "nothing is seen to wait for them, so it may cost nothing"
    return (
        f"other work or the host is seen to wait for them for {duration(row['blocking_ns'])} of it"
    )


def _advice(frames: Frames, row: Row, *, claimed: bool) -> str:
    op, partners = operation_name(row["op"]), partner_name(row["partner"])
    doing = (
        f"The {op} was launched and its stream free, but {partners} held the GPU: launch it before"
        " them or raise its stream's priority to start it sooner (not to run faster meanwhile)."
    )
    own = row["blocking_ns"] if claimed else 0
    gain = "Little" if row["blocking_ns"] else "Nothing"
    first = "" if claimed else f"{gain} to gain is seen unless the program waits for it elsewhere. "
    rest = (
        " This is neither waiting for a rank nor a slower transfer; what other ranks wait for it is"
        " in the finding on waiting ranks."
    )
    return f"{first}{doing}{rest} {combined_stake_note(frames, row['comm'], own)}".rstrip()


def _metrics(row: Row, params: Any) -> tuple[Metric, ...]:
    whole = denominator(row["queued_group"], row["queued_of_ns"])
    return (
        Metric(
            "queued_median_ns",
            row["queued_median_ns"],
            "ns",
            n=row["n"],
            doc="queued median, ready to start",
        ),
        Metric("queued_ns", row["queued_ns"], "ns", doc="queued in all, last rank of each"),
        Metric("queued_frac", row["queued_frac"], "1", doc=f"queued, of {whole}"),
        Metric(
            "blocking_ns",
            row["blocking_ns"],
            "ns",
            doc="blocking: part that was seen to delay other work or the host",
        ),
        Metric(
            "blocking_frac",
            row["blocking_frac"],
            "1",
            doc=f"blocking, as a share; level by this: {limits(params.warn_frac, None)}",
        ),
        Metric("n_queued", row["n"], doc=f"n queued of {row['n_all']}"),
    )


def _what_would_tell(row: Row, level: Level) -> tuple[Missing, ...]:
    if row["one_rank"]:
        return (
            Missing(
                "the other ranks: one of them may have been later still, then this lag costs"
                " nothing",
                command="tracekit analyze rank0.sqlite rank1.sqlite",
            ),
        )
    if row["dependency"]:
        return (Missing("a run without that event wait, or the program's own knowledge of it"),)
    if level is Level.UNKNOWN:
        return (Missing(f"a longer recording: at least {FEW} that queue"),)
    return ()
