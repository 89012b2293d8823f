"""Idle gaps of every GPU, and the launch of the operation that ends each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.idle import gaps as found_gaps
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, device_ids
from tracekit.views.idle.timelines import timelines

__all__ = ["GapRows", "gap_rows"]


class GapRows(NamedTuple):
    """The idle gaps of all timelines, one after the other.

    Attributes:
        timeline: int32[k], which of `timelines` each is of; ascending.
        start: int64[k], ns, ascending within a timeline.
        end: int64[k], ns.
        before: uint32[k], row of `activity` with the latest end before the gap.
        after: uint32[k], row of `activity` that ends it.
    """

    timeline: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    before: NDArray[np.uint32]
    after: NDArray[np.uint32]

    def of(self, number: int) -> slice:
        """Return where the gaps of one timeline are."""
        low, high = np.searchsorted(self.timeline, [number, number + 1])
        return slice(int(low), int(high))


@view
def gap_rows(trace: Trace) -> GapRows:
    """Return the maximal intervals in which nothing ran, by GPU."""
    work, ids = activity(trace), device_ids(trace)
    last = np.iinfo(np.uint32).max
    parts = []
    for number, line in enumerate(timelines(trace)):
        start, end = (line.of(work[c]).to_numpy() for c in ("start_ns", "end_ns"))
        tie = line.of(ids.correlation).fill_null(last).to_numpy()
        found = found_gaps.gaps(start, end, tie)
        own = np.full(found.start.size, number, np.int32)
        rows = line.row(found.before), line.row(found.after)
        parts.append((own, found.start, found.end, *rows))
    if not parts:
        none = np.empty(0, np.int64)
        return GapRows(none.astype(np.int32), none, none, *2 * (none.astype(np.uint32),))
    return GapRows(*(np.concatenate(c) for c in zip(*parts, strict=True)))
