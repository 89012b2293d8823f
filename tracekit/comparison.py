"""Two runs side by side: device time by class and by kernel name, per step where both have steps.

It says what differs, never why: less time in one class is not a proof of less memory traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tracekit.engine import open_trace
from tracekit.io.source import Reader
from tracekit.model.table import Column, Table
from tracekit.model.trace import Trace
from tracekit.views.activity import activity
from tracekit.views.attribution import attribution, steps
from tracekit.views.kernels import kernel_names

__all__ = ["BY_KIND", "BY_NAME", "Comparison", "compare"]

I64, F64, STR = pl.Int64, pl.Float64, pl.String
_NUMBERS = (
    Column("n_before", I64, "", "executions before"),
    Column("n_after", I64, "", "executions after"),
    Column("before_ns", I64, "ns", "sum of durations before"),
    Column("after_ns", I64, "ns", "sum of durations after"),
    Column("before_per_step_ns", F64, "ns", "inside steps, per step; null without steps"),
    Column("after_per_step_ns", F64, "ns", "inside steps, per step; null without steps"),
    Column("change_ns", F64, "ns", "after - before, per step where both have steps"),
)
BY_KIND = Table(
    "by_kind", (Column("kind", STR, "", "class of device work"), *_NUMBERS), "one class of work"
)
BY_NAME = Table(
    "by_name",
    (
        Column("name", STR, "", "kernel name"),
        Column("kind", STR, "", "its class"),
        Column("seen", STR, "", "both, new (only after) or gone (only before)"),
        *_NUMBERS,
    ),
    "one kernel name",
)


@dataclass(frozen=True)
class Comparison:
    """What differs between two runs.

    Attributes:
        before: Names of the reports before.
        after: Names of the reports after.
        n_steps: Steps with device work before and after.
        per_step: Whether both runs have steps, so that times per step are comparable.
        by_kind: Frame of `BY_KIND`, largest change first.
        by_name: Frame of `BY_NAME`, largest change first.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    n_steps: tuple[int, int]
    per_step: bool
    by_kind: pl.DataFrame
    by_name: pl.DataFrame


def compare(
    before: Sequence[Path], after: Sequence[Path], *, reader: Reader = "auto"
) -> Comparison:
    """Compare two runs.

    Args:
        before: Reports of the first run.
        after: Reports of the second run.
        reader: How tables are read.

    Raises:
        InputError: A run has no usable report.
    """
    sides = []
    for paths in (before, after):
        with open_trace(paths, reader=reader) as (trace, _):
            n = steps(trace)["gpu_start_ns"].drop_nulls().len()
            sides.append((tuple(r.name for r in trace.reports), n, _by_name(trace)))
    (names_b, steps_b, rows_b), (names_a, steps_a, rows_a) = sides
    per_step = steps_b > 0 and steps_a > 0
    keys = {"by_kind": ["kind"], "by_name": ["name", "kind"]}
    frames = {
        part: _joined(rows_b, rows_a, by, (steps_b, steps_a), per_step=per_step)
        for part, by in keys.items()
    }
    names = frames["by_name"].filter(pl.col("name").is_not_null())
    return Comparison(
        names_b,
        names_a,
        (steps_b, steps_a),
        per_step,
        BY_KIND.conform(frames["by_kind"]),
        BY_NAME.conform(names),
    )


def _by_name(trace: Trace) -> pl.DataFrame:
    """Executions and time by class and name, all and inside steps."""
    work = activity(trace).hstack(attribution(trace).select("step"))
    length = pl.col("end_ns") - pl.col("start_ns")
    inside = pl.col("step").is_not_null()
    rows = work.group_by("name_key", pl.col("kind").cast(pl.String)).agg(
        pl.len().cast(I64).alias("n"),
        length.sum().alias("time_ns"),
        length.filter(inside).sum().alias("in_steps_ns"),
    )
    names = kernel_names(trace).select("name_key", "name")
    return rows.join(names, on="name_key", how="left").drop("name_key")


def _joined(
    before: pl.DataFrame,
    after: pl.DataFrame,
    by: list[str],
    n_steps: tuple[int, int],
    *,
    per_step: bool,
) -> pl.DataFrame:
    sums = pl.col("n", "time_ns", "in_steps_ns").sum()
    sides = [side.group_by(by).agg(sums) for side in (before, after)]
    both = sides[0].join(sides[1], on=by, how="full", coalesce=True, nulls_equal=True, suffix="_a")
    seen = (
        pl.when(pl.col("n").is_null())
        .then(pl.lit("new"))
        .when(pl.col("n_a").is_null())
        .then(pl.lit("gone"))
        .otherwise(pl.lit("both"))
    )
    numbers = ["n", "time_ns", "in_steps_ns", "n_a", "time_ns_a", "in_steps_ns_a"]
    both = both.with_columns(seen.alias("seen")).with_columns(pl.col(numbers).fill_null(0))
    both = both.with_columns(
        pl.col("n").alias("n_before"),
        pl.col("n_a").alias("n_after"),
        pl.col("time_ns").alias("before_ns"),
        pl.col("time_ns_a").alias("after_ns"),
        (pl.col("in_steps_ns") / n_steps[0] if n_steps[0] else pl.lit(None, F64)).alias(
            "before_per_step_ns"
        ),
        (pl.col("in_steps_ns_a") / n_steps[1] if n_steps[1] else pl.lit(None, F64)).alias(
            "after_per_step_ns"
        ),
    )
    unit = ("before_per_step_ns", "after_per_step_ns") if per_step else ("before_ns", "after_ns")
    change = (pl.col(unit[1]) - pl.col(unit[0])).cast(F64).alias("change_ns")
    order = [pl.col("change_ns").abs(), *(pl.col(c) for c in by)]
    return both.with_columns(change).sort(order, descending=[True, *(False for _ in by)])
