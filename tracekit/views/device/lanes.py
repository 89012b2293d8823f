"""The work of each GPU as arrays: what views that sweep over millions of rows share.

`activity` is sorted by GPU and start, so the rows of a GPU are a slice of it: its columns are used
in place, and a small table by queue and kind says which rows count for a question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.intervals import Intervals
from tracekit.numerics.rows import overlapping, shares
from tracekit.trace import Trace, view
from tracekit.views.device.activity import WORK_KIND, activity, queues
from tracekit.views.keys import row_numbers

__all__ = ["COMM_KINDS", "Lanes", "lanes"]

Bool: TypeAlias = NDArray[np.bool_]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]
UInt32: TypeAlias = NDArray[np.uint32]

COMM_KINDS = ("comm", "custom_comm")
_STREAM = ["report", "pid", "context", "stream"]


@dataclass(frozen=True)
class Lanes:
    """The rows of `activity` of one GPU.

    Attributes:
        first: Row of `activity` that is row 0 here.
        start: int64[n], ns, ascending.
        end: int64[n], ns.
        kind: uint8[n], index into `kinds`.
        kinds: Kinds of work (`WORK_KIND`), sorted.
        queue: uint32[n], row of `queues`.
        count: int64[number of queues, number of kinds], rows that have both.
        stream_of: int32[number of queues], number of the stream: one a (report, process, context,
            stream id).
        streams: Process and stream id of each stream, None where unknown.
        reports: Report of each stream.
    """

    first: int
    start: Int64
    end: Int64
    kind: UInt8
    kinds: tuple[str, ...]
    queue: UInt32
    count: Int64
    stream_of: Int32
    streams: tuple[tuple[int | None, int | None], ...]
    reports: tuple[int, ...]

    def busy_union(self, streams: Bool | None = None) -> Intervals:
        """Return when anything ran other than communication.

        Args:
            streams: bool[number of streams], whose work counts; None for all.
        """
        return shares.union_of(self.start, self.end, self.queue, self.kind, self._other(streams))

    def overlap_by_kind(
        self, windows: Intervals, streams: Bool | None = None
    ) -> tuple[Int64, dict[str, Int64]]:
        """Return for how long of each window anything ran other than communication.

        Args:
            windows: Starts and ends, int64[m] each, ns.
            streams: bool[number of streams], whose work counts; None for all.

        Returns:
            Time in all, and by kind of those kinds that have a row; int64[m] each, ns.
        """
        other = self._other(streams)
        present = np.flatnonzero((self.count * other).any(axis=0))
        lane = np.full(len(self.kinds), -1, np.int32)
        lane[present] = np.arange(present.size)
        lane_of = np.where(other, lane, np.int32(-1))
        found = shares.by_lane(self.start, self.end, self.queue, self.kind, lane_of, windows)
        names = (self.kinds[k] for k in present)
        return found[-1], dict(zip(names, found[:-1], strict=True))

    def overlap_time(self, windows: Intervals, streams: Bool | None = None) -> Int64:
        """Return the time in all of `overlap_by_kind`: int64[m], ns."""
        lane_of = np.where(self._other(streams), np.int32(0), np.int32(-1))
        found = shares.by_lane(self.start, self.end, self.queue, self.kind, lane_of, windows)
        whole: Int64 = found[-1]
        return whole

    def not_on(self, pid: int | None, stream: int | None) -> Bool:
        """Return which streams are others than one: bool[number of streams]."""
        return np.array([s != (pid, stream) for s in self.streams], np.bool_)

    def has_work(self, streams: Bool) -> bool:
        """Return whether anything other than communication ran on some streams.

        Args:
            streams: bool[number of streams].
        """
        return bool((self.count * self._other(streams)).any())

    def in_process(self, report: int, pid: int | None) -> Bool:
        """Return which streams are those of a process: bool[number of streams]."""
        own = [s[0] == pid and r == report for s, r in zip(self.streams, self.reports, strict=True)]
        return np.array(own, np.bool_)

    def overlapping_rows(self, windows: Intervals) -> Int64:
        """Return the rows other than communication that share time with a union, ascending."""
        return overlapping.overlapping_rows(
            self.start, self.end, self.queue, self.kind, self._other(None), windows
        )

    def waited_since(self, launch: Int64, ends: Int64, early_ns: int, late_ns: int) -> Int64:
        """Return `overlapping.waited_since` of anything other than communication.

        Args:
            launch: int64[n], ns, when each row was launched.
            ends: int64[m], ns.
            early_ns: Work may begin so long before an end and count as after it.
            late_ns: Longest time from an end to what waited for it.
        """
        own = (self.start, self.end, self.queue, self.kind, self._other(None), self.stream_of)
        return overlapping.waited_since(
            overlapping.Followers(*own, launch), ends, early_ns, late_ns
        )

    def stream_free(self, rows: Int64) -> Int64:
        """When the stream of some rows had finished everything before them.

        Args:
            rows: int64[m], ascending.

        Returns:
            int64[m], ns; the smallest int64 for the first row of a stream.
        """
        return shares.finished_before(self.end, self.queue, self.stream_of, rows)

    def _other_kind(self) -> Bool:
        return np.array([k not in COMM_KINDS for k in self.kinds], np.bool_)

    def _other(self, streams: Bool | None) -> Bool:
        """Which rows count, by queue and kind."""
        counts = (
            np.ones(self.stream_of.size, np.bool_) if streams is None else streams[self.stream_of]
        )
        return np.logical_and.outer(counts, self._other_kind())


@view
def lanes(trace: Trace) -> dict[int | None, Lanes]:
    """Return the work of each GPU, None for work of an unknown one."""
    work = activity(trace)
    kinds = tuple(WORK_KIND.categories)
    stream_of, table = row_numbers(queues(trace).select(_STREAM))
    streams = tuple(table.select("pid", "stream").rows())
    reports = tuple(table["report"])
    runs = work["gpu"].rle().struct.unnest() if work.height else None
    kind = work["kind"].to_physical().to_numpy()
    start, end, queue = (work[c].to_numpy() for c in ("start_ns", "end_ns", "queue"))
    found: dict[int | None, Lanes] = {}
    first = 0
    for n, gpu in () if runs is None else runs.rows():
        own = slice(first, first + n)
        count = overlapping.counted(queue[own], kind[own], stream_of.size, len(kinds))
        found[gpu] = Lanes(
            first,
            start[own],
            end[own],
            kind[own],
            kinds,
            queue[own],
            count,
            stream_of.astype(np.int32),
            streams,
            reports,
        )
        first += n
    return found
