"""Where the time of a step goes, to the nanosecond.

Every nanosecond of a step's span belongs to the first class of work that runs in it, in a fixed
order; where nothing runs it is idle, divided by cause. The time to the next step is its own part.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.analyses.step_budget import tables
from tracekit.analyses.step_budget.compute import VIEWS, compute
from tracekit.analyses.step_budget.verdict import verdict
from tracekit.trace.analysis import Analysis, Frames, param

__all__ = ["ANALYSIS", "Params"]


@dataclass(frozen=True)
class Params:
    """Parameters of `step_budget`."""

    warn_excess_frac: float = param(
        0.05, unit="1", help="share of a group's time in outlier steps beyond the median that warns"
    )


def plot(frames: Frames, axes: object) -> None:
    """Draw the components of the step group that takes most time as a waterfall."""
    groups = frames["groups"].filter(pl.col("span_ns") > 0)
    if groups.is_empty():
        return
    largest = groups.sort("span_ns", descending=True, maintain_order=True).row(0, named=True)
    rows = frames["components"].filter(
        pl.col("gpu").eq_missing(pl.lit(largest["gpu"], pl.Int16))
        & (pl.col("step_group") == largest["step_group"])
        & (pl.col("where") == "in steps")
    )
    left = 0.0
    for name, frac in rows.select("component", "frac").iter_rows():
        axes.barh([name], [frac], left=left, height=0.6)  # type: ignore[attr-defined]
        left += frac
    axes.set_xlabel("share of step time (0..1)")  # type: ignore[attr-defined]
    axes.invert_yaxis()  # type: ignore[attr-defined]


ANALYSIS = Analysis(
    name="step_budget",
    question="Where does the time of a step go?",
    requires=(),
    views=VIEWS,
    params=Params,
    results=(tables.STEPS, tables.COMPONENTS, tables.GROUPS, tables.OUTLIERS),
    compute=compute,
    verdict=verdict,
    plot=plot,
)
