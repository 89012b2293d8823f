"""Markers of the injector, decoded: one frame an event of the grammar, one row a marker.

Markers arrive as NVTX text by the million, so they are decoded by string expressions over whole
columns, one extraction a key of an event that occurs; `tracekit.model.markers.parse` states what
each expression must give for one text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from tracekit.model.markers import DOMAIN, EVENTS, LIST_KEYS, WORD_KEYS, Event
from tracekit.trace import Trace, view
from tracekit.views.nvtx.ranges import described, marks, range_stacks, ranges

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = ["decode", "key_dtype", "marker_schema", "markers"]

_FIRST_WORD = r"^([A-Z_]+)(?: |$)"
COMMON_KEYS = ("device", "stream", "again")
"""Keys that any event may carry."""
WHERE: dict[str, PolarsDataType] = {
    "report": pl.UInt16(),
    "pid": pl.UInt32(),
    "tid": pl.UInt32(),
    "t_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "nvtx_row": pl.UInt32(),
}


def key_dtype(key: str) -> PolarsDataType:
    """Return the dtype of a marker key: String for words, List(Int64) for lists, else Int64."""
    if key in WORD_KEYS:
        return pl.String()
    return pl.List(pl.Int64) if key in LIST_KEYS else pl.Int64()


def marker_schema(event: str) -> pl.Schema:
    """Return the columns of the frame of one event: where and when, then its keys.

    A key named like a column of `WHERE` (the pid that META repeats) is left out.
    """
    keys = [k for k in dict.fromkeys((*EVENTS[event].keys, *COMMON_KEYS)) if k not in WHERE]
    return pl.Schema({**WHERE, **{key: key_dtype(key) for key in keys}})


@view
def markers(trace: Trace) -> Mapping[str, pl.DataFrame]:
    """Decode every marker of the trace.

    Returns:
        Event name to frame, every event of the grammar present. Columns: report, pid, tid, t_ns
        (instant of a mark or start of a range, ns), end_ns (ns, null for a mark), nvtx_row, then
        one column a key of the event, null where the marker does not carry it. Rows are in the
        order of (t_ns, nvtx_row). Addresses (64 bits, reinterpreted as signed), sizes in bytes
        and counts are Int64.
    """
    name = pl.col("domain_name")
    here = name.is_in(["", DOMAIN]) | name.str.starts_with(f"{DOMAIN}.")
    spoken_here = range_stacks(trace).select(here).to_series()
    over = ranges(trace)
    over = over.filter(_is_marker(over["text"]) & spoken_here[over["stack"]])
    rows = pl.concat(
        [
            marks(trace).filter(here).select(*_where("t_ns", None), "text"),
            described(trace, over).select(*_where("start_ns", "end_ns"), "text"),
        ]
    )
    return decode(rows)


def _is_marker(texts: pl.Series) -> pl.Series:
    """Whether a Categorical text may be a marker; each distinct one is read once."""
    distinct = texts.unique()
    word = distinct.cast(pl.String).str.extract(_FIRST_WORD, 1)
    return texts.is_in(distinct.filter(word.is_in(list(EVENTS))).implode())


def _where(start: str, end: str | None) -> list[pl.Expr]:
    ending = pl.lit(None, pl.Int64) if end is None else pl.col(end)
    named = {"t_ns": pl.col(start), "end_ns": ending}
    return [named.get(name, pl.col(name)).cast(dtype).alias(name) for name, dtype in WHERE.items()]


def decode(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Decode marker texts.

    Args:
        rows: Frame of report, pid, tid, t_ns, end_ns, nvtx_row and text (String).

    Returns:
        See `markers`; rows whose text is no marker are left out.
    """
    first_word = pl.col("text").str.extract(_FIRST_WORD, 1)
    known = rows.with_columns(event=first_word).filter(pl.col("event").is_in(list(EVENTS)))
    by_event = {
        str(key[0]): frame for key, frame in known.partition_by("event", as_dict=True).items()
    }
    return {name: _decode_event(event, by_event.get(name)) for name, event in EVENTS.items()}


def _decode_event(event: Event, rows: pl.DataFrame | None) -> pl.DataFrame:
    schema = marker_schema(event.name)
    if rows is None:
        return pl.DataFrame(schema=schema)
    keys = [name for name in schema if name not in WHERE]
    raw = rows.lazy().select(*WHERE, *(_value(key) for key in keys))
    typed = raw.select(*WHERE, *(_typed(key) for key in keys))
    return typed.collect().sort("t_ns", "nvtx_row")


def _value(key: str) -> pl.Expr:
    return pl.col("text").str.extract(rf" {key}=(\S+)", 1).alias(key)


def _typed(key: str) -> pl.Expr:
    text = pl.col(key)
    if key in WORD_KEYS:
        return text
    if key in LIST_KEYS:
        # A list with one unreadable member says nothing reliable: null, as `parse` leaves it out.
        members = (
            text.str.strip_chars(",")
            .str.split(",")
            .list.eval(pl.element().str.to_integer(strict=False, dtype=pl.Int64))
        )
        readable = ~members.list.eval(pl.element().is_null()).list.any()
        return pl.when(readable).then(members).alias(key)
    hexadecimal = (
        text.str.strip_prefix("0x")
        .str.to_integer(base=16, strict=False, dtype=pl.UInt64)
        .reinterpret(signed=True)
    )
    decimal = text.str.to_integer(strict=False, dtype=pl.Int64)
    return pl.when(text.str.starts_with("0x")).then(hexadecimal).otherwise(decimal).alias(key)
