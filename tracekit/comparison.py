"""Two runs side by side: device time by class and by kernel name, per step where both have steps.

It says what differs, never why: less time in one class is not a proof of less memory traffic. What
a run did not record (no device activity, graphs traced as a whole) is unknown in it, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from tracekit.model.kernels import kernel_key
from tracekit.model.table import Column, Table
from tracekit.opening import OpenOptions, Paths, open_trace
from tracekit.trace import Trace
from tracekit.views.device.activity import activity
from tracekit.views.device.kernels import OPAQUE, kernel_names
from tracekit.views.idle.budget import budget
from tracekit.views.idle.windows import BETWEEN, STEP
from tracekit.views.launches.attribution import attribution, steps
from tracekit.views.overview.totals import OPAQUE_WORTH_SAYING, overview

__all__ = ["BY_KIND", "BY_NAME", "Comparison", "compare"]

I64, F64, STR = pl.Int64, pl.Float64, pl.String
_NUMBERS = (
    Column("n_before", I64, "", "executions before; null where unknown"),
    Column("n_after", I64, "", "executions after; null where unknown"),
    Column("before_ns", I64, "ns", "sum of durations before; null where unknown"),
    Column("after_ns", I64, "ns", "sum of durations after; null where unknown"),
    Column("before_per_step_ns", F64, "ns", "inside steps, per step; null also without steps"),
    Column("after_per_step_ns", F64, "ns", "inside steps, per step; null also without steps"),
    Column(
        "change_ns",
        F64,
        "ns",
        "after - before, per step where both have steps; null where a run is incomplete",
    ),
)
BY_KIND = Table(
    "by_kind", (Column("kind", STR, "", "class of device work"), *_NUMBERS), "one class of work"
)
BY_NAME = Table(
    "by_name",
    (
        Column("name", STR, "", "kernel name as recorded, after if it ran there"),
        Column("name_before", STR, "", "its spelling before; null where that is the same"),
        Column("kind", STR, "", "its class"),
        Column("seen", STR, "", "both, new (only after), gone (only before) or unknown"),
        *_NUMBERS,
    ),
    "one kernel name; spellings of one name are one row",
)


@dataclass(frozen=True)
class Comparison:
    """What differs between two runs.

    Attributes:
        before: Names of the reports before.
        after: Names of the reports after.
        n_steps: Steps with device work before and after.
        step_ns: Median GPU span of these, ns; None without any.
        idle_ns: Median time inside of them in which their GPU does nothing, ns; None without any.
        between_ns: Median time from a step's last work to the next one's first, ns; None without.
        opaque_frac: Share of the busy time before and after that belongs to graphs that were traced
            as a whole; None where no device activity was recorded.
        per_step: Whether both runs have steps, so that times per step are comparable.
        by_kind: Frame of `BY_KIND`, largest change first.
        by_name: Frame of `BY_NAME`, largest change first.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    n_steps: tuple[int, int]
    step_ns: tuple[float | None, float | None]
    idle_ns: tuple[float | None, float | None]
    between_ns: tuple[float | None, float | None]
    opaque_frac: tuple[float | None, float | None]
    per_step: bool
    by_kind: pl.DataFrame
    by_name: pl.DataFrame


class _Side(NamedTuple):
    """One run: its reports, steps with their median span, what is opaque, rows of `_by_name`."""

    names: tuple[str, ...]
    n_steps: int
    step_ns: float | None
    idle_ns: float | None
    between_ns: float | None
    opaque_frac: float | None
    rows: pl.DataFrame

    @property
    def is_blind(self) -> bool:
        """Whether work may have run that was not recorded."""
        return self.opaque_frac is None or self.opaque_frac > OPAQUE_WORTH_SAYING


def compare(
    before: Paths,
    after: Paths,
    *,
    options: OpenOptions = OpenOptions(),  # noqa: B008 - frozen
) -> Comparison:
    """Compare two runs.

    Args:
        before: Reports of the first run, one path or several.
        after: Reports of the second run likewise.
        options: How both are opened.

    Raises:
        InputError: A run has no usable report.
    """
    sides = []
    for paths in (before, after):
        with open_trace(paths, options=options) as trace:
            sides.append(_side(trace))
    first, last = sides
    per_step = first.n_steps > 0 and last.n_steps > 0
    keys = {"by_kind": ["kind"], "by_name": ["key", "kind"]}
    frames = {part: _joined(first, last, by, per_step=per_step) for part, by in keys.items()}
    names = _spelled(frames["by_name"].filter(pl.col("key").is_not_null()))
    return Comparison(
        first.names,
        last.names,
        (first.n_steps, last.n_steps),
        (first.step_ns, last.step_ns),
        (first.idle_ns, last.idle_ns),
        (first.between_ns, last.between_ns),
        (first.opaque_frac, last.opaque_frac),
        per_step,
        BY_KIND.conform(frames["by_kind"]),
        BY_NAME.conform(names),
    )


