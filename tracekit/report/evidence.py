"""The rows a finding rests on, cut to size and turned into text cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Evidence, Finding
from tracekit.wording.names import printable, short_name
from tracekit.wording.numbers import (
    NOT_MEASURED,
    Number,
    Scale,
    scale_of,
    suffix_of_column,
    unit_of_column,
)

__all__ = [
    "Course",
    "Grid",
    "analysis_of",
    "bounds_of",
    "cell_text",
    "courses",
    "grid",
    "grids",
    "heading_and_scale",
    "is_moment",
    "select",
]

_MOMENTS = {"start_ns", "end_ns", "t_ns"}
_MOMENT_ENDS = tuple(f"_{m}" for m in sorted(_MOMENTS))
_SECONDS = Scale(1e9, "s", 6)
_LIST_ITEMS = 4
_ORDERED_BY = ("t_ns", "start_ns", "step")
_COURSE_UNITS = {"ns", "1", "%", "x", "B/s", "GB/s"}
_COURSE_ROWS = 8


class Grid(NamedTuple):
    """A small table of text.

    Attributes:
        title: Heading for people.
        headings: Column headings, unit in brackets.
        right: Whether a column is right-aligned.
        rows: Cells, one tuple a row; safe to print.
        total: Rows there are, of which `rows` are the first.
    """

    title: str
    headings: tuple[str, ...]
    right: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    total: int

    @property
    def rest(self) -> int:
        """Rows that are not shown."""
        return self.total - len(self.rows)


def analysis_of(finding: Finding) -> str:
    """Return the name of the analysis that made `finding`."""
    return finding.id.partition("/")[0]


def grids(diagnosis: Diagnosis, finding: Finding, limit: int, width: int = 48) -> tuple[Grid, ...]:
    """Return the evidence tables of `finding` that have rows, each of at most `limit` rows."""
    found = (grid(diagnosis, finding, e, limit, width) for e in finding.evidence)
    return tuple(g for g in found if g is not None)


def grid(
    diagnosis: Diagnosis, finding: Finding, evidence: Evidence, limit: int, width: int = 48
) -> Grid | None:
    """Return one evidence table, None when its frame is absent or has no such rows.

    Args:
        diagnosis: Where the frames are.
        finding: Whose evidence it is.
        evidence: Which rows and columns.
        limit: Rows to show.
        width: Longest text cell, in characters.
    """
    frame = diagnosis.frames.get(analysis_of(finding), {}).get(evidence.table)
    if frame is None:
        return None
    rows = select(frame, evidence.where)
    if rows.is_empty():
        return None
    shown = rows.select(evidence.columns or rows.columns).head(limit)
    units = _units(diagnosis, analysis_of(finding), evidence.table)
    columns = [
        _column(shown, name, width, evidence.headings.get(name), units.get(name, ""))
        for name in _without_bounds(shown.columns)
    ]
    return Grid(
        title=printable(evidence.title or evidence.table.replace("_", " ")),
        headings=tuple(c[0] for c in columns),
        right=tuple(c[1] for c in columns),
        rows=tuple(zip(*(c[2] for c in columns), strict=True)),
        total=rows.height,
    )


def _units(diagnosis: Diagnosis, analysis: str, table: str) -> dict[str, str]:
    """Return the units that an analysis declares for the columns of one of its tables."""
    declared = (t for t in diagnosis.tables.get(analysis, ()) if t.name == table)
    return {c.name: c.unit for t in declared for c in t.columns}


class Course(NamedTuple):
    """How one column of an evidence table runs over time.

    Attributes:
        heading: Column in words.
        over: What orders the rows.
        values: One number a row, None where not measured.
        unit: Unit of `values`, as `tracekit.wording.numbers.quantity` takes it.
    """

    heading: str
    over: str
    values: tuple[float | int | None, ...]
    unit: str


def courses(diagnosis: Diagnosis, finding: Finding, evidence: Evidence) -> tuple[Course, ...]:
    """Return the course of every measured column of an evidence table whose rows have an order.

    Tables of fewer than eight rows are read faster than a line of bars, so they have none.
    """
    frame = diagnosis.frames.get(analysis_of(finding), {}).get(evidence.table)
    if frame is None:
        return ()
    rows = select(frame, evidence.where)
    order = next((c for c in _ORDERED_BY if c in rows.columns), None)
    if order is None or rows.height < _COURSE_ROWS:
        return ()
    rows = rows.sort(order, maintain_order=True)
    found = []
    for name in evidence.columns or rows.columns:
        heading, unit = unit_of_column(name)
        if unit in _COURSE_UNITS and not is_moment(name) and rows[name].dtype.is_numeric():
            over = "step" if order == "step" else "time"
            found.append(Course(heading, over, tuple(rows[name]), unit))
    return tuple(found)


def select(frame: pl.DataFrame, where: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows of `frame` whose columns have the values of `where`.

    Args:
        frame: Any frame.
        where: Column to value; None selects nulls, a list or tuple any of its items.
    """
    for column, value in where.items():
        if value is None:
            frame = frame.filter(pl.col(column).is_null())
        elif isinstance(value, list | tuple | set | frozenset):
            frame = frame.filter(pl.col(column).is_in(sorted(value)))
        else:
            frame = frame.filter(pl.col(column) == value)
    return frame


