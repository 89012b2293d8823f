"""Who comes late to collectives, and why, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from tracekit.analyses._collectives.wording import partner_name
from tracekit.trace.analysis import Frames
from tracekit.views.waiting.lateness import HOST_LATE, IDLE, QUEUED
from tracekit.wording.numbers import share, threshold

__all__ = ["ONE_RANK_LATE", "Late", "advice", "cause", "late_ranks"]

ONE_RANK_LATE = 0.7
"""Share of the lateness from which one rank is named instead of jitter."""
ALSO_FRAC = 0.1
"""Share of the lateness from which a second reason is worth a sentence."""
Row = Mapping[str, Any]
_BY = ("comm", "op", "step_group")


class Late(NamedTuple):
    """Lateness in one step group.

    Attributes:
        rank: Rank that is late most; None without lateness.
        share: Its part of the lateness of all ranks.
        n_last: How often it came last.
        n: Collectives.
        what: Largest reason, of that rank if it is `named`, else of all; None if unknown.
        extra: Part of the lateness (of that rank, or of all) attributed to the reason.
        idle: The same of `IDLE`.
        moves: Whether another rank comes last more often in another step group.
    """

    rank: str | None = None
    share: float | None = None
    n_last: int = 0
    n: int = 0
    what: str | None = None
    extra: float = 0.0
    idle: float = 0.0
    moves: bool = False

    @property
    def named(self) -> bool:
        """Whether one rank is behind most of the lateness."""
        return (self.share or 0.0) >= ONE_RANK_LATE


def late_ranks(frames: Frames, row: Row) -> Late:
    """Return who comes late how much of the time, and the largest reason for it.

    Args:
        frames: With ``lateness`` and ``rank_waits``.
        row: Row of ``skew``.
    """
    rows = _same(frames["lateness"], row, _BY)
    if rows.is_empty():
        return Late()
    ranks = rows.unique("late_rank_id", maintain_order=True)
    total, worst = int(ranks["late_ns"].sum()), ranks.row(0, named=True)
    late_frac = worst["late_ns"] / total if total else None
    if late_frac is not None and late_frac >= ONE_RANK_LATE:
        rows, total = rows.filter(pl.col("late_rank_id") == worst["late_rank_id"]), worst["late_ns"]
    causes = rows.group_by("what").agg(pl.col("extra_ns").sum())
    causes = causes.sort(["extra_ns", "what"], descending=[True, False])
    top = causes.row(0, named=True)
    known = bool(total) and top["extra_ns"] > 0
    waits = _same(frames["rank_waits"], row, _BY).filter(pl.col("rank") == worst["late_rank"])
    return Late(
        rank=worst["late_rank"],
        share=late_frac,
        n_last=int(waits["n_last"].sum()),
        n=int(waits["n"].sum()),
        what=top["what"] if known else None,
        extra=min(top["extra_ns"] / total, 1.0) if known else 0.0,
        idle=int(causes.filter(pl.col("what") == IDLE)["extra_ns"].sum()) / total if known else 0.0,
        moves=_moves(frames, row),
    )


def _same(frame: pl.DataFrame, row: Row, by: tuple[str, ...]) -> pl.DataFrame:
    return frame.filter(*(pl.col(c).eq_missing(pl.lit(row[c], pl.String)) for c in by))


def _moves(frames: Frames, row: Row) -> bool:
    """Whether step groups differ in the rank that comes last most often."""
    rows = _same(frames["rank_waits"], row, ("comm", "op"))
    rows = rows.sort("n_last", "rank_id", descending=[True, False])
    first = rows.unique("step_group", keep="first", maintain_order=True)
    return first["rank_id"].n_unique() > 1


def cause(late: Late) -> str:
    """Return who is late and why, for a headline."""
    most = f"whoever is late ({late.rank} most: {share(late.share)})"
    who = f"{late.rank} is late" if late.named else most
    of = f"{late.rank}'s lateness" if late.named else "all ranks' lateness"
    return f"{who}: {_reason(late)} ({share(late.extra)} of {of})"


def _reason(late: Late) -> str:
    if late.what == HOST_LATE:
        return "its host launches late"
    if late.what == QUEUED:
        return "it is ready, but other work holds its GPU"
    if late.what == IDLE:
        return "its GPU idles although work was launched"
    return f"its {partner_name(late.what)} take longer"


def advice(late: Late) -> str:
    """Return what to do about the lateness, in sentences."""
    if late.what is None:
        return "Look at what the late rank does before its collectives (table below)."
    also = ""
    if late.what != IDLE and late.idle >= ALSO_FRAC:
        also = (
            f" Another {share(late.idle)}: it idles although work was launched; look for waits on"
            " events of another stream."
        )
    return f"{_who(late)} {_remedy(late)}{also}"


def _who(late: Late) -> str:
    if late.named:
        return f"{str(late.rank).capitalize()} is late, the others wait."
    moves = "; in other step groups another rank" if late.moves else ""
    return (
        f"The ranks take turns being late ({late.rank} last at {late.n_last} of {late.n}, with"
        f" {share(late.share)} of the lateness{moves}): below {threshold(ONE_RANK_LATE, '1')} it"
        " is jitter, not one slow rank."
    )


def _remedy(late: Late) -> str:
    if late.what == HOST_LATE:
        return (
            "The late rank's GPU idles until its host launches the next kernel: cut launching work"
            " (CUDA graphs, fewer kernels), pin the launching threads to cores, keep other work off"
            " their Python thread. A faster link or smaller messages would not help."
        )
    if late.what == QUEUED:
        return (
            "Its collective was launched in time and found no room on its GPU: launch it before the"
            " work that holds the GPU, or give its stream a higher priority (findings on queueing"
            " name that work). A faster link would not help."
        )
    if late.what == IDLE:
        return (
            "The late rank's GPU has nothing runnable although work was launched: look for waits on"
            " events of another stream, and for launches that queue behind copies."
        )
    return (
        "Give it less of that work or find out why it takes longer there (overlapping work,"
        " clocks, batch split). A faster link would not help."
    )
