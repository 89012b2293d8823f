"""The frames of `step_budget`."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.analyses.step_budget import tables
from tracekit.numerics.idle import causes
from tracekit.numerics.idle.waterfall import outlier_threshold
from tracekit.trace import Trace
from tracekit.views.idle.budget import CLASSES, budget
from tracekit.views.idle.families import FAMILIES
from tracekit.views.idle.timelines import timelines
from tracekit.views.idle.windows import BETWEEN

__all__ = ["compute"]

_OF_FAMILY = [np.flatnonzero(np.isin(causes.CAUSES, own)) for own in FAMILIES.values()]
_BUSY = [f"{c}_ns" for c in CLASSES]
_IDLE = [tables.idle_column(f) for f in FAMILIES]
_KEYS = ["gpu", "step_group"]


def compute(trace: Trace, _: Any) -> dict[str, pl.DataFrame]:
    """Return the frames of `step_budget`."""
    every = _windows(trace)
    steps = every.filter(pl.col("what") != BETWEEN)
    between = every.filter(pl.col("what") == BETWEEN)
    gaps = between.select(*_KEYS, "step", pl.col("span_ns").alias("between_ns"))
    steps = steps.join(
        gaps, on=[*_KEYS, "step"], how="left", nulls_equal=True, maintain_order="left"
    )
    groups, outliers = _groups(steps)
    return {
        "steps": tables.STEPS.conform(steps),
        "components": _components(steps, between),
        "groups": groups,
        "outliers": outliers,
    }


def _windows(trace: Trace) -> pl.DataFrame:
    """Steps and the time between them with their components, a row each."""
    spent = budget(trace)
    own, active = spent.own_ns, spent.active_ns
    families = np.stack([spent.idle_ns[:, of].sum(axis=1) for of in _OF_FAMILY], axis=1)
    span = pl.col("end_ns") - pl.col("start_ns")
    frame = spent.windows.select(
        pl.Series("gpu", [line.gpu for line in timelines(trace)], pl.Int16)
        .gather(spent.windows["timeline"])
        .alias("gpu"),
        *(pl.col("group").alias("step_group"), "what", "step", "label", "start_ns"),
        *(span.alias("span_ns"), "n_work", "cut"),
    )
    named = {**_named(_BUSY, own), "idle_ns": families.sum(axis=1), **_named(_IDLE, families)}
    hidden = _named([f"hidden_{c}" for c in _BUSY], active - own)
    frame = frame.with_columns(pl.Series(n, v) for n, v in {**named, **hidden}.items())
    total = own.sum(axis=1) + families.sum(axis=1)
    if not np.array_equal(total, frame["span_ns"].to_numpy()):
        message = "components do not add up to the steps"
        raise AssertionError(message)
    return frame


def _named(names: list[str], values: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    return {name: values[:, at] for at, name in enumerate(names)}


def _components(steps: pl.DataFrame, between: pl.DataFrame) -> pl.DataFrame:
    """Sums, medians and shares of every component that occurs, in the order of priority."""
    found = []
    for (gpu, group), own in steps.group_by(_KEYS, maintain_order=True):
        gaps = between.filter(
            pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16)) & (pl.col("step_group") == group)
        )
        span = max(int(own["span_ns"].sum()), 1)
        n_steps = own["step"].drop_nulls().len()
        for where, rows in (("in steps", own), ("between steps", gaps)):
            for name in (*_BUSY, *_IDLE):
                total = int(rows[name].sum())
                hidden = 0 if name in _IDLE else int(rows[f"hidden_{name}"].sum())
                if not total and not hidden:
                    continue
                row = {
                    "gpu": gpu,
                    "step_group": group,
                    "n_steps": n_steps,
                    "where": where,
                    "component": _word(name),
                    "is_idle": name in _IDLE,
                    "sum_ns": total,
                    "median_ns": rows[name].median(),
                    "frac": total / span,
                    "hidden_ns": hidden,
                }
                found.append(row)
    return pl.DataFrame(found, schema=tables.COMPONENTS.schema)


def _word(column: str) -> str:
    """Return what to call a component."""
    if column in _IDLE:
        return f"idle: {list(FAMILIES)[_IDLE.index(column)]}"
    return column.removesuffix("_ns")


def _groups(steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The groups, and the steps that took much longer than their like."""
    groups, outliers = [], []
    for (gpu, group), own in steps.group_by(_KEYS, maintain_order=True):
        spans = own["span_ns"].to_numpy()
        limit = outlier_threshold(spans) if own["step"].null_count() == 0 else None
        beyond = own.clear() if limit is None else own.filter(pl.col("span_ns") > limit)
        median = float(np.median(spans))
        outliers += [_outlier(own, row, median) for row in beyond.iter_rows(named=True)]
        groups.append(
            {
                "gpu": gpu,
                "step_group": group,
                "n_steps": own["step"].drop_nulls().len(),
                "span_ns": int(spans.sum()),
                "median_ns": median,
                "between_ns": int(own["between_ns"].sum()),
                "between_median_ns": own["between_ns"].median(),
                "threshold_ns": limit,
                "n_outliers": beyond.height,
                "n_cut": int(own["cut"].sum()),
                "excess_ns": round(float((beyond["span_ns"] - median).sum())),
            }
        )
    return (
        pl.DataFrame(groups, schema=tables.GROUPS.schema),
        pl.DataFrame(outliers, schema=tables.OUTLIERS.schema),
    )


def _outlier(own: pl.DataFrame, row: dict[str, Any], median: float) -> dict[str, Any]:
    """What differs most in one step from the median of its group."""
    names = [*_BUSY, "idle_ns"]
    more = {name: row[name] - float(own[name].median() or 0.0) for name in names}  # type: ignore[arg-type]
    most = max(names, key=lambda name: more[name])
    excess = row["span_ns"] - median
    what = most.removesuffix("_ns")
    if most == "idle_ns":
        of = {name: row[name] - float(own[name].median() or 0.0) for name in _IDLE}  # type: ignore[arg-type]
        what = _word(max(_IDLE, key=lambda name: of[name]))
    return {
        **{c: row[c] for c in ("gpu", "step_group", "step", "label", "start_ns", "span_ns")},
        "median_ns": median,
        "excess_ns": excess,
        "component": what,
        "component_excess_ns": more[most],
        "component_frac": more[most] / excess,
    }
