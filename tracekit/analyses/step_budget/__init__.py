"""Where the time of a step goes, to the nanosecond.

Every nanosecond of a step's span belongs to the first class of work that runs in it, in a fixed
order; where nothing runs it is idle, divided by cause. The time to the next step is its own part.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analyses.step_budget import tables
from tracekit.analyses.step_budget.chart import chart
from tracekit.analyses.step_budget.compute import compute
from tracekit.analyses.step_budget.verdict import verdict
from tracekit.trace.analysis import Analysis, param

__all__ = ["ANALYSIS", "Params"]


@dataclass(frozen=True)
class Params:
    """Parameters of `step_budget`."""

    warn_excess_frac: float = param(
        0.05, unit="1", help="share of a group's time in outlier steps beyond the median that warns"
    )


ANALYSIS = Analysis(
    name="step_budget",
    question="Where does the time of a step go?",
    requires=(),
    params=Params,
    results=(tables.STEPS, tables.COMPONENTS, tables.GROUPS, tables.OUTLIERS),
    compute=compute,
    verdict=verdict,
    chart=chart,
)
