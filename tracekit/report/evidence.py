"""The rows a finding rests on, cut to size and turned into text cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracekit.model.analysis import Evidence, Finding
from tracekit.model.diagnosis import Diagnosis
from tracekit.report.names import printable, short_name
from tracekit.report.units import NOT_MEASURED, Scale, scale_of, unit_of_column

__all__ = ["Grid", "analysis_of", "grid", "grids", "select"]

_MOMENTS = {"start_ns", "end_ns", "t_ns"}
_MOMENT_ENDS = tuple(f"_{m}" for m in sorted(_MOMENTS))
_SECONDS = Scale(1e9, "s", 6)
_LIST_ITEMS = 4


@dataclass(frozen=True)
class Grid:
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
    columns = [_column(shown[name], width) for name in shown.columns]
    return Grid(
        title=printable(evidence.title or evidence.table.replace("_", " ")),
        headings=tuple(c[0] for c in columns),
        right=tuple(c[1] for c in columns),
        rows=tuple(zip(*(c[2] for c in columns), strict=True)),
        total=rows.height,
    )


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


def _column(series: pl.Series, width: int) -> tuple[str, bool, list[str]]:
    """Return (heading, right-aligned, cells) of one column."""
    heading, unit = unit_of_column(series.name)
    values = series.to_list()
    if not series.dtype.is_numeric():
        return heading, False, [_text(v, width) for v in values]
    moment = series.name in _MOMENTS or series.name.endswith(_MOMENT_ENDS)
    scale = _SECONDS if moment else scale_of(values, unit)
    if scale.unit:
        heading = f"{heading} ({scale.unit})"
    return heading, True, [scale.cell(v) for v in values]


def _text(value: Any, width: int) -> str:
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        more = ", ..." if len(value) > _LIST_ITEMS else ""
        return short_name(", ".join(str(v) for v in value[:_LIST_ITEMS]), width - len(more)) + more
    return short_name(str(value), width)
