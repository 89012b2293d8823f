"""Chunks to one frame: columns that the chunks are stored in, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.io.pages import fields as f
from tracekit.io.sqlite.convert import INTEGER_RANGES

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

    from tracekit.io.pages.chunks import Chunk
    from tracekit.io.pages.plan import Plan

__all__ = ["Columns"]


class Columns:
    """Columns of a frame in the making.

    Memory for the most rows is reserved at once and takes no room before it is written to.

    Attributes:
        most_rows: Most rows that there can be.
        rows: Rows that have a place.
    """

    def __init__(self, plan: Plan, most_rows: int) -> None:
        """Ask for memory.

        Args:
            plan: Which columns.
            most_rows: Most rows that there can be.
        """
        self._plan, self.most_rows = plan, most_rows
        self._slots = [slot for _, _, slot in plan.stored]
        self._values: dict[int, NDArray[Any]] = {
            slot: np.zeros(most_rows, _numpy_type(dtype)) for _, dtype, slot in plan.stored
        }
        self._is_null = {slot: np.zeros(most_rows, np.uint8) for slot in self._values}
        values, gaps = self._values.values(), self._is_null.values()
        self._starts = np.array(
            [[c.ctypes.data for c in values], [c.ctypes.data for c in gaps]], np.int64
        )
        self._nulls = dict.fromkeys(self._values, 0)
        self._texts: list[pl.Series] = [pl.Series([None], dtype=pl.String)]
        self._codes = 1
        self.rows = 0

    def place(self, fields: NDArray[np.int64], start: int) -> None:
        """Return where the decoder stores rows.

        Args:
            fields: int64[slots, PLAN_FIELDS]: receives the addresses, valid as long as the columns.
            start: The first row.
        """
        fields[self._slots, f.OUT] = self._starts[0] + start * fields[self._slots, f.WIDTH]
        fields[self._slots, f.GAPS] = self._starts[1] + start

    def reserve(self, chunk: Chunk) -> tuple[int, int, int]:
        """Give the next chunk its place.

        Args:
            chunk: The chunk after the one before.

        Returns:
            What `settle` needs.
        """
        place = self.rows, self._codes, len(self._texts)
        self.rows += chunk.rows
        self._codes += chunk.texts
        self._texts.append(self._texts[0].clear())
        for slot in self._nulls:
            self._nulls[slot] += chunk.nulls(slot)
        return place

    def settle(self, chunk: Chunk, place: tuple[int, int, int]) -> None:
        """Bring what is still in a chunk's room to its place; several chunks at a time if need be.

        Args:
            chunk: The chunk; its room can be used again afterwards.
            place: From `reserve`.
        """
        start, code, number = place
        rows = slice(start, start + chunk.rows)
        for _, dtype, slot in self._plan.stored:
            column = self._values[slot]
            if self._plan.is_filtered:
                self._copy(chunk, slot, rows)
            if dtype in (pl.String, pl.Binary):
                column[rows] += (column[rows] > 0) * column.dtype.type(code - 1)
        if chunk.texts:
            self._texts[number] = self._distinct(chunk)

    def _copy(self, chunk: Chunk, slot: int, rows: slice) -> None:
        nulls, aside = chunk.nulls(slot), chunk.room.columns
        if nulls < chunk.rows:
            self._values[slot][rows] = aside._values[slot][: chunk.rows]
        if nulls:
            self._is_null[slot][rows] = aside._is_null[slot][: chunk.rows]
            aside._is_null[slot][: chunk.rows] = 0

    def frame(self) -> pl.DataFrame:
        """Return the frame, once everything was copied."""
        kind = pl.Binary if any(part.dtype == pl.Binary for part in self._texts) else pl.String
        texts = pl.concat([part.cast(kind) for part in self._texts], rechunk=True)
        full: dict[str, pl.Series] = {}
        for name, dtype, slot in self._plan.stored:
            if self.rows and self._nulls[slot] == self.rows:
                continue
            values = pl.Series(name, self._values[slot][: self.rows])
            if dtype in (pl.String, pl.Binary):
                full[name] = texts.gather(values).cast(dtype).alias(name)
                continue
            if self._nulls[slot]:
                known = pl.Series(self._is_null[slot][: self.rows]) == 0
                values = pl.select(pl.when(known).then(values).alias(name)).to_series()
            full[name] = values.cast(dtype)
        frame = pl.DataFrame(full) if full else pl.Series("", [None] * self.rows).to_frame()
        # A column without any value is one value, whatever its height.
        empty = [pl.lit(None, dtype).alias(n) for n, dtype, _ in self._plan.stored if n not in full]
        return frame.with_columns(empty).select(name for name, _, _ in self._plan.stored)

    def _distinct(self, chunk: Chunk) -> pl.Series:
        """The distinct texts of a chunk."""
        used, count = chunk.room.text[: chunk.text_used], chunk.texts
        binary = [slot for _, dtype, slot in self._plan.stored if dtype == pl.Binary]
        raw = used.tobytes()
        is_text = all(chunk.nulls(slot) == chunk.rows for slot in binary)
        if is_text and used.size - np.count_nonzero(used) == count:
            # Only the zero bytes between the texts: Polars can take them apart.
            joined = pl.Series([raw[:-1]], dtype=pl.Binary).cast(pl.String)
            return joined.str.split("\0").explode()
        ends = chunk.room.entries[: count + 2].tolist()
        values = [raw[ends[i] : ends[i + 1] - 1] for i in range(1, count + 1)]
        return pl.Series(values, dtype=pl.Binary)


def _numpy_type(dtype: PolarsDataType) -> str:
    if dtype in (pl.String, pl.Binary):
        return f"u{f.TEXT_WIDTH}"
    if dtype not in INTEGER_RANGES:
        return "f8"
    low, high = INTEGER_RANGES[dtype]
    return f"{'i' if low else 'u'}{(high - low).bit_length() // 8}"
