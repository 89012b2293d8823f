"""The page reader: large tables decoded from the file's pages, checked against SQLite.

Whatever is unusual about a table or its file sends that table to SQLite, with a note; the answer
is the same. Row counts and a random sample of rows are compared with SQLite on every read.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from tracekit.errors import DamagedReportError
from tracekit.io.pages import fields as f
from tracekit.io.pages.file import PageFile
from tracekit.io.pages.plan import Plan, UnusualTableError, make_plan
from tracekit.io.source import BATCH_ROWS, Cells, RowFilter
from tracekit.io.sqlite.convert import check_columns, note_losses
from tracekit.io.sqlite.source import SqliteSource, quoted

if TYPE_CHECKING:
    from tracekit.io.pages.chunks import Chunk

__all__ = ["PagesSource", "compare_sample", "counts_agree", "probe_counts", "rowid_span"]

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


FILTERED_FACTOR = 5
"""How many times larger a table must be before decoding pays when the read is filtered."""

COUNTED_ROWS = 1_000_000
"""From so many rows on SQLite's own count takes longer than the headers of all leaves."""

BESIDE_FACTOR = 20
"""How many times smaller a table may be if another one of the file has the decoder loaded."""

MOST_THREADS = 8


@dataclass
class _Progress:
    """How far a read has come.

    Attributes:
        last_id: Row id of the last row that was handed out; None before the first frame.
        cells: Rows of the table that were decoded.
        lost: What could not be converted; see `note_losses`.
    """

    last_id: int | None
    cells: int
    lost: Counter[str]


