"""Chunks of leaf pages: decode one, and put several together as a frame.

Importing this module imports Numba; it is imported when a large table is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.io.cells import INTEGER_RANGES
from tracekit.io.pages import fields as f
from tracekit.io.pages import kernels, walk
from tracekit.io.pages.arrow import number_series, text_series
from tracekit.io.pages.plan import Plan, UnusualTableError

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = ["CHUNK_BYTES", "Chunk", "Decoder", "find_leaves", "frame_of"]

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
        if walk.load_leaves(alone, pages[:1].copy(), leaf) >= 0:
            return pages
        most = pages.size * (int(geometry[f.USABLE]) // 6 + 1)
        below = np.empty(min(most, int(geometry[f.PAGES])) + 1, np.int64)
        found = walk.children(geometry, pages, below)
        if found < 0:
            break
        pages = below[:found].copy()
    msg = "not a whole table B-tree"
    raise UnusualTableError(msg)


@dataclass
class Chunk:
    """The result of decoding some neighbouring leaves.

    Attributes:
        number: Place in the table.
        cells: Rows of the table in it.
        rows: Rows that passed the filters.
        first_id: Row id of its first row.
        last_id: Row id of its last row.
        columns: Per slot, uint8: the stored bytes, or None if nothing is stored.
        nulls: uint8[slots, rows]: 1 where null.
        text: uint8: what long text refers to.
        losses: int64[2, slots]; see `fields`.
        probes: int64[probes, 3]; see `fields`.
    """

    number: int
    cells: int
    rows: int
    first_id: int
    last_id: int
    columns: list[NDArray[np.uint8] | None]
    nulls: NDArray[np.uint8]
    text: NDArray[np.uint8]
    losses: NDArray[np.int64]
    probes: NDArray[np.int64]


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
        self._layouts = np.zeros((layouts, slots, f.LAYOUT_FIELDS), np.int64)
        self._heads = np.zeros((layouts, f.HEAD_FIELDS), np.int64)
        self._keys = np.zeros((layouts, 4), np.uint64)
        self._index = np.zeros(1 << f.INDEX_BITS, np.int64)
        self._cells = np.empty((most_cells, 3), np.int64)
        self._seen = np.empty((1 << f.SEEN_BITS, 3), np.int64)
        self._next_layout = 1

    def decode(self, number: int, leaves: NDArray[np.int64], probes: int, seed: int) -> Chunk:
        """Decode a chunk.

        Args:
            number: Place of the chunk in the table.
            leaves: Its pages.
            probes: Number of rows, chosen at random, whose row ids to report.
            seed: Seed of the choice.

        Returns:
            The decoded chunk.

        Raises:
            UnusualTableError: The pages hold something that the kernels do not handle.
        """
        cells = _checked(walk.load_leaves(self._geometry, leaves, self._buffer))
        plan = self._plan
        fields, arena = _arena(plan.slot_fields, cells)
        slots = fields.shape[0]
        nulls, losses = np.zeros((slots, cells), np.uint8), np.zeros((2, slots), np.int64)
        text = np.empty(leaves.size * int(self._geometry[f.PAGE]) + 16, np.uint8)
        chosen = np.zeros((min(probes, cells), 3), np.int64)
        if chosen.size:
            order = np.random.default_rng(seed).choice(cells, chosen.shape[0], replace=False)
            chosen[:, f.ORDINAL] = np.sort(order)
        counters = np.zeros(f.COUNTERS, np.int64)
        counters[f.LAST_ID] = f.NO_ID
        counters[f.LAYOUTS], counters[f.CHUNK] = self._next_layout, number
        self._seen[:, 1] = -1
        memory = (self._layouts, self._heads, self._keys, self._index)
        text, code = kernels.decode(
            self._geometry,
            leaves,
            self._buffer,
            plan.slots,
            fields,
            plan.filters,
            plan.members,
            chosen,
            *memory,
            self._cells,
            arena,
            nulls,
            losses,
            self._seen,
            text,
            counters,
        )
        _checked(code)
        self._next_layout = int(counters[f.LAYOUTS])
        rows = int(counters[f.ROWS])
        return Chunk(
            number=number,
            cells=cells,
            rows=rows,
            first_id=int(counters[f.FIRST_ID]),
            last_id=int(counters[f.LAST_ID]),
            columns=_columns(fields, arena, rows, trim=2 * rows < cells),
            nulls=nulls[:, :rows],
            text=text[: counters[f.TEXT_USED]],
            losses=losses,
            probes=chosen,
        )


def _checked(code: int) -> int:
    if code < 0:
        raise UnusualTableError(f.REASONS[code])
    return int(code)


def _arena(
    slot_fields: NDArray[np.int64], cells: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Room for every stored slot, and the slots' fields with their places in it."""
    placed, size = slot_fields.copy(), 0
    for slot in placed:
        slot[f.BYTE0] = size
        # Eight bytes more, because the last value is stored as eight; then to a cache line.
        size += (cells * int(slot[f.WIDTH]) + 8 + 63) // 64 * 64
    return placed, np.empty(size, np.uint8)


def _columns(
    fields: NDArray[np.int64], arena: NDArray[np.uint8], rows: int, *, trim: bool
) -> list[NDArray[np.uint8] | None]:
    columns: list[NDArray[np.uint8] | None] = []
    for slot in fields:
        start, width = int(slot[f.BYTE0]), int(slot[f.WIDTH])
        part = arena[start : start + rows * width]
        columns.append(None if width == 0 else part.copy() if trim else part)
    return columns


def frame_of(chunks: Sequence[Chunk], plan: Plan, pool: ThreadPoolExecutor) -> pl.DataFrame:
    """Put neighbouring chunks together.

    Args:
        chunks: At least one, in order; their columns are released on the way.
        plan: What was decoded.
        pool: Threads to copy on.

    Returns:
        One row per row that passed the filters.
    """
    pending = [pool.submit(_series, chunks, name, dtype, slot) for name, dtype, slot in plan.stored]
    return pl.DataFrame([column.result() for column in pending])


def _series(chunks: Sequence[Chunk], name: str, dtype: PolarsDataType, slot: int) -> pl.Series:
    parts = [part for chunk in chunks if (part := chunk.columns[slot]) is not None]
    raw = parts[0] if len(parts) == 1 else np.concatenate(parts)
    for chunk in chunks:
        chunk.columns[slot] = None
    nulls: NDArray[np.uint8] | None = None
    if any(chunk.losses[f.NULLS, slot] for chunk in chunks):
        nulls = np.concatenate([chunk.nulls[slot] for chunk in chunks])
    if dtype in (pl.String, pl.Binary):
        if chunks[0].number:
            _renumber(raw, chunks[0].number)
        texts = [chunk.text for chunk in chunks]
        return text_series(name, raw, nulls, texts, binary=dtype == pl.Binary)
    numeric: NDArray[Any] = raw.view(_numpy_type(dtype))
    return number_series(name, numeric, nulls).cast(dtype)


def _renumber(views: NDArray[np.uint8], first: int) -> None:
    """Let the views' buffers count from the first chunk of a frame instead of the table's."""
    parts = views.view(np.uint32).reshape(-1, 4)
    parts[parts[:, 0] > 12, 2] -= np.uint32(first)


def _numpy_type(dtype: PolarsDataType) -> str:
    if dtype not in INTEGER_RANGES:
        return "f8"
    low, high = INTEGER_RANGES[dtype]
    return f"{'i' if low else 'u'}{(high - low).bit_length() // 8}"
