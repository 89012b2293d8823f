"""Idle time by where in the program it arises."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.numerics.idle import causes, keys
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity
from tracekit.views.device.kernels import kernel_names
from tracekit.views.idle.gaps import gap_rows
from tracekit.views.idle.host import call_names
from tracekit.views.idle.parts import idle_parts
from tracekit.views.idle.range_names import range_names
from tracekit.views.launches.attribution import attribution, steps

__all__ = ["SITES", "sites"]

WITH_COPY = "copy + "
"""Begins the name of a wait that is one with the copy before it."""
SITES = pl.Schema(
    {
        "timeline": pl.UInt16(),
        "step_group": pl.String(),
        "range": pl.String(),
        "cause": pl.String(),
        "call": pl.String(),
        "next_call": pl.String(),
        "after_wait": pl.Boolean(),
        "n": pl.UInt32(),
        "median_ns": pl.Float64(),
        "total_ns": pl.Int64(),
        "in_call_ns": pl.Int64(),
        "first_start_ns": pl.Int64(),
        "first_end_ns": pl.Int64(),
        "ended_by": pl.String(),
    }
)
"""Columns of `sites`."""
_HOW = {
    "sync": keys.BY_WAIT,
    "host_gap": keys.BY_HOST,
    **dict.fromkeys(("module_load", "allocation", "graph_build", "host_blocked"), keys.BY_BUSY),
    **dict.fromkeys(("graph_launch", "copy_staging", "launch_latency"), keys.BY_CALL),
}
"""Cause to what its stretches are named by."""


@view
def sites(trace: Trace) -> pl.DataFrame:
    """Return idle time by step group, range, cause and the calls around it.

    Returns:
        Frame of `SITES`, most time first: timeline UInt16, step_group (of the step that the work
        after the gap belongs to; null outside steps), range (innermost one around the launch,
        numbers as N), cause, call (that waited, allocated, loaded or launched; of host work the
        one that came before), next_call (of host work, the launch that ended it), after_wait
        (whether host work came after a wait), n (stretches), median_ns, total_ns, in_call_ns (part
        inside the launching call), the first stretch, and ended_by (kernel or kind of work after
        it).
    """
    parts, names = idle_parts(trace).parts, call_names(trace).table["name"].to_list()
    gaps, group, place = gap_rows(trace), _groups(trace), _ranges(trace)
    code = _packed(gaps.timeline, group + 1, place + 1)
    named_by = _names(trace, code, len(names))
    found = keys.stretches(parts, named_by)
    table = pl.DataFrame(
        {"key": found.key, "time_ns": found.time_ns, "in_call_ns": found.in_call_ns}
    ).with_row_index("at")
    grouped = table.group_by("key").agg(
        pl.len().alias("n"),
        pl.col("time_ns").median().alias("median_ns"),
        pl.col("time_ns").sum().alias("total_ns"),
        pl.col("in_call_ns").sum(),
        pl.col("at").first(),
    )
    at = grouped["at"].to_numpy()
    first = found.part[at]
    name, after = keys.named(found.key[at], named_by.n_names)
    gap, start = parts.gap[first], parts.start[first]
    return (
        grouped.with_columns(
            pl.Series("timeline", gaps.timeline[gap], pl.UInt16),
            pl.Series("step_group", _named(_group_names(trace), group[gap]), pl.String),
            pl.Series("range", _named(range_names(trace).names, place[gap]), pl.String),
            pl.Series("cause", [causes.CAUSES[c] for c in parts.cause[first]], pl.String),
            pl.Series("call", _calls(names, name), pl.String),
            pl.Series("next_call", _named(names, after), pl.String),
            pl.Series("after_wait", name >= len(names)),
            pl.Series("first_start_ns", start),
            pl.Series("first_end_ns", start + found.time_ns[at]),
            pl.Series("ended_by", _work_names(trace, gaps.after[gap]), pl.String),
        )
        .select(list(SITES))
        .cast(SITES)
        .sort(["total_ns", "timeline", "first_start_ns", "cause"], descending=[True, *3 * [False]])
    )


def _names(trace: Trace, code: NDArray[np.int64], n_names: int) -> keys.Names:
    """What names stretches; waits count from `n_names` on, those with a copy from twice that on."""
    idle = idle_parts(trace)
    how = np.array([_HOW.get(cause, 0) for cause in causes.CAUSES], np.uint8)
    wait = idle.wait_name + n_names * (1 + idle.wait_copies.astype(np.int64))
    return keys.Names(
        code=code,
        call=idle.call,
        previous=idle.previous,
        of_call=call_names(trace).number,
        wait=wait.astype(np.int64),
        busy=idle.busy_name.astype(np.int64),
        by=how,
        n_names=3 * n_names,
    )


def _packed(*codes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """One number for each row of small numbers."""
    key = np.zeros(codes[0].size, np.int64)
    for code in codes:
        key *= int(code.max(initial=0)) + 1
        key += code
    return key


def _group_names(trace: Trace) -> tuple[str, ...]:
    return tuple(steps(trace)["group"].unique().sort().to_list())


def _groups(trace: Trace) -> NDArray[np.int64]:
    """Place in `_group_names` of the step of the work after each gap, -1 outside steps."""
    place = {name: at for at, name in enumerate(_group_names(trace))}
    of_step = np.array([place[g] for g in steps(trace)["group"]] or [-1], np.int64)
    step = attribution(trace)["step"][pl.Series(gap_rows(trace).after)]
    found = of_step.take(step.fill_null(0).to_numpy())
    if step.null_count():
        found[step.is_null().to_numpy()] = -1
    return found


def _ranges(trace: Trace) -> NDArray[np.int32]:
    return range_names(trace).of(attribution(trace)["range"][pl.Series(gap_rows(trace).after)])


def _named(names: tuple[str, ...] | list[str], rows: NDArray[np.integer[Any]]) -> list[str | None]:
    return [names[row] if row >= 0 else None for row in rows.tolist()]


def _calls(names: list[str], rows: NDArray[np.int64]) -> list[str | None]:
    n = len(names)
    return [
        None if row < 0 else (WITH_COPY if row >= 2 * n else "") + names[row % n]
        for row in rows.tolist()
    ]


def _work_names(trace: Trace, rows: NDArray[np.uint32]) -> pl.Series:
    """Kernel name, or kind, of some rows of `activity`."""
    own = activity(trace).select("kind", "name_key")[pl.Series(rows)]
    known = kernel_names(trace).select("name_key", "name")
    named = own.join(known, on="name_key", how="left", maintain_order="left")
    return named.select(pl.coalesce("name", pl.col("kind").cast(pl.String))).to_series()
