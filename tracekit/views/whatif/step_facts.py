"""What predictions rest on: typical times of the steps of each group on each GPU."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.numerics import intervals
from tracekit.numerics.idle import causes, waterfall
from tracekit.trace import Trace, view
from tracekit.views.idle.budget import CLASSES, budget
from tracekit.views.idle.gaps import gap_rows
from tracekit.views.idle.parts import idle_parts
from tracekit.views.idle.windows import BETWEEN
from tracekit.views.launches.attribution import host_calls, steps

__all__ = ["FACTS", "ONE_OFF", "step_facts"]

ONE_OFF = ("module_load", "allocation", "graph_build")
"""Causes that a run should have once, not in every step."""
_REMAINS_IN_GRAPH = ("sync", "copy_staging", *ONE_OFF)
FACTS = pl.Schema(
    {
        "timeline": pl.UInt16(),
        "group": pl.String(),
        "n_steps": pl.UInt32(),
        "span_ns": pl.Float64(),
        "between_ns": pl.Float64(),
        "busy_ns": pl.Float64(),
        "idle_ns": pl.Float64(),
        "n_work": pl.Float64(),
        "dequant_ns": pl.Float64(),
        "copy_ns": pl.Float64(),
        "sync_ns": pl.Float64(),
        "remains_ns": pl.Float64(),
        "after_wait_ns": pl.Float64(),
        "one_off_ns": pl.Float64(),
        "host_ns": pl.Float64(),
        "held_ns": pl.Float64(),
    }
)
"""Columns of `step_facts`."""


@view
def step_facts(trace: Trace) -> pl.DataFrame:
    """Return medians over the steps of each group.

    Returns:
        Frame of `FACTS`, sorted by timeline and group; n_steps is 0 for a capture without steps,
        which then is the one step. span_ns (first start to last end), between_ns (to the next step
        of the group), busy_ns, idle_ns, n_work (operations), dequant_ns and copy_ns (that nothing
        hides), sync_ns (idle because a thread waited, the time to the next step included),
        remains_ns (idle time of the span that a graph would not remove), after_wait_ns (host work
        after a wait inside the span), one_off_ns (idle through allocation and the like), host_ns
        (time to the next step in which the launching thread does not wait; null where it is not
        known) and held_ns (part of that in which it allocates and the like).
    """
    found = budget(trace)
    windows = found.windows.with_row_index("at")
    spans = windows.filter(pl.col("what") != BETWEEN)
    gaps = windows.filter((pl.col("what") == BETWEEN) & pl.col("regular")).select(
        "timeline", "step", next_at="at", period_end_ns="end_ns"
    )
    rows = spans.join(gaps, on=["timeline", "step"], how="left", maintain_order="left")
    at, then = rows["at"].to_numpy(), rows["next_at"].fill_null(0).to_numpy()
    has_next = rows["next_at"].is_not_null().to_numpy()
    idle, own = found.idle_ns[at], found.own_ns[at]
    between = np.where(has_next[:, None], found.idle_ns[then], 0) if at.size else idle
    host, held = _host(trace, rows)
    length = pl.col("end_ns") - pl.col("start_ns")
    per_step = rows.select(
        *("timeline", "group", "n_work", length.alias("span_ns")),
        (pl.col("period_end_ns") - pl.col("end_ns")).alias("between_ns"),
        pl.Series("busy_ns", own.sum(axis=1)),
        pl.Series("idle_ns", idle.sum(axis=1)),
        pl.Series("dequant_ns", own[:, CLASSES.index("dequant")]),
        pl.Series("copy_ns", own[:, CLASSES.index("copy")]),
        pl.Series("sync_ns", _of(idle, "sync") + _of(between, "sync")),
        pl.Series("remains_ns", _of(idle, *_REMAINS_IN_GRAPH)),
        pl.Series("after_wait_ns", _after_waits(trace)[at]),
        pl.Series("one_off_ns", _of(idle, *ONE_OFF) + _of(between, *ONE_OFF)),
        pl.Series("host_ns", host),
        pl.Series("held_ns", held),
        pl.col("step").is_not_null().alias("marked"),
    )
    medians = [pl.col(c).median() for c in FACTS if c not in ("timeline", "group", "n_steps")]
    grouped = per_step.group_by("timeline", "group").agg(
        pl.col("marked").sum().alias("n_steps"), *medians
    )
    return grouped.select(list(FACTS)).cast(FACTS).sort("timeline", "group")


def _of(idle: NDArray[np.int64], *names: str) -> NDArray[np.int64]:
    total: NDArray[np.int64] = idle[:, [causes.cause(name) for name in names]].sum(axis=1)
    return total


def _after_waits(trace: Trace) -> NDArray[np.int64]:
    """Host work that follows a wait, in each window."""
    parts, gaps, windows = idle_parts(trace).parts, gap_rows(trace), budget(trace).windows
    chosen = (parts.cause == causes.cause("host_gap")) & (parts.by >= 0)
    line = gaps.timeline[parts.gap[chosen]]
    start, end = parts.start[chosen], parts.end[chosen]
    found = np.zeros(windows.height, np.int64)
    for _, rows in windows.with_row_index("at").group_by("timeline", "chain", maintain_order=True):
        own = slice(*np.searchsorted(line, [rows["timeline"][0], rows["timeline"][0] + 1]))
        edges = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        none = np.zeros(start[own].size, np.uint8)
        found[rows["at"].to_numpy()] = waterfall.by_cause(start[own], end[own], none, edges, 1)[
            :, 0
        ]
    return found


def _host(trace: Trace, rows: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Time until the next step in which the launching thread works, and in which it is blocked."""
    calls, idle = host_calls(trace), idle_parts(trace)
    threads = calls.threads.with_row_index("thread")
    of_step = steps(trace).join(
        threads, on=["report", "pid", "tid"], how="left", maintain_order="left"
    )
    known = rows.select("step").join(
        of_step.select("step", "thread"), on="step", how="left", maintain_order="left"
    )
    thread = known["thread"].fill_null(-1).to_numpy()
    unmarked = rows["step"].is_null().to_numpy()
    if unmarked.any():
        thread = np.where(unmarked, _busiest_threads(trace, rows), thread)
    start = rows["start_ns"].to_numpy()
    end = rows.select(pl.coalesce("period_end_ns", "end_ns")).to_series().to_numpy()
    host, held = np.zeros(start.size, np.int64), np.zeros(start.size, np.int64)
    for own in np.unique(thread[thread >= 0]).tolist():
        at = thread == own
        first = slice(*idle.waiting.first[own : own + 2])
        waits = intervals.union(idle.waiting.start[first], idle.waiting.reach[first])
        host[at] = end[at] - start[at] - intervals.overlap_ns(start[at], end[at], *waits)
        first = slice(*idle.busy.first[own : own + 2])
        one_off = np.isin(idle.busy.cause[first], [causes.cause(c) for c in ONE_OFF])
        busy = idle.busy.start[first][one_off], idle.busy.end[first][one_off]
        held[at] = intervals.overlap_ns(start[at], end[at], *intervals.union(*busy))
    absent = pl.Series(thread < 0)
    return tuple(pl.Series(values).set(absent, None) for values in (host, held))  # type: ignore[return-value]


def _busiest_threads(trace: Trace, rows: pl.DataFrame) -> NDArray[np.int64]:
    """The thread that ends most gaps of each row's timeline, -1 without any."""
    calls, gaps, idle = host_calls(trace), gap_rows(trace), idle_parts(trace)
    found = []
    for line in rows["timeline"].to_list():
        call = idle.call[gaps.of(line)]
        threads = calls.thread[call[call >= 0]]
        found.append(int(np.bincount(threads).argmax()) if threads.size else -1)
    return np.array(found, np.int64)
