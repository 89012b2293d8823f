"""Ranks that wait for each other in collectives, and why the late one is late.

A rank that reaches a collective early spins inside its kernel until the last one has come: the
kernel looks long, yet nothing is slow but the late rank. A third thing, a collective that is ready
but finds no room on its GPU, is reported apart from both.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.analyses.collective_skew.chart import chart, time_parts
from tracekit.analyses.collective_skew.verdict import verdict
from tracekit.trace import Trace
from tracekit.trace.analysis import Analysis, param
from tracekit.views.collectives.facts import FACTS, RAW_DURATIONS, comm_facts, raw_durations
from tracekit.views.collectives.matching import COMMUNICATORS, matching
from tracekit.views.contention.loss import COMBINED_STAKE, combined_stake
from tracekit.views.waiting.lateness import LATENESS, lateness
from tracekit.views.waiting.queueing import QUEUEING, queueing
from tracekit.views.waiting.rank_waits import (
    RANK_WAITS,
    RANKS,
    SKEW,
    rank_labels,
    rank_waits,
    skews,
)

__all__ = ["ANALYSIS", "Params"]


@dataclass(frozen=True)
class Params:
    """Parameters of `collective_skew`."""

    warn_skew_ratio: float = param(
        0.2, unit="x", help="median skew over median transfer that is a warning"
    )
    critical_skew_ratio: float = param(
        1.0, unit="x", help="median skew over median transfer that is critical"
    )
    warn_frac: float = param(
        0.01, unit="1", help="share of a rank's step time spent waiting that is a warning"
    )
    critical_frac: float = param(
        0.05, unit="1", help="share of a rank's step time spent waiting that is critical"
    )


def compute(trace: Trace, params: Params) -> dict[str, pl.DataFrame]:
    """Return the result frames of `collective_skew`."""
    del params
    return {
        "facts": comm_facts(trace),
        "communicators": matching(trace).communicators,
        "ranks": rank_labels(trace),
        "rank_waits": rank_waits(trace),
        "skew": skews(trace),
        "lateness": lateness(trace),
        "queueing": queueing(trace),
        "raw_durations": raw_durations(trace),
        "combined_stake": combined_stake(trace),
    }


ANALYSIS = Analysis(
    name="collective_skew",
    question="Do ranks wait for each other in collectives, and what makes the late one late?",
    requires=("kernels",),
    params=Params,
    results=(
        FACTS,
        COMMUNICATORS,
        RANKS,
        RANK_WAITS,
        SKEW,
        LATENESS,
        QUEUEING,
        RAW_DURATIONS,
        COMBINED_STAKE,
    ),
    compute=compute,
    verdict=verdict,
    chart=chart,
    time_parts=time_parts,
)
