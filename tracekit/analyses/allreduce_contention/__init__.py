"""Collectives that move data more slowly while other work runs on their GPUs.

The time compared is the *transfer* of a collective, last end - latest start over its ranks, so
waiting for a late rank is not in it. Like is compared with like (communicator, operation, type,
size, kernel, grid), beside one kind of partner against alone; DRAM and NVLink samples over the
very transfers tell lack of bandwidth from lack of SMs.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.analyses._collectives import tables
from tracekit.analyses.allreduce_contention.chart import chart, tracks
from tracekit.analyses.allreduce_contention.verdict import verdict
from tracekit.trace import Trace
from tracekit.trace.analysis import Analysis, param
from tracekit.views.collectives.facts import comm_facts, raw_durations
from tracekit.views.collectives.kernels import peer_copies
from tracekit.views.collectives.matching import matching
from tracekit.views.contention.corunners import excess_attribution, slowed_compute
from tracekit.views.contention.groups import contention_groups
from tracekit.views.contention.loss import contention_excess, held_up, loss_felt, mechanisms
from tracekit.views.contention.windows import contention_windows, shared_time

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
        "collectives": contention_excess(trace).select(list(tables.CASE)).cast(tables.CASE),
        "windows": contention_windows(trace),
        "shared_time": shared_time(trace),
        "attribution": excess_attribution(trace),
        "slowed_compute": slowed_compute(trace),
        "raw_durations": raw_durations(trace),
        "peer_copies": peer_copies(trace),
        "held_up": held_up(trace),
        "loss_felt": loss_felt(trace),
    }


ANALYSIS = Analysis(
    name="allreduce_contention",
    question="Do collectives get slower while other work uses the GPU, and for want of what?",
    requires=("kernels",),
    params=Params,
    results=(
        tables.FACTS_TABLE,
        tables.COMMUNICATORS_TABLE,
        tables.MECHANISMS_TABLE,
        tables.GROUPS_TABLE,
        tables.CASES_TABLE,
        tables.WINDOWS_TABLE,
        tables.SHARED_TABLE,
        tables.ATTRIBUTION_TABLE,
        tables.SLOWED_TABLE,
        tables.RAW_TABLE,
        tables.COPIES_TABLE,
        tables.HELD_UP_TABLE,
        tables.LOSS_FELT_TABLE,
    ),
    compute=compute,
    verdict=verdict,
    chart=chart,
    tracks=tracks,
)
