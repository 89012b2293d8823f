"""What a page's tables hold: result frames as columns of values, each with how to print them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Evidence, Finding
from tracekit.model.table import Column, Table
from tracekit.report.evidence import (
    analysis_of,
    bounds_of,
    cell_text,
    heading_and_scale,
    select,
)
from tracekit.wording.names import printable
from tracekit.wording.numbers import unit_of_column

__all__ = ["DEFAULT_TOP", "evidence", "fitting_tables", "script_json", "tables"]

DEFAULT_TOP = 5_000
"""Rows of every table unless more are requested."""
MOST_BYTES = 2_000_000
"""What all tables of a page together may take before they are cut shorter."""
_TEXT = 300
_FEWEST = 20
_EXACT = 2**53
_SPANS = (("start_ns", "end_ns"), ("last_start_ns", "last_end_ns"))
_BREAKS_OUT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def script_json(value: Any) -> str:
    """Return `value` as JSON that can stand inside a script element whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate has no UTF-8 form; the five others end a script or a line of it.
    return text.encode("utf-8", "backslashreplace").decode("utf-8").translate(_BREAKS_OUT)


def fitting_tables(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return the tables (see `tables`) with as many rows as `MOST_BYTES` hold, at least ten."""
    top = DEFAULT_TOP
    while True:
        drawn = tables(diagnosis, top)
        if top <= _FEWEST or len(script_json(drawn).encode()) <= MOST_BYTES:
            return drawn
        top //= 2


def tables(diagnosis: Diagnosis, top: int) -> list[dict[str, Any]]:
    """Return every result frame that has rows, in the order of analyses and their results.

    Args:
        diagnosis: What to show.
        top: Rows of every frame.

    Returns:
        One mapping a frame: id (its position), analysis, name, title, doc, rows (all), shown,
        absent (headings of columns without any value), columns, and span: positions of the columns
        that hold start and end of a row, None without.
    """
    found: list[dict[str, Any]] = []
    for analysis, frames in diagnosis.frames.items():
        known = {t.name: t for t in diagnosis.tables.get(analysis, ())}
        for name, frame in frames.items():
            if frame.height:
                table = _table(name, frame, known.get(name), top)
                found.append({"id": len(found), "analysis": analysis, **table})
    return found


def _table(name: str, frame: pl.DataFrame, known: Table | None, top: int) -> dict[str, Any]:
    about = {c.name: c for c in known.columns} if known else {}
    shown = frame.head(top)
    names = _without_bounds(frame.columns)
    absent = [n for n in names if frame[n].null_count() == frame.height]
    names = [n for n in names if n not in absent]
    span = next((pair for pair in _SPANS if set(pair) <= set(names)), None)
    return {
        "name": name,
        "title": name.replace("_", " "),
        "doc": known.doc if known else "",
        "rows": frame.height,
        "shown": shown.height,
        "absent": [unit_of_column(n)[0] for n in absent],
        "names": names,
        "columns": [_column(shown, n, about.get(n)) for n in names],
        "span": span and [names.index(n) for n in span],
    }


def _without_bounds(names: list[str]) -> list[str]:
    bounds = {b for n in names for b in bounds_of(n) if set(bounds_of(n)) <= set(names)}
    return [n for n in names if n not in bounds]


def _column(shown: pl.DataFrame, name: str, about: Column | None) -> dict[str, Any]:
    """One column: h heading, t what it means, v values, and how to print: f and d, or s."""
    series = shown[name]
    values = series.to_list()
    means = about.doc if about and about.doc != name.replace("_", " ") else ""
    if not series.dtype.is_numeric() or any(v is not None and abs(v) > _EXACT for v in values):
        texts = [None if v is None else cell_text(v, _TEXT) for v in values]
        place = {text: i for i, text in enumerate(sorted({t for t in texts if t is not None}))}
        coded = [None if t is None else place[t] for t in texts]
        return {"h": unit_of_column(name)[0], "t": means, "s": list(place), "v": coded}
    heading, scale = heading_and_scale(name, values, about.unit if about else "")
    column = {"h": heading, "t": means, "f": scale.factor, "d": scale.decimals}
    if scale.unit == "%":
        column["bar"] = 1
    column["v"] = [_short(v) for v in values]
    low, high = bounds_of(name)
    if low in shown.columns and high in shown.columns:
        column["lo"] = [_short(v) for v in shown[low]]
        column["hi"] = [_short(v) for v in shown[high]]
    return column


def _short(value: float | int | None) -> float | int | None:
    """Six digits are more than any cell shows; what is not finite was not measured."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < _EXACT else short


def evidence(
    diagnosis: Diagnosis, finding: Finding, drawn: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the evidence of a finding as rows and columns of `drawn`, the tables of the page.

    Returns:
        One mapping a table of evidence that has rows: title, table (position in `drawn`), rows
        (positions in it, None for all), columns (positions, None for all), total.
    """
    found = (_evidence(diagnosis, finding, one, drawn) for one in finding.evidence)
    return [one for one in found if one is not None]


def _evidence(
    diagnosis: Diagnosis, finding: Finding, one: Evidence, drawn: list[dict[str, Any]]
) -> dict[str, Any] | None:
    analysis = analysis_of(finding)
    place = next(
        (i for i, t in enumerate(drawn) if (t["analysis"], t["name"]) == (analysis, one.table)),
        None,
    )
    frames: Mapping[str, pl.DataFrame] = diagnosis.frames.get(analysis, {})
    if place is None:
        return None
    rows = select(frames[one.table].with_row_index("_at"), one.where)["_at"].to_list()
    table = drawn[place]
    if not rows:
        return None
    shown = [r for r in rows if r < table["shown"]]
    names = table["names"]
    return {
        "title": printable(one.title or table["title"]),
        "table": place,
        "rows": None if len(shown) == table["shown"] else shown,
        "columns": [names.index(c) for c in one.columns if c in names] or None,
        "total": len(rows),
    }
