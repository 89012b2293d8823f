"""Columns of what `step_budget` computes."""

from __future__ import annotations

import polars as pl

from tracekit.model.table import Column, Table
from tracekit.views.idle.budget import CLASSES
from tracekit.views.idle.families import FAMILIES

__all__ = ["COMPONENTS", "GROUPS", "OUTLIERS", "STEPS", "idle_column"]

GPU = Column("gpu", pl.Int16, "", "index of the GPU; null when unknown")
GROUP = Column("step_group", pl.String, "", "text of the steps with N for their number")


def idle_column(family: str) -> str:
    """Return the column of idle time of a kind of cause."""
    return f"idle_{family.replace(' ', '_').replace('-', '_')}_ns"


STEPS = Table(
    "steps",
    (
        GPU,
        GROUP,
        Column("step", pl.UInt32, "", "number of the step; null for the whole span"),
        Column("label", pl.String, "", "text of the step"),
        Column("start_ns", pl.Int64, "ns", "first start of its device work"),
        Column("span_ns", pl.Int64, "ns", "first start to last end"),
        *(Column(f"{c}_ns", pl.Int64, "ns", f"{c}, where no earlier column runs") for c in CLASSES),
        Column("idle_ns", pl.Int64, "ns", "nothing runs: the sum of the columns that follow"),
        *(Column(idle_column(f), pl.Int64, "ns", f"idle: {f}") for f in FAMILIES),
        Column("between_ns", pl.Int64, "ns", "to the first start of the next step"),
        Column("n_work", pl.UInt32, "", "operations launched in it"),
        Column("cut", pl.Boolean, "", "its work goes on after the next step has begun"),
    ),
    "one step on one GPU; classes and idle time add up to the span",
)
COMPONENTS = Table(
    "components",
    (
        GPU,
        GROUP,
        Column("n_steps", pl.Int64, "", "steps; 0 for the whole span"),
        Column("where", pl.String, "", "in steps or between steps"),
        Column("component", pl.String, "", "class of work, or idle with its kind of cause"),
        Column("is_idle", pl.Boolean, "", "whether nothing runs"),
        Column("sum_ns", pl.Int64, "ns", "over all steps: these add up to the sum of the spans"),
        Column("median_ns", pl.Float64, "ns", "of a step: medians do not add up"),
        Column("frac", pl.Float64, "1", "share of the sum of the spans"),
        Column("hidden_ns", pl.Int64, "ns", "time behind an earlier component, outside the sum"),
    ),
    "one component of the steps of a group, in the order in which they count",
)
GROUPS = Table(
    "groups",
    (
        GPU,
        GROUP,
        Column("n_steps", pl.Int64, "", "steps; 0 for the whole span"),
        Column("span_ns", pl.Int64, "ns", "sum of the spans"),
        Column("median_ns", pl.Float64, "ns", "median span"),
        Column("between_ns", pl.Int64, "ns", "time between the steps, pauses included"),
        Column("between_median_ns", pl.Float64, "ns", "median time to the next step"),
        Column("threshold_ns", pl.Float64, "ns", "longer steps are outliers; null below 5 steps"),
        Column("n_outliers", pl.Int64, "", "outliers"),
        Column("excess_ns", pl.Int64, "ns", "what outliers take beyond the median, together"),
        Column("n_cut", pl.Int64, "", "steps whose work goes on after the next has begun"),
    ),
    "the steps of one group on one GPU",
)
OUTLIERS = Table(
    "outliers",
    (
        GPU,
        GROUP,
        Column("step", pl.UInt32, "", "number of the step"),
        Column("label", pl.String, "", "text of the step"),
        Column("start_ns", pl.Int64, "ns", "first start of its device work"),
        Column("span_ns", pl.Int64, "ns", "its span"),
        Column("median_ns", pl.Float64, "ns", "median span of the group"),
        Column("excess_ns", pl.Float64, "ns", "span - median"),
        Column("component", pl.String, "", "component that differs most"),
        Column("component_excess_ns", pl.Float64, "ns", "by how much"),
        Column("component_frac", pl.Float64, "1", "share of the excess"),
    ),
    "one step that took much longer than its like",
)
