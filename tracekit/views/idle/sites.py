"""Idle time by where in the program it arises."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.numerics.idle import causes
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
_BY_WAIT = np.isin(causes.CAUSES, ("sync", "host_gap"))
_BY_BUSY = np.isin(causes.CAUSES, ("module_load", "allocation", "graph_build", "host_blocked"))
_BY_CALL = np.isin(causes.CAUSES, ("graph_launch", "copy_staging", "launch_latency"))
_HOST_GAP = causes.cause("host_gap")
_IN_CALL = causes.PLACES.index("call")


class _Stretches(NamedTuple):
    """Neighbouring parts of a gap with one cause.

    Attributes:
        gap: int32[n].
        start: int64[n], ns.
        time_ns: int64[n].
        in_call_ns: int64[n], part of it inside the launching call.
        cause: uint8[n].
        by: int32[n], see `causes.Parts`.
    """

    gap: NDArray[np.int32]
    start: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    in_call_ns: NDArray[np.int64]
    cause: NDArray[np.uint8]
    by: NDArray[np.int32]


def _stretches(parts: causes.Parts) -> _Stretches:
    if not parts.gap.size:
        none = np.empty(0, np.int64)
        return _Stretches(parts.gap, none, none, none, parts.cause, parts.by)
    new = np.ones(parts.gap.size, np.bool_)
    new[1:] = (parts.gap[1:] != parts.gap[:-1]) | (parts.cause[1:] != parts.cause[:-1])
    first = np.flatnonzero(new)
    length = parts.end - parts.start
    in_call = np.add.reduceat(np.where(parts.place == _IN_CALL, length, 0), first)
    time = np.add.reduceat(length, first)
    columns = parts.gap[first], parts.start[first], time, in_call
    return _Stretches(*columns, parts.cause[first], parts.by[first])


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
    found, names = _stretches(idle_parts(trace).parts), call_names(trace).table["name"].to_list()
    gaps, group, place = gap_rows(trace), _groups(trace), _ranges(trace)
    before, after = _calls_around(trace, found, len(names))
    codes = (gaps.timeline[found.gap], group[found.gap] + 1, place[found.gap] + 1)
    key = _packed(*codes, found.cause, before + 1, after + 1)
    table = pl.DataFrame(
        {"key": key, "time_ns": found.time_ns, "in_call_ns": found.in_call_ns}
    ).with_row_index("at")
    grouped = table.group_by("key").agg(
        pl.len().alias("n"),
        pl.col("time_ns").median().alias("median_ns"),
        pl.col("time_ns").sum().alias("total_ns"),
        pl.col("in_call_ns").sum(),
        pl.col("at").first(),
    )
    at = grouped["at"].to_numpy()
    texts = range_names(trace).names
    group_names = _group_names(trace)
    gap = found.gap[at]
    return (
        grouped.with_columns(
            pl.Series("timeline", gaps.timeline[gap], pl.UInt16),
            pl.Series("step_group", _named(group_names, group[gap]), pl.String),
            pl.Series("range", _named(texts, place[gap]), pl.String),
            pl.Series("cause", [causes.CAUSES[c] for c in found.cause[at]], pl.String),
            pl.Series("call", _calls(names, before[at]), pl.String),
            pl.Series("next_call", _named(names, after[at]), pl.String),
            pl.Series("after_wait", before[at] >= len(names)),
            pl.Series("first_start_ns", found.start[at]),
            pl.Series("first_end_ns", found.start[at] + found.time_ns[at]),
            pl.Series("ended_by", _work_names(trace, gaps.after[gap]), pl.String),
        )
        .select(list(SITES))
        .cast(SITES)
        .sort(["total_ns", "timeline", "first_start_ns", "cause"], descending=[True, *3 * [False]])
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
    known = step.is_not_null().to_numpy()
    return np.where(known, of_step[step.fill_null(0).to_numpy()], -1)


def _ranges(trace: Trace) -> NDArray[np.int32]:
    return range_names(trace).of(attribution(trace)["range"][pl.Series(gap_rows(trace).after)])


def _calls_around(
    trace: Trace, found: _Stretches, n_names: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The call that each stretch is named by and the one after it, -1 for none.

    A wait counts from `n_names` on, one that is one with a copy from twice that on.
    """
    own = idle_parts(trace)
    before = np.full(found.gap.size, -1, np.int64)
    by_wait = _BY_WAIT[found.cause] & (found.by >= 0)
    wait = found.by[by_wait]
    before[by_wait] = own.wait_name[wait] + n_names * (1 + own.wait_copies[wait])
    by_busy = _BY_BUSY[found.cause] & (found.by >= 0)
    before[by_busy] = own.busy_name[found.by[by_busy]]
    by_call = _BY_CALL[found.cause]
    before[by_call] = own.call_name[found.gap[by_call]]
    launched = (found.cause == _HOST_GAP) & ~by_wait
    before[launched] = own.previous_name[found.gap[launched]]
    is_gap = found.cause == _HOST_GAP
    return before, np.where(is_gap, own.call_name[found.gap], -1)


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
