"""A table's chunks, decoded and put together on threads.

Importing this module imports Numba; it is imported when a large table is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.io.pages import chunks
from tracekit.io.pages import fields as f
from tracekit.io.pages.chunks import Chunk, Decoder, Room, choose
from tracekit.io.pages.frames import Columns
from tracekit.io.pages.plan import Plan, UnusualTableError
from tracekit.io.pages.reader import probe_counts

__all__ = ["Assembly"]


@dataclass(frozen=True)
class _Place:
    """Where a chunk belongs.

    Attributes:
        columns: Those of its frame.
        cells: Rows of the table that come before it in the frame.
        rows: Rows of the table that a frame is made of, roughly.
    """

    columns: Columns
    cells: int
    rows: int

    def after(self, cells: int, plan: Plan) -> _Place:
        """The place of the chunk behind one of so many rows."""
        end, most = self.cells + cells, self.columns.most_rows
        if end > most:
            msg = "more rows than row ids"
            raise UnusualTableError(msg)
        if end < self.rows:
            return _Place(self.columns, end, self.rows)
        return _Place(Columns(plan, most), 0, self.rows)


class Assembly:
    """Reads one table, some chunks ahead of what was handed out.

    Attributes:
        is_done: Whether the last frame has been handed out.
    """

    def __init__(
        self,
        geometry: NDArray[np.int64],
        leaves: NDArray[np.int64],
        plan: Plan,
        span: tuple[int | None, int | None],
        threads: int,
    ) -> None:
        """Divide a table into chunks.

        Args:
            geometry: See `fields`.
            leaves: Its pages, at least one.
            plan: What to decode.
            span: Smallest and largest row id.
            threads: Threads to decode on, and as many to settle texts or filtered rows on.
        """
        self._plan, self._threads = plan, threads
        geometry[f.ALONE] = leaves.size == 1
        page = self._page_bytes = int(geometry[f.PAGE])
        size = max(1, chunks.CHUNK_BYTES // page)
        self._parts = [leaves[start : start + size] for start in range(0, leaves.size, size)]
        most = page // 6 + 1
        self._most_chunk = size * most
        low, high = span
        # Row ids are distinct; those of a damaged tree may run backwards.
        ids = 0 if low is None or high is None else max(0, high - low + 1)
        self._most_rows = min(ids, leaves.size * most)
        self._decoders: SimpleQueue[Decoder] = SimpleQueue()
        self._rooms: SimpleQueue[Room] = SimpleQueue()
        self._settles = plan.is_filtered or plan.texts > 0
        for _ in range(min(threads, len(self._parts))):
            self._decoders.put(Decoder(geometry, plan, min(size, leaves.size)))
        self.is_done = False
        with ExitStack() as stack:
            self._decoding = stack.enter_context(ThreadPoolExecutor(threads))
            self._settling = stack.enter_context(ThreadPoolExecutor(threads))
            self._closing = stack.pop_all()

    def frames(self, rows: int) -> Iterator[tuple[pl.DataFrame, list[Chunk]]]:
        """Yield the table in pieces.

        Args:
            rows: Rows of the table that a frame comes from, roughly.

        Yields:
            Each frame with the chunks that it was made of, whose columns are gone.

        Raises:
            UnusualTableError: The pages hold something that is not handled.
        """
        last: int | None = None
        done: list[Chunk] = []
        settling = deque[Future[None]]()
        for number, (chunk, place) in enumerate(self._decoded(rows), 1):
            if last is not None and chunk.first_id <= last:
                msg = "row ids out of order"
                raise UnusualTableError(msg)
            last = chunk.last_id
            reserved = place.columns.reserve(chunk)
            if self._settles:
                settling.append(self._settling.submit(self._settle, place.columns, chunk, reserved))
            else:
                self._rooms.put(chunk.room)
            if len(settling) > self._threads:
                settling.popleft().result()
            done.append(chunk)
            if number == len(self._parts) or place.cells + chunk.cells >= rows:
                while settling:
                    settling.popleft().result()
                self.is_done = number == len(self._parts)
                yield place.columns.frame(), done
                done = []

    def __enter__(self) -> Self:
        """Return the assembly itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Wait for the threads."""
        self._closing.close()

    def _decoded(self, rows: int) -> Iterator[tuple[Chunk, _Place]]:
        """Yield the chunks in order, a few ahead of the consumer."""
        probes = probe_counts(len(self._parts))
        running: deque[tuple[Future[tuple[Chunk, _Place]], Future[_Place]]] = deque()
        most = min(self._most_rows, rows + self._most_chunk)
        before: Future[_Place] = Future()
        before.set_result(_Place(Columns(self._plan, most), 0, rows))
        try:
            for number, part in enumerate(self._parts):
                after: Future[_Place] = Future()
                decoding = self._decoding.submit(
                    self._decode, part, probes[number], number, before, after
                )
                running.append((decoding, after))
                before = after
                if len(running) > self._threads + 1:
                    yield running.popleft()[0].result()
            while running:
                yield running.popleft()[0].result()
        finally:
            for future, after in running:
                # Nobody may wait for a place that nobody will give.
                if future.cancel():
                    after.cancel()

    def _decode(
        self,
        leaves: NDArray[np.int64],
        probes: int,
        number: int,
        before: Future[_Place],
        after: Future[_Place],
    ) -> tuple[Chunk, _Place]:
        """Decode a chunk to the place that the chunk before left to it."""
        decoder = self._decoders.get()
        try:
            cells = decoder.load(leaves)
            place = before.result()
            after.set_result(place.after(cells, self._plan))
            room = self._room(cells, leaves.size)
            columns, start = place.columns, place.cells
            if self._plan.is_filtered:
                columns, start = room.columns, 0
            chosen = choose(cells, probes, number)
            return decoder.decode(leaves, cells, chosen, columns, start, room), place
        finally:
            self._decoders.put(decoder)
            after.cancel()  # If it is still open, there is no place for the chunks behind either.

    def _room(self, cells: int, pages: int) -> Room:
        try:
            room = self._rooms.get_nowait()
        except Empty:
            room = Room(self._plan)
        room.fit(cells, pages * self._page_bytes + 16)
        return room

    def _settle(self, columns: Columns, chunk: Chunk, place: tuple[int, int, int]) -> None:
        columns.settle(chunk, place)
        self._rooms.put(chunk.room)
