"""The work of each GPU on one clock, which is what has gaps."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, clock_spans, queues

__all__ = ["Timeline", "timelines"]


class Timeline(NamedTuple):
    """The rows of `activity` of one GPU whose times can be compared.

    Attributes:
        gpu: Index of the GPU; None for work on a device that the report does not name.
        clock: See `clock_spans`.
        rows: uint32[n], rows of `activity`, ascending, or a slice of it.
    """

    gpu: int | None
    clock: int
    rows: slice | NDArray[np.uint32]

    def of(self, column: pl.Series) -> pl.Series:
        """Return a column of `activity` for this timeline's rows."""
        if isinstance(self.rows, slice):
            return column[self.rows]
        return column.gather(pl.Series(self.rows))

    def row(self, places: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return rows of `activity` for places in this timeline."""
        found: NDArray[np.uint32]
        if isinstance(self.rows, slice):
            found = (places + self.rows.start).astype(np.uint32)
        else:
            found = self.rows[places]
        return found

    def places(self, rows: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of rows of `activity` that are of this timeline.

        Args:
            rows: uint32[k], ascending.

        Returns:
            int64[j], places; int64[j], which of `rows` they are.
        """
        if isinstance(self.rows, slice):
            low, high = np.searchsorted(rows, [self.rows.start, self.rows.stop])
            found = np.arange(low, high)
            return rows[found].astype(np.int64) - self.rows.start, found
        found = np.flatnonzero(np.isin(rows, self.rows))
        return np.searchsorted(self.rows, rows[found]), found


@view
def timelines(trace: Trace) -> tuple[Timeline, ...]:
    """Return the timelines of all GPUs, an unknown one first, then by index and clock."""
    work, clocks = activity(trace), clock_spans(trace).select("report", "clock")
    gpus = work["gpu"].fill_null(-1).to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(gpus)) + 1).tolist(), gpus.size] if gpus.size else [0]
    parts = [slice(low, high) for low, high in itertools.pairwise(bounds)]
    named = [(work["gpu"][part.start], part) for part in parts]
    if clocks["clock"].n_unique() <= 1:
        clock = int(clocks["clock"][0]) if clocks.height else 0
        return tuple(Timeline(gpu, clock, part) for gpu, part in named)
    by_queue = queues(trace).select("report").join(clocks, on="report", how="left")
    clock_of = by_queue["clock"].fill_null(0).to_numpy()
    found = []
    for gpu, part in named:
        own = clock_of[work["queue"][part].to_numpy()]
        for clock in np.unique(own).tolist():
            rows = (np.flatnonzero(own == clock) + part.start).astype(np.uint32)
            found.append(Timeline(gpu, clock, rows))
    return tuple(found)
