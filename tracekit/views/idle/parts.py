"""Every idle nanosecond of every GPU with its cause."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels.roles import CallRole
from tracekit.numerics.idle import causes
from tracekit.numerics.sweeps import BEFORE_ALL
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, device_ids, queues
from tracekit.views.idle.gaps import gap_rows
from tracekit.views.idle.host import call_names, copies_with_host, held_threads
from tracekit.views.idle.waited import waited
from tracekit.views.launches.attribution import host_calls

__all__ = ["IdleParts", "idle_parts"]


class IdleParts(NamedTuple):
    """The idle time of all GPUs, divided by cause.

    Attributes:
        parts: The pieces of `gap_rows`.
        call: int32[gaps], row of ``runtime`` that launched the operation after each gap, or -1.
        previous: int32[gaps], the enqueuing call before it on its thread; -1 without one.
        wait_name: int32[waits], name of the call that waits (row of `CallNames.table`), by
            `Parts.by`.
        wait_copies: bool[waits], whether it is one with a copy before it.
        busy_name: int32[intervals], name of the call of what else held a thread up; -1 for the
            profiler.
        waiting: When threads waited for the device.
        busy: When threads were blocked otherwise.
        n_without_work: Launches of which no work was recorded.
        n_launches: Launches outside of stream captures.
        n_graphs_without_work: Part of `n_without_work` that launch graphs.
    """

    parts: causes.Parts
    call: NDArray[np.int32]
    previous: NDArray[np.int32]
    wait_name: NDArray[np.int32]
    wait_copies: NDArray[np.bool_]
    busy_name: NDArray[np.int32]
    waiting: causes.Waiting
    busy: causes.Busy
    n_without_work: int
    n_launches: int
    n_graphs_without_work: int


@view
def idle_parts(trace: Trace) -> IdleParts:
    """Return the cause of all idle time; see `causes.divide`."""
    gaps, calls, names = gap_rows(trace), host_calls(trace), call_names(trace)
    call = calls.of_work[gaps.after]
    known = call >= 0
    held = held_threads(trace, call[known])
    rows = trace.frame("runtime")
    start, end = (rows[c].to_numpy() for c in ("start_ns", "end_ns"))
    previous = _taken(held.waits.previous, call, -1)
    launched = causes.Launched(
        start=_taken(start, call, 0),
        end=_taken(end, call, 0),
        previous=_taken(end, previous, BEFORE_ALL),
        thread=_taken(calls.thread, call, 0).astype(np.int32),
        traits=_traits(trace, call),
    )
    return IdleParts(
        parts=causes.divide(gaps.start, gaps.end, launched, held.waiting, held.busy),
        call=call,
        previous=previous,
        wait_name=names.number[held.waits.wait].astype(np.int32),
        wait_copies=held.waits.copy >= 0,
        busy_name=held.busy_name,
        waiting=held.waiting,
        busy=held.busy,
        n_without_work=held.waits.n_without_work,
        n_launches=held.waits.n_launches,
        n_graphs_without_work=held.waits.n_graphs_without_work,
    )


def _taken(values: NDArray, rows: NDArray[np.int32], absent: int) -> NDArray:  # type: ignore[type-arg]
    """Values of rows, `absent` for a negative row."""
    if not values.size:
        return np.full(rows.size, absent, values.dtype)
    found = values.take(rows)
    if rows.size and rows.min() < 0:
        found[rows < 0] = absent
    return found


def _traits(trace: Trace, call: NDArray[np.int32]) -> NDArray[np.uint8]:
    """How the operation after each gap was launched; see `causes.Launched`."""
    gaps, names = gap_rows(trace), call_names(trace)
    traits = np.where(call >= 0, np.uint8(causes.KNOWN), np.uint8(0))
    launches = (names.roles() & CallRole.GRAPH_LAUNCH) > 0
    if launches.any():
        of_call = launches[names.number]
        traits[_taken(of_call, call, False)] |= causes.GRAPH_LAUNCH
    ids = device_ids(trace)
    if ids.graph_node is not None:
        node = (
            ids.graph_node.is_not_null().to_numpy() & (ids.graph_node.fill_null(0) != 0).to_numpy()
        )
        correlation = ids.correlation.fill_null(0).to_numpy()
        queue = activity(trace)["queue"].to_numpy()
        process = _process(trace)
        a, b = gaps.after, gaps.before
        same = (correlation[a] == correlation[b]) & (process[queue[a]] == process[queue[b]])
        traits[node[a] & node[b] & same] |= causes.REPLAY
    copies = copies_with_host(trace).filter(pl.col("pageable"))["work"].to_numpy()
    if copies.size:
        traits[np.isin(gaps.after, copies)] |= causes.STAGED
    traits[waited(trace, gaps.after)] |= causes.WAITED
    return traits


def _process(trace: Trace) -> NDArray[np.uint32]:
    """A number of the process of each row of `queues`."""
    return queues(trace).select(pl.struct("report", "pid").rank("dense")).to_series().to_numpy()
