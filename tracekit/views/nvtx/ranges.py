"""NVTX rows as ranges and marks, with their text, domain and nesting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.nvtx import DOMAIN_CREATE, MARK, PUSH_POP_TYPES, RANGE_TYPES
from tracekit.numerics import stacks
from tracekit.trace import Trace, view
from tracekit.views.keys import row_numbers
from tracekit.views.strings import resolved

__all__ = [
    "RangeFaults",
    "capture_end_ns",
    "described",
    "marks",
    "outer_first_order",
    "range_faults",
    "range_stacks",
    "ranges",
]


@view
def capture_end_ns(trace: Trace) -> int:
    """Return the last moment that NVTX knows of: capture length or last NVTX time, ns."""
    lengths = [r.duration_ns for r in trace.reports if r.duration_ns is not None]
    rows = trace.frame("nvtx")
    begun, ended = (int(str(rows[c].max() or 0)) for c in ("start_ns", "end_ns"))
    return max([*lengths, begun + 1 if rows.height else 0, ended])


class RangeFaults(NamedTuple):
    """Rows of NVTX that are not what they should be.

    Attributes:
        inverted: Ranges that end before they start.
        dangling: Rows whose text is a string that the file does not hold.
        never_closed: Ranges without an end.
        repeated: Closed ranges that repeat another one.
        depth: How many ranges the innermost one is inside of.
    """

    inverted: int
    dangling: int
    never_closed: int
    repeated: int
    depth: int


class _Nvtx(NamedTuple):
    """What is read of NVTX rows, so that those need not be kept.

    Attributes:
        ranges: Frame of `ranges`.
        order: uint32[k], rows of push/pop ranges, see `stacks.outer_first`.
        marks: Frame of `marks`.
        stacks: Frame of `range_stacks`.
        faults: See `range_faults`.
    """

    ranges: pl.DataFrame
    order: NDArray[np.uint32]
    marks: pl.DataFrame
    stacks: pl.DataFrame
    faults: RangeFaults


@view
def _nvtx(trace: Trace) -> _Nvtx:
    rows, strings = trace.frame("nvtx"), trace.frame("strings")
    keys = rows.select("report", "pid", "tid", pl.col("domain").fill_null(0))
    number, table = row_numbers(keys)
    table = _with_names(table, rows, strings)
    events = rows.select("start_ns", "end_ns", "event_type", "text", "text_id").with_columns(
        pl.Series("stack", number), pl.int_range(pl.len(), dtype=pl.UInt32).alias("nvtx_row")
    )
    event = pl.col("event_type")
    instants = resolved(events.filter(event == MARK), strings, "text", "text_id")
    instants = instants.with_columns(rows["int64"][instants["nvtx_row"]])
    is_range = events.select(event.is_in(RANGE_TYPES)).to_series()
    inverted = events.select(pl.col("end_ns") < pl.col("start_ns")).to_series().fill_null(False)
    found = events.filter(is_range & ~inverted)
    nested, order = _nested(_read(found, strings, capture_end_ns(trace)))
    faults = RangeFaults(
        inverted=int((is_range & inverted).sum()),
        dangling=_dangling(rows, strings),
        never_closed=int(nested["open"].sum()),
        repeated=_repeated(nested, order),
        depth=int(str(nested["depth"].max() or 0)),
    )
    return _Nvtx(nested, order, instants, table, faults)


def _with_names(stacks: pl.DataFrame, rows: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    created = rows.filter(pl.col("event_type") == DOMAIN_CREATE)
    names = resolved(created, strings, "text", "text_id").select(
        "report", "pid", "domain", pl.col("text").alias("domain_name")
    )
    names = names.unique(["report", "pid", "domain"], keep="last", maintain_order=True)
    keys = ["report", "pid", "domain"]
    named = stacks.join(names, on=keys, how="left", nulls_equal=True, maintain_order="left")
    default = pl.col("domain") == 0
    nameless = pl.when(default).then(pl.lit("")).otherwise(pl.format("domain#{}", "domain"))
    return named.with_columns(pl.coalesce("domain_name", nameless).alias("domain_name"))


def _dangling(rows: pl.DataFrame, strings: pl.DataFrame) -> int:
    """Rows with the id of a string that does not exist."""
    if rows["text_id"].null_count() == rows.height:
        return 0
    by_id = rows.lazy().filter(pl.col("text").is_null()).group_by("text_id").len().collect()
    known = strings.select(pl.col("id").alias("text_id"))
    return int(by_id.drop_nulls("text_id").join(known, on="text_id", how="anti")["len"].sum())


def _read(found: pl.DataFrame, strings: pl.DataFrame, capture_end: int) -> pl.DataFrame:
    end = pl.max_horizontal(pl.lit(max(capture_end, 0), pl.Int64), "start_ns")
    return found.select(
        "stack",
        "start_ns",
        pl.col("end_ns").fill_null(end),
        pl.col("end_ns").is_null().alias("open"),
        pl.col("event_type").is_in(PUSH_POP_TYPES).alias("push_pop"),
        _texts(found, strings),
        "nvtx_row",
    )


def _texts(rows: pl.DataFrame, strings: pl.DataFrame) -> pl.Series:
    """Text of each row; few are distinct compared with the number of ranges."""
    own = rows["text"]
    if own.null_count() == 0:
        return own.cast(pl.Categorical)
    without = own.is_null().arg_true()
    number, ids = row_numbers(rows.select(pl.col("text_id").gather(without)))
    ids = ids.with_columns(pl.lit(None, pl.String).alias("text"))
    texts = resolved(ids, strings, "text", "text_id")["text"].fill_null("").cast(pl.Categorical)
    if len(without) == rows.height:
        return texts[number].alias("text")
    code = own.cast(pl.Categorical).to_physical().fill_null(0).to_numpy(writable=True)
    code[without.to_numpy()] = texts.to_physical().to_numpy()[number]
    return pl.Series("text", code).cat.to(pl.Categorical)


def _repeated(found: pl.DataFrame, order: NDArray[np.uint32]) -> int:
    """Closed ranges that repeat another; only those of the same times are compared."""
    starts, ends = (found[c].to_numpy() for c in ("start_ns", "end_ns"))
    whole = order if order.size == found.height else stacks.outer_first(starts, ends)
    rows = pl.Series(stacks.alike(starts, ends, whole))
    twins = found.select("stack", "start_ns", "end_ns", "text", "open")[rows]
    twins = twins.filter(~pl.col("open"))
    return twins.height - twins.unique(["stack", "start_ns", "end_ns", "text"]).height


def _nested(rows: pl.DataFrame) -> tuple[pl.DataFrame, NDArray[np.uint32]]:
    """Add parents and depths of push/pop ranges, a stack per thread and domain."""
    stacked = None if rows["push_pop"].all() else rows["push_pop"].arg_true()
    columns = (rows[c] if stacked is None else rows[c][stacked] for c in _STACKED)
    starts, ends, stack = (c.to_numpy() for c in columns)
    order = stacks.outer_first(starts, ends)
    parent, depth = stacks.nest(starts, ends, stack, int(stack.max(initial=0)) + 1, order)
    if stacked is not None:
        at = stacked.to_numpy().astype(np.int32)
        order = at[order]
        inside = np.where(parent >= 0, at[parent], -1) if at.size else parent
        parent, own_depth = np.full(rows.height, -1, np.int32), depth
        depth = np.zeros(rows.height, np.int32)
        parent[at], depth[at] = inside, own_depth
    above = pl.Series("parent", parent)
    above = above.set(above < 0, None)
    last = rows["nvtx_row"]
    nested = rows.drop("nvtx_row").with_columns(above, pl.Series("depth", depth), last)
    return nested, order.astype(np.uint32)


_STACKED = ("start_ns", "end_ns", "stack")


@view
def ranges(trace: Trace) -> pl.DataFrame:
    """Return the NVTX ranges.

    Returns:
        Frame of stack UInt32 (row of `range_stacks`), start_ns Int64, end_ns Int64, open Boolean
        (never closed: end is the end of the capture), push_pop Boolean, text Categorical, parent
        Int32 (row in this frame of the enclosing range of the same thread and domain, null at the
        top), depth Int32 (0 at the top), nvtx_row UInt32 (row in the catalog frame); in the order
        of the catalog frame. Ranges that end before they start are left out.
    """
    return _nvtx(trace).ranges


@view
def outer_first_order(trace: Trace) -> NDArray[np.uint32]:
    """Return the rows of push/pop ranges by start; of equal starts the longest first; uint32."""
    return _nvtx(trace).order


@view
def range_stacks(trace: Trace) -> pl.DataFrame:
    """Return the threads and domains of NVTX rows.

    Returns:
        Frame of report UInt16, pid UInt32, tid UInt32, domain Int64, domain_name String ("" for
        the default domain, "domain#2" for a nameless one); sorted by the first four, nulls last.
    """
    return _nvtx(trace).stacks


@view
def range_faults(trace: Trace) -> RangeFaults:
    """Count the NVTX rows and ranges that are not what they should be."""
    return _nvtx(trace).faults


def described(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `ranges` with the columns of `range_stacks`, and text as String.

    Args:
        trace: The run.
        rows: Has the columns ``stack`` and ``text``.
    """
    of = range_stacks(trace)[rows["stack"]] if rows.height else range_stacks(trace).clear()
    return of.hstack(rows.with_columns(pl.col("text").cast(pl.String)))


@view
def marks(trace: Trace) -> pl.DataFrame:
    """Return the NVTX marks.

    Returns:
        Frame of report UInt16, pid UInt32, tid UInt32, domain Int64, domain_name String, t_ns
        Int64, text String, int64 Int64, nvtx_row UInt32; in the order of the catalog frame.
    """
    found = described(trace, _nvtx(trace).marks.with_columns(pl.col("text").fill_null("")))
    return found.select(
        "report",
        "pid",
        "tid",
        "domain",
        "domain_name",
        pl.col("start_ns").alias("t_ns"),
        "text",
        "int64",
        "nvtx_row",
    )
