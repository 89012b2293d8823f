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
from tracekit.model.table import Column, Table
from tracekit.numerics.rows.overlapping import NEVER
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.collectives.kernels import collectives
from tracekit.views.collectives.matching import firsts, last_starts, matching
from tracekit.views.device.lanes import lanes
from tracekit.views.keys import row_numbers
from tracekit.views.launches.attribution import attribution

__all__ = ["DEPENDENTS", "dependents", "host_waits", "longest_blocking"]

JUST_AFTER_NS = 10_000
"""Work that begins within this after the end of a collective is taken to have waited for it."""
JUST_BEFORE_NS = 2_000
"""A dependent launch may begin its prologue this much early."""
HOST_AFTER_NS = 20_000
"""A host call that waited returns within this after the end: the thread has to wake up."""
_ALWAYS = np.iinfo(np.int64).min
Int64 = NDArray[np.int64]
DEPENDENTS = Table(
    "dependents",
    (
        Column("activity", pl.UInt32, "", "row of `activity`"),
        Column("instance", pl.UInt32, "", "number of the collective"),
        Column("rank_id", pl.UInt32, "", "number of the rank in this run"),
        Column(
            "waited_from_ns", pl.Int64, "ns", "from when on something waited; null: nothing seen"
        ),
        Column("wait_blocking_ns", pl.Int64, "ns", "part of wait_ns that something waited through"),
        Column(
            "delay_blocking_ns", pl.Int64, "ns", "how long a dependent waited after the last start"
        ),
    ),
    "what waited for one communication kernel",
)


@view
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


@view
def dependents(trace: Trace) -> pl.DataFrame:
    """Return from when on something waited for each communication kernel.

    Kernels that follow each other on one stream without a gap are a chain: what waits for the last
    of them waits for each.

    Returns:
        Frame of `DEPENDENTS`, one row a row of `collectives`, in its order. waited_from_ns: when
        the first dependent had nothing else to do, not before the kernel's own start; null when
        nothing is seen to have waited. wait_blocking_ns: part of the kernel's own waiting for late
        ranks that a dependent waited through. delay_blocking_ns: how long a dependent then still
        waited, from the latest start over the ranks to the end of the chain: the most that an
        earlier start could have won. instance: null when not matched across ranks.
    """
    rows = _with_ends(trace)
    launched, work, calls = attribution(trace)["launch_start_ns"], lanes(trace), host_waits(trace)

    number, processes = row_numbers(rows.select("gpu", "report", "pid"))
    if not processes.height:
        return DEPENDENTS.empty()

    def since(one: int) -> tuple[Int64, Int64]:
        gpu, report, pid = processes.row(one)
        lane, at = work[gpu], np.flatnonzero(number == one)
        end = rows["end_ns"].to_numpy()[at]
        # Exports whose device records name no process: any call of the report may have waited.
        of_process = pl.lit(value=True) if pid is None else pl.col("pid") == pid
        own = calls.filter((pl.col("report") == report) & of_process)
        found = _host_waited(own, end)
        launch = launched.slice(lane.first, lane.start.size).fill_null(_ALWAYS).to_numpy()
        followed = lane.waited_since(launch, end, JUST_BEFORE_NS, JUST_AFTER_NS)
        return at, np.minimum(found, followed)

    waited = np.empty(rows.height, np.int64)
    for at, found in each(since, range(processes.height)):
        waited[at] = found
    return DEPENDENTS.select(_blocking(rows, waited))


@view
def longest_blocking(trace: Trace) -> Int64:
    """Return the delay_blocking_ns of each matched collective, the most over its ranks.

    Returns:
        int64[instances], ns.
    """
    members, delay = matching(trace).members, dependents(trace)["delay_blocking_ns"].to_numpy()
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


def _host_waited(calls: pl.DataFrame, end: Int64) -> Int64:
    """From when on a host call waited that returned just after each kernel."""
    if calls.is_empty():
        return np.full(end.size, NEVER)
    begun, returned = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    at = np.searchsorted(returned, end)
    there = np.minimum(at, returned.size - 1)
    waited = (at < returned.size) & (returned[there] - end <= HOST_AFTER_NS) & (begun[there] < end)
    return np.where(waited, begun[there], NEVER)


def _blocking(rows: pl.DataFrame, since: Int64) -> pl.DataFrame:
    """Follow chains, and split what dependents waited through at the latest start."""
    start, end, late = (rows[c].to_numpy() for c in ("start_ns", "end_ns", "last_start_ns"))
    since, until = _chained(rows, since)
    began, known = np.maximum(since, start), since < end
    return rows.select("activity", "instance", "rank_id").with_columns(
        pl.Series("waited_from_ns", began).set(pl.Series(~known), None),
        pl.Series("wait_blocking_ns", np.where(known, np.maximum(late - began, 0), 0)),
        pl.Series("delay_blocking_ns", np.where(known, until - np.maximum(since, late), 0)),
    )


def _chained(rows: pl.DataFrame, since: Int64) -> tuple[Int64, Int64]:
    """Give each link of a chain what waits for a later link, and the chain's end."""
    stream, streams = row_numbers(rows.select("report", "gpu", "pid", "context", "stream"))
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    # Rows are in the order of `collectives`: equal starts stay in it.
    order = np.argsort(start, kind="stable")
    small = stream.astype(np.min_scalar_type(streams.height))
    order = order[np.argsort(small[order], kind="stable")]
    stream, start, end = stream[order], start[order], end[order]
    launch = rows["launch_start_ns"].fill_null(_ALWAYS).to_numpy()[order]
    first = np.ones(order.size + 1, np.bool_)
    # Without a launch the kernel is taken to have been queued.
    queued = launch[1:] < end[:-1]
    linked = (start[1:] - end[:-1] <= JUST_AFTER_NS) & queued & (stream[1:] == stream[:-1])
    first[1:-1] = ~linked
    chain = np.cumsum(first[:-1])
    # Most chains have one link: only the others need groups.
    links = np.flatnonzero(~first[:-1] | ~first[1:])
    own = pl.DataFrame({"chain": chain[links], "since": since[order[links]], "end": end[links]})
    own = own.select(
        pl.col("since").cum_min(reverse=True).over("chain"), pl.col("end").max().over("chain")
    )
    found, until = since.copy(), rows["end_ns"].to_numpy(writable=True)
    found[order[links]], until[order[links]] = own["since"].to_numpy(), own["end"].to_numpy()
    return found, until
