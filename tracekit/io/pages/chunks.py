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
        cells: Rows of the table in it.
        rows: Rows that passed the filters.
        first_id: Row id of its first row.
        last_id: Row id of its last row.
        columns: Per slot, uint8: the stored bytes, or None if nothing is stored.
        nulls: uint8[slots, rows]: 1 where null.
        text: uint8: its distinct texts, each with a zero byte after it.
        entries: int64: where each text begins, by its number from 1; then the end of the last.
        has_binary: Whether there can be texts that are not UTF-8.
        losses: int64[2, slots]; see `fields`.
        probes: int64[probes, 3]; see `fields`.
    """

    cells: int
    rows: int
    first_id: int
    last_id: int
    columns: list[NDArray[np.uint8] | None]
    nulls: NDArray[np.uint8]
    text: NDArray[np.uint8]
    entries: NDArray[np.int64]
    has_binary: bool
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

    def decode(self, leaves: NDArray[np.int64], probes: int, seed: int) -> Chunk:
        """Decode a chunk.

        Args:
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
        is_text = np.isin(fields[:, f.KIND], [f.TEXT, f.BINARY])
        entries = np.empty(cells * int(is_text.sum()) + 2, np.int64)
        chosen = np.zeros((min(probes, cells), 3), np.int64)
        if chosen.size:
            order = np.random.default_rng(seed).choice(cells, chosen.shape[0], replace=False)
            chosen[:, f.ORDINAL] = np.sort(order)
        counters = np.zeros(f.COUNTERS, np.int64)
        counters[f.LAST_ID] = f.NO_ID
        counters[f.LAYOUTS] = self._next_layout
        self._seen[:, 0] = 0
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
            entries,
            self._seen,
            text,
            counters,
        )
        _checked(code)
        self._next_layout = int(counters[f.LAYOUTS])
        rows = int(counters[f.ROWS])
        return Chunk(
            cells=cells,
            rows=rows,
            first_id=int(counters[f.FIRST_ID]),
            last_id=int(counters[f.LAST_ID]),
            columns=_columns(fields, arena, rows, trim=2 * rows < cells),
            nulls=nulls[:, :rows],
            text=text[: counters[f.TEXT_USED]],
            entries=entries[: counters[f.TEXTS] + 2],
            has_binary=bool((fields[:, f.KIND] == f.BINARY).any()),
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
    for chunk in chunks:
        chunk.columns[slot] = None
    if dtype in (pl.String, pl.Binary):
        pairs = zip(chunks, parts, strict=True)
        columns = [_texts(chunk).gather(part.view(np.uint32)).cast(dtype) for chunk, part in pairs]
        return pl.concat(columns, rechunk=True).alias(name)
    raw: NDArray[Any] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    column = pl.Series(name, raw.view(_numpy_type(dtype)))
    if any(chunk.losses[f.NULLS, slot] for chunk in chunks):
        nulls = pl.Series(np.concatenate([chunk.nulls[slot] for chunk in chunks]))
        column = pl.select(pl.when(nulls == 0).then(column).alias(name)).to_series()
    return column.cast(dtype)


def _texts(chunk: Chunk) -> pl.Series:
    """The distinct texts of a chunk by their number; null is number 0."""
    count = chunk.entries.size - 2
    zeros = chunk.text.size - np.count_nonzero(chunk.text)
    raw = chunk.text.tobytes()
    if count and zeros == count and not chunk.has_binary:
        # Only the zero bytes between the texts: Polars can take them apart.
        joined = pl.Series([raw[:-1]], dtype=pl.Binary).cast(pl.String)
        split = joined.str.split("\0").explode()
        return pl.concat([pl.Series([None], dtype=pl.String), split])
    ends = chunk.entries.tolist()
    values = [raw[ends[i] : ends[i + 1] - 1] for i in range(1, count + 1)]
    return pl.Series([None, *values], dtype=pl.Binary)


def _numpy_type(dtype: PolarsDataType) -> str:
    if dtype not in INTEGER_RANGES:
        return "f8"
    low, high = INTEGER_RANGES[dtype]
    return f"{'i' if low else 'u'}{(high - low).bit_length() // 8}"
