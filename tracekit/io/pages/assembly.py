"""A table's chunks, decoded and put together on threads.

Importing this module imports Numba; it is imported when a large table is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.io.pages import chunks
from tracekit.io.pages import fields as f
from tracekit.io.pages.checks import probe_counts
from tracekit.io.pages.chunks import Chunk, Decoder, Room
from tracekit.io.pages.frames import Columns
from tracekit.io.pages.plan import Plan, UnusualTableError

__all__ = ["Assembly"]


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
            threads: Threads to decode on, and as many to copy on.
        """
        self._plan, self._threads = plan, threads
        geometry[f.ALONE] = leaves.size == 1
        page = int(geometry[f.PAGE])
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
        for _ in range(min(threads, len(self._parts))):
            self._decoders.put(Decoder(geometry, plan, min(size, leaves.size)))
        self.is_done = False
        with ExitStack() as stack:
            self._decoding = stack.enter_context(ThreadPoolExecutor(threads))
            self._copying = stack.enter_context(ThreadPoolExecutor(threads))
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
        most = min(self._most_rows, rows + self._most_chunk)
        columns, copies = Columns(self._plan, most), deque[Future[None]]()
        for number, chunk in enumerate(self._decoded(), 1):
            if last is not None and chunk.first_id <= last:
                msg = "row ids out of order"
                raise UnusualTableError(msg)
            last = chunk.last_id
            if columns.rows + chunk.rows > most:
                msg = "more rows than row ids"
                raise UnusualTableError(msg)
            copies.append(self._copying.submit(self._copy, columns, chunk, columns.reserve(chunk)))
            if len(copies) > self._threads:
                copies.popleft().result()
            done.append(chunk)
            if number == len(self._parts) or sum(part.cells for part in done) >= rows:
                while copies:
                    copies.popleft().result()
                self.is_done = number == len(self._parts)
                yield columns.frame(), done
                columns, done = Columns(self._plan, most), []

    def __enter__(self) -> Self:
        """Return the assembly itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Wait for the threads."""
        self._closing.close()

    def _decoded(self) -> Iterator[Chunk]:
        """Yield the chunks in order, a few ahead of the consumer."""
        probes = probe_counts(len(self._parts))
        running: deque[Future[Chunk]] = deque()
        try:
            for number, part in enumerate(self._parts):
                running.append(self._decoding.submit(self._decode, part, probes[number], number))
                if len(running) > self._threads + 1:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()

    def _decode(self, leaves: NDArray[np.int64], probes: int, seed: int) -> Chunk:
        decoder = self._decoders.get()
        try:
            room = self._rooms.get_nowait()
        except Empty:
            room = Room(self._plan)
        try:
            return decoder.decode(leaves, probes, seed, room)
        finally:
            self._decoders.put(decoder)

    def _copy(self, columns: Columns, chunk: Chunk, place: tuple[int, int, int]) -> None:
        columns.copy(chunk, place)
        self._rooms.put(chunk.room)
