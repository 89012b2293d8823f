"""Decoded rows against SQLite: a sample of them, and how many there are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.io.pages import fields as f
from tracekit.io.pages.plan import Plan, UnusualTableError
from tracekit.io.source import Cells, RowFilter
from tracekit.io.sqlite.source import SqliteSource, quoted

if TYPE_CHECKING:
    from tracekit.io.pages.chunks import Chunk

__all__ = ["compare_sample", "counts_agree", "probe_counts", "rowid_span"]

SAMPLE_ROWS = 64
"""Rows of a read that are compared with SQLite."""


def probe_counts(chunks: int) -> list[int]:
    """Say how many rows of each chunk to compare with SQLite; the same on every read.

    Args:
        chunks: Number of chunks of the table.

    Returns:
        A number per chunk, `SAMPLE_ROWS` or a few more in all.
    """
    if chunks <= SAMPLE_ROWS:
        return [math.ceil(SAMPLE_ROWS / chunks)] * chunks
    chosen = np.random.default_rng(0).choice(chunks, SAMPLE_ROWS, replace=False)
    return [int(count) for count in np.bincount(chosen, minlength=chunks)]


def compare_sample(
    source: SqliteSource,
    table: str,
    plan: Plan,
    columns: Mapping[str, Cells],
    where: Sequence[RowFilter],
    chunks: Sequence[Chunk],
    frame: pl.DataFrame,
) -> None:
    """Compare the probed rows of a frame with SQLite.

    Args:
        source: SQLite.
        table: The table.
        plan: How it was decoded.
        columns: What the columns are.
        where: Conditions of the read.
        chunks: What the frame was made of.
        frame: The rows that passed the conditions.

    Raises:
        UnusualTableError: They differ.
    """
    ids: list[int] = []
    rows: list[int] = []
    start = 0
    for chunk in chunks:
        ids += chunk.probes[:, f.PROBE_ID].tolist()
        found = chunk.probes[:, f.PROBE_ROW]
        rows += (found[found >= 0] + start).tolist()
        start += chunk.rows
    if not ids:
        return
    condition = f"{plan.rowid} IN ({', '.join(map(str, ids))})"
    expected = source.sample(table, columns, where, condition)
    if not frame[rows].equals(expected, null_equal=True):
        msg = "a sample differs from what SQLite reads"
        raise UnusualTableError(msg)


def rowid_span(source: SqliteSource, table: str, plan: Plan) -> tuple[int | None, int | None]:
    """Look up the smallest and the largest row id, without a scan.

    Args:
        source: SQLite.
        table: The table.
        plan: Knows the row id's name.

    Returns:
        Both ends; None in an empty table.
    """
    ends = [f"(SELECT {end}({plan.rowid}) FROM {quoted(table)})" for end in ("min", "max")]
    first, last = source.rows(f"SELECT {', '.join(ends)}")[0]
    return first, last


def counts_agree(source: SqliteSource, table: str, plan: Plan, decoded: int) -> bool:
    """Whether SQLite finds as many rows.

    Args:
        source: SQLite.
        table: The table.
        plan: Knows the row id's name.
        decoded: Rows that were decoded, with ascending row ids.

    Returns:
        True if the numbers are equal.
    """
    first, last = rowid_span(source, table, plan)
    span = 0 if first is None or last is None else last - first + 1
    # Row ids are distinct: as many rows as ids between the ends leave no gap to count.
    return decoded == span or decoded == source.count(table)
