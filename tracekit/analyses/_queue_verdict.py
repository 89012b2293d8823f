"""Findings on collectives that were ready but did not start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from tracekit.analyses._comm_words import (
    amount,
    denominator,
    op_name,
    op_slug,
    partner_name,
    pct,
    time,
    whose,
)
from tracekit.model.analysis import (
    Confidence,
    Evidence,
    Finding,
    Frames,
    Level,
    Metric,
    Missing,
)

__all__ = ["queued"]

NAME = "collective_skew"
OBSERVATIONS_FOR_SURE = 20
QUEUE_PROV = 0.6
Row = Mapping[str, Any]
_UNSURE = (
    "A stream that waits for an event looks the same when the event comes from the work in front."
)
_INFERRED = "That room on the GPU was missing is inferred: the kernel was ready, others ran."
_NOTHING_WAITS = "Time is lost only where something waits for the collective."


def queued(frames: Frames, params: Any) -> tuple[Finding, ...]:
    """Return one finding per partner behind which ready collectives queue for long enough.

    Args:
        frames: With ``queueing`` and ``communicators``.
        params: Thresholds of `collective_skew`.
    """
    rows = frames["queueing"].filter(pl.col("queued_frac") >= params.warn_frac)
    return tuple(_queued(frames, row, params) for row in rows.iter_rows(named=True))


def _queued(frames: Frames, row: Row, params: Any) -> Finding:
    op, partners = op_name(row["op"]), partner_name(row["partner"])
    unsure = row["dependency"]
    slug = f"queued-{op_slug(row['op'])}-{(row['partner'] or 'other').replace(' ', '_')}"
    slug += "-event" if unsure else ""
    slug += f"-{row['comm']}" if frames["communicators"].height > 1 else ""
    return Finding(
        id=f"{NAME}/{slug}",
        level=Level.UNKNOWN if unsure or row["one_rank"] else Level.WARN,
        title=_title(frames, row),
        metrics=_metrics(row),
        at_stake_ns=row["queued_ns"],
        at_stake_frac=row["queued_frac"],
        at_stake_of=denominator(row["queued_group"]),
        confidence=Confidence(
            n=row["n"],
            n_hi=OBSERVATIONS_FOR_SURE,
            prov=QUEUE_PROV,
            why="what a kernel waits for is inferred from launches and streams",
        ),
        advice=f"The {op} was launched and its stream was free, but {partners} held the GPU: launch"
        " it before them, or give its stream a higher priority. This is neither waiting for a rank"
        " nor a slower transfer; both come on top.",
        caveats=(_UNSURE if unsure else _INFERRED, _NOTHING_WAITS),
        scope=(("communicator", row["comm"]), ("operation", op)),
        thresholds={"queued_frac": (params.warn_frac, None)},
        missing=_what_would_tell(row),
        evidence=(
            Evidence(
                "queueing",
                {"comm": row["comm"], "op": row["op"]},
                ("partner", "n", "n_all", "queued_median_ns", "queued_ns", "queued_frac"),
                "Ready collectives that did not start",
            ),
        ),
    )


def _title(frames: Frames, row: Row) -> str:
    tail = " or wait for an event of theirs (candidate)" if row["dependency"] else ""
    alone = " (candidate: on the only rank recorded)" if row["one_rank"] else ""
    return (
        f"{amount(row['n'], op_name(row['op']))}{whose(frames, row['comm'])} queue behind"
        f" {partner_name(row['partner'])}{tail}: ready but not started for a median of"
        f" {time(row['queued_median_ns'])}{alone}; {time(row['queued_ns'])} in all,"
        f" {pct(row['queued_frac'])} of {denominator(row['queued_group'])}"
    )


def _metrics(row: Row) -> tuple[Metric, ...]:
    share = f"queued, of {denominator(row['queued_group'])}"
    return (
        Metric(
            "queued_median_ns",
            row["queued_median_ns"],
            "ns",
            n=row["n"],
            doc="queued median, ready to start",
        ),
        Metric("queued_ns", row["queued_ns"], "ns", doc="queued in all, last rank of each"),
        Metric("queued_frac", row["queued_frac"], "1", doc=share),
        Metric("n_queued", row["n"], doc=f"n queued of {row['n_all']}"),
    )


def _what_would_tell(row: Row) -> tuple[Missing, ...]:
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
    return ()
