"""Findings on kernels and copies that a collective slows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from tracekit.analyses._collectives.wording import denominator, limits, partner_name
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import duration, ratio, share

__all__ = ["slowed"]

OBSERVATIONS_FOR_SURE = 20
_COLUMNS = (
    "name",
    "n_outside",
    "n_inside",
    "outside_ns",
    "inside_ns",
    "slowdown_ratio",
    "excess_ns",
)
Row = Mapping[str, Any]


def slowed(frames: Frames, facts: Row, params: Any) -> tuple[Finding, ...]:
    """Return one finding on work that takes longer inside collectives, if there is any.

    Args:
        frames: With ``slowed_compute``.
        facts: Row of ``facts``.
        params: Thresholds of `allreduce_contention`.
    """
    rows = frames["slowed_compute"].filter(pl.col("slowdown_lo_ratio") >= params.slower_ratio)
    span = facts["span_ns"] or 0
    excess = int(rows["excess_ns"].sum())
    excess_frac = excess / span if span else 0.0
    if excess_frac < params.warn_frac:
        return ()
    hidden = int(rows["hidden_ns"].sum())
    of = denominator(None, span)
    return (_slowed(rows.row(0, named=True), (excess, hidden), excess_frac, of, params),)


def _slowed(
    worst: Row, times: tuple[int, int], excess_frac: float, of: str, params: Any
) -> Finding:
    excess, hidden = times
    n = min(worst["n_inside"], worst["n_outside"])
    large = (
        worst["slowdown_lo_ratio"] >= params.critical_ratio and excess_frac >= params.critical_frac
    )
    return Finding(
        id="allreduce_contention/slowed_compute",
        level=Level.CRITICAL if large and hidden <= excess else Level.WARN,
        title=f"{partner_name(worst['kind'])} take {ratio(worst['slowdown_ratio'])} as long inside"
        f" collectives ({duration(worst['outside_ns'])} alone, {duration(worst['inside_ns'])}"
        f" overlapping): {duration(excess)} more, {share(excess_frac)} of {of}",
        metrics=_metrics(worst, times, excess_frac, of, n, params),
        at_stake_ns=excess,
        at_stake_frac=excess_frac,
        at_stake_of=of,
        confidence=Confidence(
            n=n, n_hi=OBSERVATIONS_FOR_SURE, provenance=0.6, why="collectives recognised by name"
        ),
        advice=_advice(excess, hidden),
        caveats=(
            "Associated with the collective, not proven to be caused by it.",
            "Only kernels of one name, grid and block are compared; time off the critical path"
            " costs nothing.",
        ),
        thresholds={
            "slowdown_ratio": (params.slower_ratio, params.critical_ratio),
            "excess_frac": (params.warn_frac, params.critical_frac),
        },
        evidence=(
            Evidence("slowed_compute", {}, _COLUMNS, "Work inside and outside of collectives"),
        ),
    )


def _metrics(
    worst: Row, times: tuple[int, int], excess_frac: float, of: str, n: int, params: Any
) -> tuple[Metric, ...]:
    excess, hidden = times
    gates = limits(params.warn_frac, params.critical_frac)
    lower_end = limits(params.slower_ratio, params.critical_ratio, ratio=True)
    return (
        Metric(
            "slowdown_ratio",
            worst["slowdown_ratio"],
            "x",
            worst["slowdown_lo_ratio"],
            worst["slowdown_hi_ratio"],
            n,
            f"slowdown: median inside over outside; level needs its lower end: {lower_end}",
        ),
        Metric(
            "excess_ns", excess, "ns", n=worst["n_inside"], doc="excess over the median outside"
        ),
        Metric(
            "excess_frac", excess_frac, "1", doc=f"excess, of {of}; level needs this too: {gates}"
        ),
        Metric("hidden_ns", hidden, "ns", doc="hidden: communication meanwhile"),
    )


def _advice(excess: int, hidden: int) -> str:
    if hidden > excess:
        return (
            f"The overlap still pays: it hides {duration(hidden)} of communication for"
            f" {duration(excess)} of slower work. Fewer channels for the collective, or overlapping"
            " it with work that needs less memory, may win part of that back."
        )
    return (
        f"The overlap does not pay: it hides {duration(hidden)} of communication and costs"
        f" {duration(excess)}. Run the collective after this work, or give it fewer channels."
    )
