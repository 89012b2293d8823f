"""Whether anything waited for a collective to end: other streams of its GPU, or its host.

A collective that starts late or takes longer costs time only as far as something waited for it.
What waited shows in the recording: work that had been launched already and began just when the
collective ended, on a stream that had nothing else to do, or a host call that returned just then.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import ApiKind, api_kind
from tracekit.model.trace import Trace, view
from tracekit.numerics.threads import each
from tracekit.views.attribution import attribution
from tracekit.views.coll_instances import firsts, last_starts, matching
from tracekit.views.collectives import collectives
from tracekit.views.keys import row_numbers
from tracekit.views.lanes import lanes

__all__ = ["DEPENDENTS", "dependents", "host_waits", "most_felt"]

JUST_AFTER_NS = 10_000
"""Work that begins within this after the end of a collective is taken to have waited for it."""
JUST_BEFORE_NS = 2_000
"""A dependent launch may begin its prologue this much early."""
HOST_AFTER_NS = 20_000
"""A host call that waited returns within this after the end: the thread has to wake up."""
_NEVER, _ALWAYS = np.iinfo(np.int64).max, np.iinfo(np.int64).min
_STREAM = ["pid", "context", "stream"]
Int64 = NDArray[np.int64]
DEPENDENTS = pl.Schema(
    {
        "activity": pl.UInt32(),
        "instance": pl.UInt32(),
        "rank_id": pl.UInt32(),
        "waited_from_ns": pl.Int64(),
        "wait_felt_ns": pl.Int64(),
        "delay_felt_ns": pl.Int64(),
    }
)
"""Columns of `dependents`."""


@view("runtime", "strings")
def host_waits(trace: Trace) -> pl.DataFrame:
    """Return the host calls that wait for the device.

    Returns:
        Frame of report UInt16, pid UInt32, start_ns Int64, end_ns Int64; sorted by end_ns.
    """
    strings = trace.frame("strings")
    named = strings.filter(pl.col("value").str.contains("Synchronize", literal=True))
    ids = [i for i, name in named.select("id", "value").rows() if _waits(name)]
    calls = trace.frame("runtime")
    waiting = calls["name_id"].is_in(ids).fill_null(value=False)
    calls = calls.select("report", "pid", "start_ns", "end_ns").filter(waiting)
    return calls.sort("end_ns", "start_ns", "report", "pid")


def _waits(name: str | None) -> bool:
    return api_kind(name or "") is ApiKind.SYNC


@view(of=[attribution, collectives, lanes, host_waits, last_starts])
def dependents(trace: Trace) -> pl.DataFrame:
    """Return from when on something waited for each communication kernel.

    Kernels that follow each other on one stream without a gap are a chain: what waits for the last
    of them waits for each.

    Returns:
        Frame of `DEPENDENTS`, one row a row of `collectives`, in its order. waited_from_ns: when
        the first dependent had nothing else to do, not before the kernel's own start; null when
        nothing is seen to have waited. wait_felt_ns: part of the kernel's own waiting for late
        ranks that a dependent waited through. delay_felt_ns: how long a dependent then still
        waited, from the latest start over the ranks to the end of the chain: the most that an
        earlier start could have won. instance: null when not matched across ranks.
    """
    rows = _with_ends(trace).with_row_index("_at")
    launched, work, calls = attribution(trace)["launch_start_ns"], lanes(trace), host_waits(trace)

    number, processes = row_numbers(rows.select("gpu", "report", "pid"))
    if not processes.height:
        return pl.DataFrame(schema=DEPENDENTS)

    def since(one: int) -> tuple[Int64, Int64]:
        gpu, report, pid = processes.row(one)
        lane, at = work[gpu], np.flatnonzero(number == one)
        end = rows["end_ns"].to_numpy()[at]
        # Exports whose device records name no process: any call of the report may have waited.
        of_process = pl.lit(value=True) if pid is None else pl.col("pid") == pid
        own = calls.filter((pl.col("report") == report) & of_process)
        found = _host_waited(own, end)
        launch = launched.slice(lane.first, lane.start.size).fill_null(_ALWAYS).to_numpy()
        for own_rows in lane.rows_by_stream():
            stream = (lane.start[own_rows], lane.end[own_rows], launch[own_rows])
            found = np.minimum(found, _stream_waited(*stream, end))
        return at, found

    waited = np.empty(rows.height, np.int64)
    for at, found in each(since, range(processes.height)):
        waited[at] = found
    felt = _felt(rows.with_columns(pl.Series("_since", waited)))
    return felt.sort("_at").select(list(DEPENDENTS)).cast(DEPENDENTS)


@view(of=[dependents, matching])
def most_felt(trace: Trace) -> Int64:
    """Return the delay_felt_ns of each matched collective, the most over its ranks.

    Returns:
        int64[instances], ns.
    """
    members, delay = matching(trace).members, dependents(trace)["delay_felt_ns"].to_numpy()
    first = firsts(members)
    if not first.size:
        return np.zeros(0, np.int64)
    most: Int64 = np.maximum.reduceat(delay[members["row"].to_numpy()], first)
    return most


def _with_ends(trace: Trace) -> pl.DataFrame:
    """Communication kernels with the latest start of their collective."""
    columns = ["activity", "report", "gpu", "pid", "context", "stream", "rank_id"]
    rows = collectives(trace).select(*columns, "start_ns", "end_ns", "launch_start_ns")
    rows = rows.hstack(last_starts(trace))
    latest = pl.coalesce("last_start_ns", "start_ns").clip(pl.col("start_ns"), pl.col("end_ns"))
    return rows.with_columns(latest.alias("last_start_ns"))


def _stream_waited(begins: Int64, ends: Int64, launch: Int64, end: Int64) -> Int64:
    """From when on a stream waited for each kernel; `_NEVER` where it did not.

    It waited when its next work began just after the end, and since that work had been launched
    and the stream had finished everything else.
    """
    reached = np.maximum.accumulate(ends)
    at = np.searchsorted(begins, end - JUST_BEFORE_NS)
    there = np.minimum(at, begins.size - 1)
    free = np.where(at > 0, reached[np.maximum(at - 1, 0)], _ALWAYS)
    since = np.maximum(free, launch[there])
    waited = (at < begins.size) & (begins[there] - end <= JUST_AFTER_NS) & (since < end)
    return np.where(waited, since, _NEVER)


def _host_waited(calls: pl.DataFrame, end: Int64) -> Int64:
    """From when on a host call waited that returned just after each kernel."""
    if calls.is_empty():
        return np.full(end.size, _NEVER)
    begun, returned = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    at = np.searchsorted(returned, end)
    there = np.minimum(at, returned.size - 1)
    waited = (at < returned.size) & (returned[there] - end <= HOST_AFTER_NS) & (begun[there] < end)
    return np.where(waited, begun[there], _NEVER)


def _felt(rows: pl.DataFrame) -> pl.DataFrame:
    """Follow chains, and split what dependents waited through at the latest start."""
    stream, _ = row_numbers(rows.select("report", "gpu", "pid", "context", "stream"))
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    # Rows are in the order of `collectives`: equal starts stay in it.
    order = np.argsort(start, kind="stable")
    order = order[
        np.argsort(
            stream[order].astype(np.min_scalar_type(int(stream.max(initial=0)))), kind="stable"
        )
    ]
    stream, start, end = stream[order], start[order], end[order]
    launch = rows["launch_start_ns"].fill_null(_ALWAYS).to_numpy()[order]
    first = np.ones(order.size, np.bool_)
    # Without a launch the kernel is taken to have been queued.
    queued = launch[1:] < end[:-1]
    linked = (start[1:] - end[:-1] <= JUST_AFTER_NS) & queued & (stream[1:] == stream[:-1])
    first[1:] = ~linked
    columns = ["_at", "instance", "activity", "rank_id", "start_ns", "end_ns", "last_start_ns"]
    rows = rows.select(*columns, "_since")[order]
    rows = rows.with_columns(pl.Series("_first", first), pl.col("end_ns").alias("_until"))
    rows = _chained(rows)
    late, known = pl.col("last_start_ns"), pl.col("_since") < pl.col("end_ns")
    return rows.with_columns(
        pl.when(known).then(pl.max_horizontal("_since", "start_ns")).alias("waited_from_ns"),
        pl.when(known)
        .then((late - pl.max_horizontal("_since", "start_ns")).clip(lower_bound=0))
        .otherwise(0)
        .alias("wait_felt_ns"),
        pl.when(known)
        .then(pl.col("_until") - pl.max_horizontal("_since", late))
        .otherwise(0)
        .alias("delay_felt_ns"),
    )


def _chained(rows: pl.DataFrame) -> pl.DataFrame:
    """Give each link of a chain what waits for a later link, and the chain's end."""
    rows = rows.with_columns(pl.col("_first").cum_sum().alias("_chain"))
    linked = ~pl.col("_first") | ~pl.col("_first").shift(-1, fill_value=True)
    # Most chains have one link: only the others need groups.
    links, single = rows.filter(linked), rows.filter(~linked)
    links = links.with_columns(
        pl.col("_since").cum_min(reverse=True).over("_chain"),
        pl.col("end_ns").max().over("_chain").alias("_until"),
    )
    return pl.concat([single, links])
