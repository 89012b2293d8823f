"""Which NVTX ranges are steps and layers, and how long each step kept the device."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.nvtx import LIBRARY_DOMAINS
from tracekit.numerics import stacks
from tracekit.trace import Trace, view
from tracekit.views.keys import row_numbers
from tracekit.views.launches.graph_replays import GROUP, graph_replays
from tracekit.views.launches.step_names import (
    PROVENANCE,
    SOURCE,
    step_group,
    step_source,
    step_tier,
)
from tracekit.views.nvtx.ranges import described, outer_first_order, range_stacks, ranges

__all__ = ["range_scopes", "range_threads", "step_provenance", "step_ranges"]

_LAYER_TEXT = r"(?i)\blayer[ =:]*(\d+)"
_LAYER_MARKERS = re.compile(r"^(LAYER\b|tk\.layer$)").pattern


_NONE = -1
Int32 = NDArray[np.int32]


@view
def range_threads(trace: Trace) -> pl.DataFrame:
    """Return the threads with NVTX rows.

    Returns:
        Frame of report UInt16, pid UInt32, tid UInt32; sorted, nulls last. Its rows are the
        threads that `range_scopes` names.
    """
    return row_numbers(range_stacks(trace).select("report", "pid", "tid"))[1]


@view
def range_scopes(trace: Trace) -> pl.DataFrame:
    """Return the step and layer that each user range lies in.

    Only push/pop ranges outside the domains of libraries count, nested per thread across domains.
    A step is an explicit marker (``STEP ...`` or ``tk.step``) when the report of that process has
    any, else the outermost range whose text reads like ``step 12`` or is what a framework writes
    (`tracekit.views.step_names`). A layer is the nearest enclosing range that names one.

    Returns:
        Frame of range UInt32 (row in `ranges`), thread Int32 (row of `range_threads`), start_ns
        Int64, end_ns Int64, step_range Int32 (row in `ranges` of the step; null outside steps),
        layer Int32; by start, of equal starts the longest first.
    """
    table = range_stacks(trace)
    threads, known = row_numbers(table.select("report", "pid", "tid"))
    processes, _ = row_numbers(table.select("report", "pid"))
    of_library = table["domain_name"].str.contains(LIBRARY_DOMAINS).to_numpy()
    every = ranges(trace)
    stack = every["stack"].to_numpy()
    at = outer_first_order(trace)
    if of_library.any():
        at = at[~of_library[stack[at]]]
    user = every.select("start_ns", "end_ns", "text", "nvtx_row")[pl.Series("range", at)]
    stack = stack[at]
    said = _read(user["text"])
    own_step = np.where(said.is_step(processes[stack]), at.astype(np.int32), _NONE)
    own_layer = said.layer(trace.frame("nvtx")["int64"], user["nvtx_row"].to_numpy())
    thread = threads[stack].astype(np.int32)
    step, layer = stacks.inherited(
        user["start_ns"].to_numpy(),
        user["end_ns"].to_numpy(),
        thread,
        known.height,
        own_step,
        own_layer,
    )
    return user.select(
        pl.Series("range", at),
        pl.Series("thread", thread),
        "start_ns",
        "end_ns",
        _null_below_zero("step_range", step),
        _null_below_zero("layer", layer),
    )


class _Said(NamedTuple):
    """What the texts of ranges say.

    Attributes:
        code: uint32[n], number of the text of each range.
        by_code: Frame of what a text says, by its number; see `_meanings`.
    """

    code: NDArray[np.uint32]
    by_code: pl.DataFrame

    def is_step(self, process: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Whether each range is a step; process: uint32[n], the process of each range."""
        tier = self._column("tier")[self.code]
        highest = np.zeros(int(process.max(initial=0)) + 1, np.int8)
        np.maximum.at(highest, process, tier)
        found: NDArray[np.bool_] = (tier > 0) & (tier == highest[process])
        return found

    def layer(self, int64: pl.Series, nvtx_row: NDArray[np.uint32]) -> Int32:
        """Layer that each range names, -1 for none; a marker without one has it as its payload."""
        layer = self._column("layer")[self.code]
        at = np.flatnonzero(self._column("by_payload")[self.code])
        if at.size:
            payload = int64[nvtx_row[at]].cast(pl.Int32, strict=False)
            layer[at] = payload.fill_null(_NONE).to_numpy()
        found: Int32 = np.maximum(layer, _NONE)
        return found

    def _column(self, name: str) -> NDArray[Any]:
        return self.by_code[name].to_numpy()


def _read(texts: pl.Series) -> _Said:
    """Read each distinct text; there are few compared with the number of ranges."""
    code, distinct = row_numbers(texts.to_physical().to_frame())
    first = np.zeros(distinct.height, np.int64)
    first[code] = np.arange(code.size)
    return _Said(code, _meanings(texts[first].cast(pl.String)))


def _meanings(texts: pl.Series) -> pl.DataFrame:
    """How surely texts name a step, and the layer that they name."""
    text = pl.col("text")
    named = text.str.extract(_LAYER_TEXT).cast(pl.Int32, strict=False)
    in_marker = text.str.extract(r"\blayer=(\d+)").cast(pl.Int32, strict=False)
    is_marker = text.str.contains(_LAYER_MARKERS)
    return texts.to_frame("text").select(
        step_tier(text).alias("tier"),
        (is_marker & in_marker.is_null()).alias("by_payload"),
        pl.when(is_marker).then(in_marker).otherwise(named).fill_null(_NONE).alias("layer"),
    )


def _null_below_zero(name: str, values: Int32) -> pl.Series:
    series = pl.Series(name, values)
    return series.set(series < 0, None)


@view
def step_ranges(trace: Trace) -> pl.DataFrame:
    """Return the steps as the host ran them.

    Where no range of the run names a step, replays of CUDA graphs are the steps.

    Returns:
        Frame of step UInt32 (0, 1, ... by report, start and range), range UInt32 (null for a
        replay), report UInt16, pid UInt32, tid UInt32, label String, group String (label without
        what differs from step to step), source Enum `SOURCE`, start_ns Int64, end_ns Int64 (host
        range, clamped if it never closed).
    """
    scopes = range_scopes(trace)
    at = scopes.filter(pl.col("step_range") == pl.col("range"))["range"]
    if at.is_empty():
        return _replays(trace)
    rows = described(trace, ranges(trace)[at]).with_columns(at)
    rows = rows.sort("report", "start_ns", "range")
    text = pl.col("text")
    return rows.with_row_index("step").select(
        pl.col("step").cast(pl.UInt32),
        "range",
        "report",
        "pid",
        "tid",
        text.alias("label"),
        step_group(text).alias("group"),
        step_source(text).alias("source"),
        "start_ns",
        "end_ns",
    )


def _replays(trace: Trace) -> pl.DataFrame:
    rows = graph_replays(trace).steps.with_row_index("step")
    return rows.select(
        pl.col("step").cast(pl.UInt32),
        pl.lit(None, pl.UInt32).alias("range"),
        "report",
        "pid",
        "tid",
        pl.format("{} {}", pl.lit(GROUP), "step").alias("label"),
        pl.lit(GROUP).alias("group"),
        pl.lit(GROUP).cast(SOURCE).alias("source"),
        "start_ns",
        "end_ns",
    )


@view
def step_provenance(trace: Trace) -> float:
    """Return how surely the steps of the run are steps, 0..1; 0.6 without any."""
    sources = step_ranges(trace)["source"].unique()
    return min((PROVENANCE[source] for source in sources), default=PROVENANCE[GROUP])
