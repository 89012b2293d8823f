"""Collectives that move data more slowly while other work runs on their GPUs.

The time compared is the *transfer* of a collective, last end - latest start over its ranks, so
waiting for a late rank is not in it. Like is compared with like (communicator, operation, type,
size, kernel, grid), beside one kind of partner against alone; DRAM and NVLink samples over the
very transfers tell lack of bandwidth from lack of SMs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from tracekit.analyses import _comm_tables as tables
from tracekit.analyses._contention_verdict import verdict
from tracekit.model.analysis import Analysis, Frames, param
from tracekit.model.trace import Trace
from tracekit.views.coll_instances import matching
from tracekit.views.collectives import peer_copies
from tracekit.views.comm_facts import comm_facts, raw_durations
from tracekit.views.contention import contention_groups
from tracekit.views.contention_loss import contention_excess, excess_attribution, mechanisms
from tracekit.views.contention_windows import contention_windows, shared_time
from tracekit.views.slowed_compute import slowed_compute

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


_VIEWS = (
    comm_facts,
    matching,
    mechanisms,
    contention_groups,
    contention_excess,
    contention_windows,
    shared_time,
    excess_attribution,
    slowed_compute,
    raw_durations,
    peer_copies,
)
_REQUIRES = ("kernels",)


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
    }


def plot(frames: Frames, axes: Any) -> None:
    """Draw transfer against overlap, one colour a state."""
    rows = frames["collectives"]
    for state, own in sorted(rows.partition_by("state", as_dict=True).items()):
        axes.scatter(own["overlap_frac"], own["transfer_ns"] / 1e3, s=12, label=str(state[0]))
    axes.set_xlabel("overlap with other work (share of the transfer)")
    axes.set_ylabel("transfer (us)")
    axes.set_yscale("log")
    if rows.height:
        axes.legend()


ANALYSIS = Analysis(
    name="allreduce_contention",
    question="Do collectives get slower while other work uses the GPU, and for want of what?",
    requires=_REQUIRES,
    uses=tuple(sorted(frozenset().union(*(v.uses for v in _VIEWS)) - set(_REQUIRES))),
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
    ),
    compute=compute,
    verdict=verdict,
    plot=plot,
)
