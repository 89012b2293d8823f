"""The steps of each GPU as disjoint windows, and the time between them."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity
from tracekit.views.idle.timelines import timelines
from tracekit.views.launches.attribution import attribution, steps

__all__ = ["BETWEEN", "STEP", "WHOLE", "step_windows"]

STEP, BETWEEN, WHOLE = "step", "between steps", "whole span"
"""What a window is: a step, the time from one to the next, or all that there is without steps."""
_KINDS = pl.Enum([STEP, BETWEEN, WHOLE])
_NO_STEP = np.iinfo(np.uint32).max
WINDOWS = pl.Schema(
    {
        "timeline": pl.UInt16(),
        "chain": pl.UInt32(),
        "what": _KINDS,
        "step": pl.UInt32(),
        "group": pl.String(),
        "label": pl.String(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "n_work": pl.UInt32(),
        "cut": pl.Boolean(),
        "regular": pl.Boolean(),
    }
)
"""Columns of `step_windows`."""


@view
def step_windows(trace: Trace) -> pl.DataFrame:
    """Return from when to when each step kept each of its GPUs, and the time to the next step.

    Returns:
        Frame of `WINDOWS`, sorted by timeline, chain (the steps of one process on one GPU) and
        start: timeline UInt16 (of `timelines`), what (`STEP`, `BETWEEN` or `WHOLE`), step UInt32
        (that a `BETWEEN` follows), group and label, n_work (operations launched in the step), cut
        (the step's own work goes on after the next has begun: it ends there), regular (of a
        `BETWEEN`: the next step is of the same group). The windows of a chain are disjoint. Without
        any step one `WHOLE` a timeline, from its first start to its last end.
    """
    spans = _spans(trace)
    if spans.is_empty():
        return _whole(trace)
    known = steps(trace).select("step", "group", "label", "report", "pid")
    rows = spans.join(known, on="step", how="left")
    chain = pl.struct("timeline", "report", "pid").rank("dense").cast(pl.UInt32).alias("chain")
    rows = rows.with_columns(chain).sort("chain", "start_ns", "step")
    follows = pl.col("start_ns").shift(-1).over("chain")
    same = (pl.col("group").shift(-1).over("chain") == pl.col("group")).fill_null(False)
    rows = rows.with_columns(follows.alias("next_ns"), same.alias("regular"))
    cut = (pl.col("next_ns") < pl.col("end_ns")).fill_null(False)
    within = rows.select(
        *("timeline", "chain", pl.lit(STEP).alias("what"), "step", "group", "label", "start_ns"),
        pl.when(cut).then("next_ns").otherwise("end_ns").alias("end_ns"),
        "n_work",
        cut.alias("cut"),
        pl.lit(value=False).alias("regular"),
    )
    between = rows.filter(pl.col("next_ns") >= pl.col("end_ns")).select(
        *("timeline", "chain", pl.lit(BETWEEN).alias("what"), "step", "group", "label"),
        pl.col("end_ns").alias("start_ns"),
        pl.col("next_ns").alias("end_ns"),
        pl.lit(0).alias("n_work"),
        pl.lit(value=False).alias("cut"),
        "regular",
    )
    both = pl.concat([within.cast(WINDOWS), between.cast(WINDOWS)])
    return both.sort("timeline", "chain", "start_ns", "end_ns")


def _spans(trace: Trace) -> pl.DataFrame:
    """First start, last end and number of operations of each step on each timeline."""
    work, step = activity(trace), attribution(trace)["step"]
    found = []
    for number, line in enumerate(timelines(trace)):
        own = line.of(step).fill_null(_NO_STEP).to_numpy()
        if not own.size:
            continue
        start, end = (line.of(work[c]).to_numpy() for c in ("start_ns", "end_ns"))
        # Work of one step comes in few runs.
        first = np.flatnonzero(np.append(True, own[1:] != own[:-1]))
        runs = pl.DataFrame(
            {
                "step": own[first],
                "start_ns": start[first],
                "end_ns": np.maximum.reduceat(end, first),
                "n_work": np.diff(first, append=own.size),
            },
            schema_overrides={"step": pl.UInt32},
        )
        sums = (pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("n_work").sum())
        spans = runs.filter(pl.col("step") != _NO_STEP).group_by("step").agg(sums)
        found.append(spans.with_columns(pl.lit(number, pl.UInt16).alias("timeline")))
    return pl.concat(found) if found else pl.DataFrame()


def _whole(trace: Trace) -> pl.DataFrame:
    work = activity(trace)
    found = []
    for number, line in enumerate(timelines(trace)):
        start, end = (line.of(work[c]) for c in ("start_ns", "end_ns"))
        found.append(
            {
                "timeline": number,
                "chain": number,
                "what": WHOLE,
                "group": WHOLE,
                "label": WHOLE,
                "start_ns": start.min(),
                "end_ns": end.max(),
                "n_work": len(start),
                "cut": False,
                "regular": False,
            }
        )
    return pl.DataFrame(found, schema=WINDOWS)
