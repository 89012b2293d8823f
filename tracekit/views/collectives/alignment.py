"""Clocks of several reports of one run, brought together on the collectives that they share.

Wall-clock starts come first; they may be off by milliseconds between hosts. The ends of a
collective are nearly simultaneous on its ranks, so the median of their differences refines the
offset and the MAD is its error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.inputs import Alignment
from tracekit.numerics.clocks import best_shift, mad
from tracekit.trace import Trace
from tracekit.views.collectives.kernels import SYNCHRONOUS_OPS, collectives

__all__ = ["MIN_MATCHED", "align"]

MIN_MATCHED = 5
"""Fewer shared collectives do not align two clocks."""
_MAX_MAD_OF_PERIOD = 0.25
"""Ends that scatter by more than this share of the time between collectives are no match."""
Ends = Mapping[str, NDArray[np.int64]]


def align(traces: Sequence[Trace]) -> tuple[Alignment, ...]:
    """Find what to subtract from each report's times to be on the clock of the first.

    Args:
        traces: One trace a report, each of one report, times as recorded.

    Returns:
        One `Alignment` a report, in order. ``collectives``: aligned, error known. ``utc``: only
        the wall-clock starts are known, so nothing may be claimed across reports. ``none``: not
        even those; the offset is 0.
    """
    reference = traces[0]
    ends = [_ends(trace) for trace in traces]
    found = [Alignment(0, 0, None, 0, "one session")]
    for index in range(1, len(traces)):
        differences = _differences(ends[0], ends[index])
        regular = differences.size >= MIN_MATCHED and _is_regular(differences, ends[0], ends[index])
        wall = _wall_offset(reference, traces[index])
        found.append(_chosen(index, differences, wall, regular=regular))
    return tuple(found)


def _wall_offset(reference: Trace, trace: Trace) -> int | None:
    report, first = trace.reports[0], reference.reports[0]
    if report.utc_epoch_ns is None or first.utc_epoch_ns is None:
        return None
    return first.utc_epoch_ns - report.utc_epoch_ns


def _chosen(
    index: int, differences: NDArray[np.int64], wall: int | None, *, regular: bool
) -> Alignment:
    n = int(differences.size)
    if regular:
        offset = round(float(np.median(differences)))
        return Alignment(index, offset, mad(differences), n, "collectives")
    return Alignment(index, wall or 0, None, n, "none" if wall is None else "utc")


def _ends(trace: Trace) -> Ends:
    """Ends of each communicator's collectives on one rank of the report, ns, in sequence."""
    rows = collectives(trace).filter(pl.col("op").fill_null("AllReduce").is_in(SYNCHRONOUS_OPS))
    rows = rows.filter(pl.col("rank_id") == pl.col("rank_id").min().over("comm"))
    groups = rows.sort("comm", "seq").partition_by("comm", as_dict=True, maintain_order=True)
    return {str(comm): group["end_ns"].to_numpy() for (comm,), group in groups.items()}


def _differences(theirs: Ends, mine: Ends) -> NDArray[np.int64]:
    """End here - end there of every shared collective; communicators by id, else by order."""
    shared = sorted(theirs.keys() & mine.keys())
    known = [comm for comm in shared if not comm.startswith("~")]
    parts = [_pairs(theirs[comm], mine[comm]) for comm in known or shared]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _pairs(theirs: NDArray[np.int64], mine: NDArray[np.int64]) -> NDArray[np.int64]:
    if theirs.size == mine.size:
        return mine - theirs
    longer, shorter = (theirs, mine) if theirs.size > mine.size else (mine, theirs)
    shift = best_shift(longer, shorter)
    if shift is None:
        return np.zeros(0, np.int64)
    stretch = longer[shift.start : shift.start + shorter.size]
    return shorter - stretch if shorter is mine else stretch - shorter


def _is_regular(differences: NDArray[np.int64], *sides: Ends) -> bool:
    """Whether the differences scatter less than the collectives of either side are apart."""
    periods = []
    for ends in sides:
        steps = [np.diff(np.sort(times)) for times in ends.values() if times.size > 1]
        if not steps:
            return False
        periods.append(float(np.median(np.concatenate(steps))))
    return mad(differences) <= _MAX_MAD_OF_PERIOD * min(periods)
