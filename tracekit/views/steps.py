"""Which NVTX ranges are steps and layers, and how long each step kept the device."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.trace import Trace, view
from tracekit.numerics import stacks
from tracekit.views.ranges import LIBRARY_DOMAINS, ranges

__all__ = ["STEP_TEXT", "range_scopes", "step_ranges", "thread_code"]

STEP_TEXT = r"(?i)\b(step|iter|iteration)\b[ =:#]*\d+"
"""Range texts that name a step when no explicit step marker exists."""
_STEP_NUMBER = r"(?i)\b(step|iter|iteration)\b([ =:#]*)\d+"
_LAYER_TEXT = r"(?i)\blayer[ =:]*(\d+)"
_STEP_MARKERS = re.compile(r"^(STEP\b|tk\.step$)").pattern
_LAYER_MARKERS = re.compile(r"^(LAYER\b|tk\.layer$)").pattern


def thread_code(prefix: str = "") -> pl.Expr:
    """Return an Int64 expression that tells threads of all reports apart.

    Args:
        prefix: Prefix of the ``pid`` and ``tid`` columns.
    """
    report = pl.col("report").cast(pl.Int64) * (1 << 48)
    return report + pl.col(f"{prefix}pid").cast(pl.Int64) * (1 << 24) + pl.col(f"{prefix}tid")


@view(of=[ranges])
def range_scopes(trace: Trace) -> pl.DataFrame:
    """Return the step and layer that each user range lies in.

    Only push/pop ranges outside the domains of libraries count, nested per thread across domains.
    A step is an explicit marker (``STEP ...`` or ``tk.step``) when the report of that process has
    any, else the outermost range whose text reads like ``step 12``. A layer is the nearest
    enclosing range that names one.

    Returns:
        Frame of range Int64 (row in `ranges`), thread Int64 (`thread_code`), start_ns Int64,
        end_ns Int64, step_range Int64 (row in `ranges` of the step; null outside steps), layer
        Int32; sorted as `ranges`.
    """
    user = (
        ranges(trace)
        .with_row_index("range")
        .filter(pl.col("push_pop") & ~pl.col("domain_name").is_in(_library_domains(trace)))
    )
    user = user.with_columns(thread_code().alias("thread"), pl.col("range").cast(pl.Int64))
    parent, _ = stacks.nest(
        user["start_ns"].to_numpy(), user["end_ns"].to_numpy(), user["thread"].to_numpy()
    )
    user = user.join(_read(user["text"]), on="text", how="left", maintain_order="left")
    marked = pl.col("_marked")
    explicit = marked.any().over("report", "pid")
    int64 = pl.col("int64").cast(pl.Int32, strict=False)
    layer = (
        pl.when("_layer_marker").then(pl.coalesce("_marker_layer", int64)).otherwise("_text_layer")
    )
    user = user.with_columns(
        pl.when(explicit).then(marked).otherwise("_looks").alias("is_step"),
        layer.alias("own_layer"),
    )
    own_step = np.where(user["is_step"].to_numpy(), user["range"].to_numpy(), -1)
    own_layer = user["own_layer"].fill_null(-1).to_numpy().astype(np.int64)
    return user.select(
        "range",
        "thread",
        "start_ns",
        "end_ns",
        _null_below_zero("step_range", _outermost(own_step, parent)),
        _null_below_zero("layer", _nearest(own_layer, parent)).cast(pl.Int32),
    )


def _library_domains(trace: Trace) -> list[str]:
    names = ranges(trace)["domain_name"].unique()
    return names.filter(names.str.contains(LIBRARY_DOMAINS)).sort().to_list()


def _read(texts: pl.Series) -> pl.DataFrame:
    """What each distinct text says; there are few beside the number of ranges."""
    text = pl.col("text")
    return pl.DataFrame({"text": texts.unique()}).with_columns(
        text.str.contains(_STEP_MARKERS).alias("_marked"),
        text.str.contains(STEP_TEXT).alias("_looks"),
        text.str.contains(_LAYER_MARKERS).alias("_layer_marker"),
        text.str.extract(r"\blayer=(\d+)").cast(pl.Int32, strict=False).alias("_marker_layer"),
        text.str.extract(_LAYER_TEXT).cast(pl.Int32, strict=False).alias("_text_layer"),
    )


def _outermost(own: NDArray[np.int64], parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Value of the outermost ancestor-or-self that has one (>= 0); pointer doubling."""
    best, up = own.copy(), parent.copy()
    while (up >= 0).any():
        above = np.where(up >= 0, best[up], -1)
        best = np.where(above >= 0, above, best)
        up = np.where(up >= 0, up[up], -1)
    return best


def _nearest(own: NDArray[np.int64], parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Value of the nearest ancestor-or-self that has one (>= 0); pointer doubling."""
    best, up = own.copy(), parent.copy()
    while (up >= 0).any():
        above = np.where(up >= 0, best[up], -1)
        best = np.where(best >= 0, best, above)
        up = np.where(up >= 0, up[up], -1)
    return best


def _null_below_zero(name: str, values: NDArray[np.int64]) -> pl.Series:
    series = pl.Series(name, values)
    return series.set(series < 0, None)


@view(of=[ranges, range_scopes])
def step_ranges(trace: Trace) -> pl.DataFrame:
    """Return the step ranges themselves.

    Returns:
        Frame of step UInt32 (0, 1, ... by report, start and range), range Int64, report UInt16,
        pid UInt32, tid UInt32, label String, group String (label with its number as N), start_ns
        Int64, end_ns Int64 (host range, clamped if it never closed).
    """
    scopes = range_scopes(trace)
    is_step = scopes.filter(pl.col("step_range") == pl.col("range")).get_column("range")
    rows = ranges(trace).with_row_index("range").with_columns(pl.col("range").cast(pl.Int64))
    rows = rows.filter(pl.col("range").is_in(is_step.implode())).sort("report", "start_ns", "range")
    text = pl.col("text")
    phase = text.str.extract(r"\bphase=(\w+)")
    group = (
        pl.when(text.str.contains(_STEP_MARKERS))
        .then(pl.concat_str(pl.lit("step=N"), pl.format(" phase={}", phase), ignore_nulls=True))
        .otherwise(text.str.replace(_STEP_NUMBER, "${1}${2}N"))
    )
    return rows.with_row_index("step").select(
        pl.col("step").cast(pl.UInt32),
        "range",
        "report",
        "pid",
        "tid",
        text.alias("label"),
        group.alias("group"),
        "start_ns",
        "end_ns",
    )