def _column(
    shown: pl.DataFrame, name: str, width: int, words: str | None = None, unit: str = ""
) -> tuple[str, bool, list[str]]:
    """Return (heading, right-aligned, cells) of one column, its interval in brackets after it."""
    series = shown[name]
    values = series.to_list()
    if not series.dtype.is_numeric():
        return words or unit_of_column(name)[0], False, [cell_text(v, width) for v in values]
    heading, scale = heading_and_scale(name, values, unit)
    if words:
        heading = f"{words} ({scale.unit})" if scale.unit else words
    cells = [scale.cell(v) for v in values]
    low, high = bounds_of(name)
    if low in shown.columns and high in shown.columns:
        pairs = zip(cells, shown[low].to_list(), shown[high].to_list(), strict=True)
        cells = [
            c if lo is None and hi is None else f"{c} [{scale.cell(lo)}, {scale.cell(hi)}]"
            for c, lo, hi in pairs
        ]
    return heading, True, cells


def heading_and_scale(
    name: str, values: Sequence[Number | None], unit: str = ""
) -> tuple[str, Scale]:
    """Return the heading of a column of numbers, unit in brackets, and the scale of its cells.

    Args:
        name: Column.
        values: Its values.
        unit: Unit of the values where the name states none.
    """
    heading, named = unit_of_column(name)
    scale = _SECONDS if is_moment(name) else scale_of(values, named or unit)
    return (f"{heading} ({scale.unit})" if scale.unit else heading), scale


def _without_bounds(names: list[str]) -> list[str]:
    """Leave out the columns that hold the interval of another one."""
    bounds = {b for n in names for b in bounds_of(n) if set(bounds_of(n)) <= set(names)}
    return [n for n in names if n not in bounds]


def bounds_of(name: str) -> tuple[str, str]:
    """Return the columns that would hold the interval of ``x_ns``: ``x_lo_ns``, ``x_hi_ns``."""
    suffix = suffix_of_column(name)
    stem = name.removesuffix(suffix) if suffix else name
    return f"{stem}_lo{suffix}", f"{stem}_hi{suffix}"


def is_moment(name: str) -> bool:
    """Return whether a column holds points in time, not lengths."""
    return name in _MOMENTS or name.endswith(_MOMENT_ENDS)


def cell_text(value: Any, width: int) -> str:
    """Return a value that is no number as the text of a cell of at most `width` characters."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        more = ", ..." if len(value) > _LIST_ITEMS else ""
        return short_name(", ".join(str(v) for v in value[:_LIST_ITEMS]), width - len(more)) + more
    return short_name(str(value), width)
