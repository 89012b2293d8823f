"""Collectives that move data more slowly while other work runs on their GPUs.

The time compared is the *transfer* of a collective, last end - latest start over its ranks, so
waiting for a late rank is not in it. Like is compared with like (communicator, operation, type,
size, kernel, grid), overlapped by one kind of partner against alone; DRAM and NVLink samples over
these transfers show whether bandwidth or SMs are lacking.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.analyses.allreduce_contention.chart import chart, tracks
from tracekit.analyses.allreduce_contention.verdict import verdict
from tracekit.trace import Trace
from tracekit.trace.analysis import Analysis, param
from tracekit.views.collectives.facts import FACTS, RAW_DURATIONS, comm_facts, raw_durations
from tracekit.views.collectives.kernels import PEER_COPIES, peer_copies
from tracekit.views.collectives.matching import COMMUNICATORS, matching
from tracekit.views.contention.corunners import (
    ATTRIBUTION,
    SLOWED_COMPUTE,
    excess_attribution,
    slowed_compute,
)
from tracekit.views.contention.groups import GROUPS, contention_groups
from tracekit.views.contention.loss import (
    BLOCKING_LOSS,
    CASES,
    COMBINED_STAKE,
    MECHANISMS,
    blocking_loss,
    combined_stake,
    contention_excess,
    mechanisms,
)
from tracekit.views.contention.windows import SHARED_TIME, WINDOWS, contention_windows, shared_time

__all__ = ["ANALYSIS", "Params"]


@dataclass(frozen=True)
class Params:
    """Parameters of `allreduce_contention`."""

    slower_ratio: float = param(
        1.1, unit="x", help="lower end of the interval from which a slowdown counts"
    )
    critical_ratio: float = param(
        1.5, unit="x", help="lower end of the interval from which a slowdown may be critical"
    )
    warn_frac: float = param(0.01, unit="1", help="lost share of step time that is a warning")
    critical_frac: float = param(0.05, unit="1", help="lost share of step time that is critical")


def compute(trace: Trace, params: Params) -> dict[str, pl.DataFrame]:
    """Return the result frames of `allreduce_contention`."""
    del params
    return {
        "facts": comm_facts(trace),
        "communicators": matching(trace).communicators,
        "mechanisms": mechanisms(trace),
        "groups": contention_groups(trace),
        "collectives": CASES.select(contention_excess(trace)),
        "windows": contention_windows(trace),
        "shared_time": shared_time(trace),
        "attribution": excess_attribution(trace),
        "slowed_compute": slowed_compute(trace),
        "raw_durations": raw_durations(trace),
        "peer_copies": peer_copies(trace),
        "combined_stake": combined_stake(trace),
        "blocking_loss": blocking_loss(trace),
    }


ANALYSIS = Analysis(
    name="allreduce_contention",
    question="Do collectives get slower while other work uses the GPU, and what is scarce?",
    requires=("kernels",),
    params=Params,
    results=(
        FACTS,
        COMMUNICATORS,
        MECHANISMS,
        GROUPS,
        CASES,
        WINDOWS,
        SHARED_TIME,
        ATTRIBUTION,
        SLOWED_COMPUTE,
        RAW_DURATIONS,
        PEER_COPIES,
        COMBINED_STAKE,
        BLOCKING_LOSS,
    ),
    compute=compute,
    verdict=verdict,
    chart=chart,
    tracks=tracks,
)