def _side(trace: Trace) -> _Side:
    spans = steps(trace).select(pl.col("gpu_end_ns") - pl.col("gpu_start_ns")).to_series()
    spans = spans.drop_nulls()
    gpus = overview(trace).gpus
    busy_ns = sum(g.busy_ns for g in gpus)
    opaque_frac = sum(g.opaque_ns for g in gpus) / busy_ns if busy_ns else None
    names, median = tuple(r.name for r in trace.reports), spans.median()
    step_ns = median if isinstance(median, float) else None
    rows = _by_name(trace)
    return _Side(names, len(spans), step_ns, *_idle(trace), opaque_frac, rows)


def _idle(trace: Trace) -> tuple[float | None, float | None]:
    """Median idle time inside steps, and median time between them, ns."""
    spent = budget(trace)
    windows = spent.windows.with_columns(pl.Series("idle_ns", spent.idle_ns.sum(axis=1)))
    length = pl.col("end_ns") - pl.col("start_ns")
    idle = windows.filter(pl.col("what") == STEP)["idle_ns"].median()
    between = windows.filter(pl.col("what") == BETWEEN).select(length).to_series().median()
    return tuple(m if isinstance(m, float) else None for m in (idle, between))  # type: ignore[return-value]


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
    keys = pl.Series("key", [kernel_key(name) for name in names["name"]], STR)
    return rows.join(names.hstack([keys]), on="name_key", how="left").drop("name_key")


def _joined(first: _Side, last: _Side, by: list[str], *, per_step: bool) -> pl.DataFrame:
    totals = pl.col("n", "time_ns", "in_steps_ns").sum(), pl.col("name").min()
    grouped = [side.rows.group_by(by).agg(totals) for side in (first, last)]
    both = grouped[0].join(
        grouped[1], on=by, how="full", coalesce=True, nulls_equal=True, suffix="_a"
    )
    absent = [(pl.col("n").is_null(), first), (pl.col("n_a").is_null(), last)]
    seen = pl.lit("both")
    for (missing, side), word in zip(absent, ("new", "gone"), strict=True):
        seen = pl.when(missing).then(pl.lit("unknown" if side.is_blind else word)).otherwise(seen)
    both = both.with_columns(seen.alias("seen"))
    for end, side in (("", first), ("_a", last)):
        numbers = pl.col(f"n{end}", f"time_ns{end}", f"in_steps_ns{end}")
        # That nothing opaque was recorded is known.
        zero = pl.when((pl.col("kind") == OPAQUE) | pl.lit(not side.is_blind)).then(0)
        both = both.with_columns(numbers.fill_null(zero))
    both = both.with_columns(
        pl.col("n").alias("n_before"),
        pl.col("n_a").alias("n_after"),
        pl.col("time_ns").alias("before_ns"),
        pl.col("time_ns_a").alias("after_ns"),
        _per_step("in_steps_ns", first).alias("before_per_step_ns"),
        _per_step("in_steps_ns_a", last).alias("after_per_step_ns"),
    )
    unit = ("before_per_step_ns", "after_per_step_ns") if per_step else ("before_ns", "after_ns")
    is_known = (pl.col("kind") == OPAQUE) | pl.lit(not (first.is_blind or last.is_blind))
    change = pl.when(is_known).then(pl.col(unit[1]) - pl.col(unit[0])).cast(F64).alias("change_ns")
    most = pl.max_horizontal(*unit).cast(F64)
    order = [pl.coalesce(pl.col("change_ns").abs(), most), *(pl.col(c) for c in by)]
    falling = [True, *(False for _ in by)]
    return both.with_columns(change).sort(order, descending=falling, nulls_last=True)


def _spelled(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns name and name_before of joined rows; of several spellings in one run, the first."""
    before, after = pl.col("name"), pl.col("name_a")
    is_other = before.is_not_null() & after.is_not_null() & (before != after)
    return rows.with_columns(
        pl.coalesce(after, before).alias("name"),
        pl.when(is_other).then(before).alias("name_before"),
    )


def _per_step(column: str, side: _Side) -> pl.Expr:
    return pl.col(column) / side.n_steps if side.n_steps else pl.lit(None, F64)
