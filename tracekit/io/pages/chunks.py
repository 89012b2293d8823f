"""Chunks of leaf pages: decode one.

Importing this module imports Numba; it is imported when a large table is read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracekit.io.pages import fields as f
from tracekit.io.pages import kernels, tree
from tracekit.io.pages.frames import Columns
from tracekit.io.pages.plan import Plan, UnusualTableError

__all__ = ["CHUNK_BYTES", "Chunk", "Decoder", "Room", "choose", "find_leaves"]

CHUNK_BYTES = 4 << 20
"""Size of the leaf pages that are decoded at a time."""

MOST_LAYOUTS = 16384
DEEPEST_TREE = 20


def find_leaves(geometry: NDArray[np.int64], root: int) -> NDArray[np.int64]:
    """Walk a table's B-tree down to its leaves.

    Args:
        geometry: See `fields`.
        root: The table's root page.

    Returns:
        int64[leaves]: their page numbers, in the order of the row ids.

    Raises:
        UnusualTableError: The tree is damaged, or no table tree.
    """
    pages = np.array([root], np.int64)
    leaf = np.empty(f.LEAD + int(geometry[f.PAGE]) + f.TAIL, np.uint8)
    alone = geometry.copy()
    alone[f.ALONE] = 1
    for _ in range(DEEPEST_TREE):
        if tree.load_leaves(alone, pages[:1].copy(), leaf) >= 0:
            return pages
        most = pages.size * (int(geometry[f.USABLE]) // 6 + 1)
        below = np.empty(min(most, int(geometry[f.PAGES])) + 1, np.int64)
        found = tree.children(geometry, pages, below)
        if found < 0:
            break
        pages = below[:found].copy()
    msg = "not a whole table B-tree"
    raise UnusualTableError(msg)


class Room:
    """Memory for what a chunk does not store in place, used for one chunk after another.

    Attributes:
        columns: Memory for the columns, where they have no place yet.
        entries: int64: where each text begins in `text`.
        text: uint8: texts.
    """

    def __init__(self, plan: Plan) -> None:
        """Start without memory; `fit` allocates it."""
        self._plan = plan
        self.columns = Columns(plan, 0)
        self.text = np.empty(0, np.uint8)
        self.entries = np.empty(0, np.int64)

    def fit(self, cells: int, text_bytes: int) -> None:
        """Make sure that there is room.

        Args:
            cells: Rows of the chunk.
            text_bytes: Bytes of text to begin with.
        """
        plan = self._plan
        if plan.texts and self.text.size < text_bytes:
            self.text = np.empty(text_bytes, np.uint8)
        if plan.texts and self.entries.size < cells * plan.texts + 2:
            self.entries = np.empty((cells + cells // 8) * plan.texts + 2, np.int64)
        if plan.is_filtered and self.columns.most_rows < cells:
            self.columns = Columns(plan, cells + cells // 8)


def count_rows(geometry: NDArray[np.int64], root: int, threads: int) -> int:
    """Count a table's rows by the headers of its leaves.

    Args:
        geometry: See `fields`.
        root: The table's root page.
        threads: Threads to count on.

    Raises:
        UnusualTableError: The tree is damaged, or no table tree.
    """
    leaves = find_leaves(geometry, root)
    geometry = geometry.copy()
    geometry[f.ALONE] = leaves.size == 1
    with ThreadPoolExecutor(threads) as pool:
        counts = pool.map(
            lambda part: tree.count_cells(geometry, part), np.array_split(leaves, threads)
        )
        return sum(map(_checked, counts))


@dataclass
class Chunk:
    """The result of decoding some neighbouring leaves.

    Attributes:
        cells: Rows of the table in it.
        rows: Rows that passed the filters.
        first_id: Row id of its first row.
        last_id: Row id of its last row.
        room: Holds the texts, and the columns if they are not in place.
        texts: Number of distinct texts.
        text_used: Bytes of them, each with a zero byte after it.
        losses: int64[2, slots]; see `fields`.
        probes: int64[probes, 3]; see `fields`.
    """

    cells: int
    rows: int
    first_id: int
    last_id: int
    room: Room
    texts: int
    text_used: int
    losses: NDArray[np.int64]
    probes: NDArray[np.int64]

    def nulls(self, slot: int) -> int:
        """Return how many values of a slot are null."""
        return int(self.losses[f.NULLS, slot])


class Decoder:
    """Memory for decoding chunks of one plan, one after another; not for two threads at once."""

    def __init__(self, geometry: NDArray[np.int64], plan: Plan, pages: int) -> None:
        """Allocate for chunks of so many pages.

        Args:
            geometry: See `fields`.
            plan: What to decode.
            pages: Most pages of a chunk.
        """
        self._geometry, self._plan = geometry, plan
        page, slots = int(geometry[f.PAGE]), plan.slot_fields.shape[0]
        most_cells = page // 6 + 1
        layouts = MOST_LAYOUTS + most_cells
        self._buffer = np.empty(f.LEAD + pages * page + f.TAIL, np.uint8)
        self._buffer[: f.LEAD] = 0
        self._layouts = np.zeros((layouts, slots + 1, f.LAYOUT_FIELDS), np.int64)
        self._heads = np.zeros((layouts, f.HEAD_FIELDS), np.int64)
        self._index = np.zeros(1 << f.INDEX_BITS, np.int64)
        self._cells = np.empty((3, f.BATCH_CELLS + most_cells), np.int64)
        self._seen = np.empty((1 << f.SEEN_BITS, f.SEEN_BYTES // 8), np.int64)

    def load(self, leaves: NDArray[np.int64]) -> int:
        """Read a chunk from the file.

        Args:
            leaves: Its pages.

        Returns:
            Rows of the table in it.

        Raises:
            UnusualTableError: Some page is no leaf.
        """
        return _checked(tree.load_leaves(self._geometry, leaves, self._buffer))

    def decode(
        self,
        leaves: NDArray[np.int64],
        cells: int,
        chosen: NDArray[np.int64],
        columns: Columns,
        start: int,
        room: Room,
    ) -> Chunk:
        """Decode the chunk that was loaded.

        Args:
            leaves: Its pages.
            cells: From `load`.
            chosen: int64[probes, 3]: the rows to report; see `choose`.
            columns: Receives the columns.
            start: Row of them at which the chunk begins.
            room: Receives the texts.

        Returns:
            The decoded chunk.

        Raises:
            UnusualTableError: The pages hold something that the kernels do not handle.
        """
        plan = self._plan
        fields = plan.slot_fields.copy()
        columns.place(fields, start)
        losses = np.zeros((2, fields.shape[0]), np.int64)
        counters = np.zeros(f.COUNTERS, np.int64)
        counters[f.LAST_ID] = f.NO_ID
        if plan.texts:
            self._seen[:, 0] = 0
        room.text, code = kernels.decode(
            self._geometry,
            leaves,
            self._buffer,
            plan.slots,
            fields,
            plan.filters,
            plan.members,
            chosen,
            self._layouts,
            self._heads,
            self._index,
            self._cells,
            losses,
            room.entries,
            self._seen,
            room.text,
            counters,
        )
        _checked(code)
        return Chunk(
            cells=cells,
            rows=int(counters[f.ROWS]),
            first_id=int(counters[f.FIRST_ID]),
            last_id=int(counters[f.LAST_ID]),
            room=room,
            texts=int(counters[f.TEXTS]),
            text_used=int(counters[f.TEXT_USED]),
            losses=losses,
            probes=chosen,
        )


def choose(cells: int, probes: int, seed: int) -> NDArray[np.int64]:
    """Choose the probes of a chunk at random.

    Args:
        cells: Rows of the chunk.
        probes: Number of rows whose row ids to report.
        seed: Seed of the choice.

    Returns:
        int64[probes, 3]: the probes, their answers open; see `fields`.
    """
    chosen = np.zeros((min(probes, cells), 3), np.int64)
    if chosen.size:
        order = np.random.default_rng(seed).choice(cells, chosen.shape[0], replace=False)
        chosen[:, f.ORDINAL] = np.sort(order)
    return chosen


def _checked(code: int) -> int:
    if code < 0:
        raise UnusualTableError(f.REASONS[code])
    return int(code)
