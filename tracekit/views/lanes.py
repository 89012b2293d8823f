"""The work of each GPU as arrays: what views that sweep over millions of rows share.

`activity` is sorted by GPU and start, so the rows of a GPU are a slice of it and its times are
used in place. Kinds and streams are small numbers here, and what ran beside a stream is a union a
kind, made in one pass instead of a filter and a sort each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.model.trace import Trace, view
from tracekit.numerics import intervals
from tracekit.numerics.intervals import Intervals
from tracekit.views.activity import WORK_KIND, activity, queues
from tracekit.views.keys import row_numbers

__all__ = ["COMM_KINDS", "NOTHING", "Beside", "Lanes", "lanes"]

Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]

COMM_KINDS = ("comm", "custom_comm")
_STREAM = ["report", "pid", "context", "stream"]


@dataclass(frozen=True)
class Beside:
    """Other work than communication, as unions.

    Attributes:
        all: The union of everything.
        by_kind: Kind to its union; only kinds that have a row.
    """

    all: Intervals
    by_kind: dict[str, Intervals]


NOTHING = Beside((np.zeros(0, np.int64), np.zeros(0, np.int64)), {})
"""What ran beside nothing."""


@dataclass(frozen=True)
class Lanes:
    """The rows of `activity` of one GPU.

    Attributes:
        first: Row of `activity` that is row 0 here.
        start: int64[n], ns, ascending.
        end: int64[n], ns.
        kind: uint8[n], index into `kinds`.
        kinds: Kinds of work (`WORK_KIND`), sorted.
        stream: int32[n], number of the stream: one a (report, process, context, stream id).
        streams: Process and stream id of each number, None where unknown.
        reports: Report of each number.
    """

    first: int
    start: Int64
    end: Int64
    kind: UInt8
    kinds: tuple[str, ...]
    stream: Int32
    streams: tuple[tuple[int | None, int | None], ...]
    reports: tuple[int, ...]

    def beside(self, streams: NDArray[np.bool_] | None = None) -> Beside:
        """Return what ran other than communication.

        Args:
            streams: bool[number of streams], whose work counts; None for all.
        """
        lane = np.where(self._other_kind()[self.kind], self.kind.astype(np.int32), np.int32(-1))
        if streams is not None:
            lane[~streams[self.stream]] = -1
        kinds = intervals.union_lanes(self.start, self.end, lane, len(self.kinds))
        seen = np.zeros(len(self.kinds) + 1, np.bool_)
        seen[lane] = True
        together = np.minimum(lane, 0)
        (whole,) = intervals.union_lanes(self.start, self.end, together, 1)
        by_kind = {k: u for k, u, any_row in zip(self.kinds, kinds, seen, strict=False) if any_row}
        return Beside(whole, by_kind)

    def beside_stream(self, pid: int | None, stream: int | None) -> Beside:
        """Return what ran other than communication and not on one stream."""
        return self.beside(np.array([s != (pid, stream) for s in self.streams], np.bool_))

    def beside_in_process(self, report: int, pid: int | None) -> Beside:
        """Return what one process ran other than communication."""
        return self.beside(self.in_process(report, pid))

    def in_process(self, report: int, pid: int | None) -> NDArray[np.bool_]:
        """Return which streams are those of a process: bool[number of streams]."""
        own = [s[0] == pid and r == report for s, r in zip(self.streams, self.reports, strict=True)]
        return np.array(own, np.bool_)

    def other_rows(self) -> Int64:
        """Return the rows other than communication."""
        return np.flatnonzero(self._other_kind()[self.kind])

    def rows_by_stream(self) -> Iterator[Int64]:
        """Yield the rows of each stream other than communication, in order; none is empty."""
        rows = self.other_rows()
        stream = self.stream[rows]
        for number in range(len(self.streams)):
            own = rows[stream == number]
            if own.size:
                yield own

    def stream_free(self) -> Int64:
        """When the stream of each row had finished everything before it.

        Returns:
            int64[n], ns; the smallest int64 for the first row of a stream.
        """
        return intervals.reached_before(self.end, self.stream, len(self.streams))

    def _other_kind(self) -> NDArray[np.bool_]:
        return np.array([k not in COMM_KINDS for k in self.kinds], np.bool_)


@view(of=[activity, queues])
def lanes(trace: Trace) -> dict[int | None, Lanes]:
    """Return the work of each GPU, None for work of an unknown one."""
    work = activity(trace)
    kinds = WORK_KIND.categories
    kind = work["kind"].to_physical().to_numpy()
    of_queue, table = row_numbers(queues(trace).select(_STREAM))
    stream = of_queue.astype(np.int32)[work["queue"].to_numpy()]
    pairs = tuple(table.select("pid", "stream").rows())
    reports = tuple(table["report"])
    runs = work["gpu"].rle().struct.unnest() if work.height else None
    found: dict[int | None, Lanes] = {}
    first = 0
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    for n, gpu in () if runs is None else runs.rows():
        own = slice(first, first + n)
        names = tuple(kinds)
        found[gpu] = Lanes(
            first, start[own], end[own], kind[own], names, stream[own], pairs, reports
        )
        first += n
    return found