class PagesSource:
    """A `TableSource` that decodes pages itself and asks SQLite where it cannot.

    Attributes:
        path: The file.
        notes: See `TableSource`; shared with the SQLite source.
    """

    def __init__(
        self, path: Path | str, fallback: SqliteSource, *, least_rows: int = 0, threads: int = 0
    ) -> None:
        """Open the file a second time, in addition to SQLite.

        Args:
            path: The file.
            fallback: The same file through SQLite; closed together with this source.
            least_rows: Smaller tables are read through SQLite.
            threads: Threads to decode on; 0 for as many as there are processors, at most 8.

        Raises:
            OSError: The file cannot be opened.
        """
        self.path = Path(path)
        self.notes = fallback.notes
        self._fallback = fallback
        self._least_rows = least_rows
        self._threads = threads or _processors()
        self._most: dict[str, float] = {}
        with ExitStack() as stack:
            stack.callback(fallback.close)
            self._file = PageFile(self.path)
            stack.callback(self._file.close)
            self._closing = stack.pop_all()

    def tables(self) -> dict[str, dict[str, str]]:
        """Return every table as ``{table: {column: declared type}}``; no views."""
        return self._fallback.tables()

    def count(self, table: str) -> int:
        """Return the number of rows; see `TableSource.count`."""
        if table not in self._fallback.tables() or self._most_rows(table) < COUNTED_ROWS:
            return self._fallback.count(table)
        try:
            from tracekit.io.pages.chunks import count_rows

            geometry = self._file.geometry(0)
            return count_rows(geometry, self._root(table), self._threads)
        except (ImportError, UnusualTableError):
            return self._fallback.count(table)

    def read(
        self, table: str, columns: Mapping[str, Cells], where: Sequence[RowFilter] = ()
    ) -> pl.DataFrame:
        """Return the chosen columns of the chosen rows; see `TableSource.read`."""
        # One frame, so that nothing is handed out before everything was checked.
        frames = list(self.batches(table, columns, where, rows=1 << 62))
        return frames[0] if len(frames) == 1 else pl.concat(frames, rechunk=True)

    def batches(
        self,
        table: str,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter] = (),
        rows: int = BATCH_ROWS,
    ) -> Iterator[pl.DataFrame]:
        """Yield what `read` returns in pieces; see `TableSource.batches`.

        Raises:
            DamagedReportError: Besides the reasons there: the file changed, or does not agree with
                SQLite, and frames have been handed out already.
        """
        known = self._fallback.tables()
        if table not in known:
            return self._fallback.batches(table, columns, where, rows)
        check_columns(known[table], columns, where)
        if self._is_small(table, where):
            return self._fallback.batches(table, columns, where, rows)
        return self._decoded(table, columns, where, rows)

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        self._closing.close()

    def __enter__(self) -> Self:
        """Return the source itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the source."""
        self.close()

    def _is_small(self, table: str, where: Sequence[RowFilter]) -> bool:
        if self._least_rows <= 0:
            return False
        # SQLite skips most rows of a filtered read in C; loading the decoder takes longer.
        least = self._least_rows * (FILTERED_FACTOR if where else 1)
        most = self._most_rows(table)
        if most * BESIDE_FACTOR < least or most >= least:
            return most < least
        others = (self._most_rows(other) for other in self.tables() if other != table)
        return not any(self._least_rows <= rows < math.inf for rows in others)

    def _most_rows(self, table: str) -> float:
        """At most so many rows, exact for a small table; infinite where only a read shows it."""
        if table not in self._most:
            try:
                plan = make_plan(self._fallback, table, {}, ())
                _, last = rowid_span(self._fallback, table, plan)
                self._most[table] = last or 0
                if self._most[table] >= self._least_rows:
                    # Ids that mean something, as those of metric types do, are no row numbers.
                    found = self._counted_up_to(table, self._least_rows)
                    self._most[table] = last or 0 if found == self._least_rows else found
            except (UnusualTableError, DamagedReportError):
                self._most[table] = math.inf
        return self._most[table]

    def _counted_up_to(self, table: str, most: int) -> int:
        some = f"SELECT 1 FROM {quoted(table)} NOT INDEXED LIMIT {most}"
        return int(self._fallback.rows(f"SELECT count(*) FROM ({some})")[0][0])

    def _decoded(
        self,
        table: str,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter],
        rows: int,
    ) -> Iterator[pl.DataFrame]:
        progress = _Progress(None, 0, Counter())
        condition = ""
        try:
            plan = make_plan(self._fallback, table, columns, where)
            yield from self._frames(table, plan, columns, where, rows, progress)
        except UnusualTableError as reason:
            if progress.last_id is not None:
                if self._file.has_changed():
                    message = "changed while it was read"
                    raise DamagedReportError(message, path=self.path) from None
                condition = f"{plan.rowid} > {progress.last_id}"
            note_losses(self.notes, table, columns, progress.lost)
            note = f"{table}: read through SQLite ({reason})"
            if note not in self.notes:
                self.notes.append(note)
            yield from self._fallback.scan(table, columns, where, rows, condition)

    def _frames(
        self,
        table: str,
        plan: Plan,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter],
        rows: int,
        progress: _Progress,
    ) -> Iterator[pl.DataFrame]:
        """Yield checked frames.

        Raises:
            UnusualTableError: SQLite has to go on after the last row that was handed out.
        """
        try:
            from tracekit.io.pages.assembly import Assembly
            from tracekit.io.pages.chunks import find_leaves
        except ImportError as error:
            msg = f"Numba cannot be imported: {error}"
            raise UnusualTableError(msg) from error
        geometry = self._file.geometry(plan.key_bytes)
        leaves = find_leaves(geometry, self._root(table))
        span = rowid_span(self._fallback, table, plan)
        with Assembly(geometry, leaves, plan, span, self._threads) as assembly:
            for frame, chunks in assembly.frames(rows):
                compare_sample(self._fallback, table, plan, columns, where, chunks, frame)
                progress.cells += sum(chunk.cells for chunk in chunks)
                for (name, _, slot), chunk in product(plan.stored, chunks):
                    progress.lost[name] += int(chunk.losses[f.OUT_OF_RANGE, slot])
                if assembly.is_done:
                    break
                progress.last_id = chunks[-1].last_id
                yield frame
        self._check_whole(table, plan, progress)
        note_losses(self.notes, table, columns, progress.lost)
        yield frame

    def _root(self, table: str) -> int:
        query = "SELECT rootpage FROM sqlite_master WHERE type='table' AND name="
        text = "'" + table.replace("'", "''") + "'"
        return int(self._fallback.rows(query + text)[0][0])

    def _check_whole(self, table: str, plan: Plan, progress: _Progress) -> None:
        """Compare the number of rows with SQLite, and the file with what it was.

        Raises:
            UnusualTableError: They differ, and nothing has been handed out.
            DamagedReportError: They differ.
        """
        problem = ""
        if not counts_agree(self._fallback, table, plan, progress.cells):
            problem = "SQLite counts other rows"
        elif self._file.has_changed():
            problem = "the file changed while it was read"
        if problem and progress.last_id is not None:
            message = f"{table}: {problem}"
            raise DamagedReportError(message, path=self.path, hint="try --reader sqlite")
        if problem:
            raise UnusualTableError(problem)


def _processors() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(usable or 1, MOST_THREADS)
