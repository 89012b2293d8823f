"""What the host was doing: names and roles of calls, waits, and what else held threads up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels.api import api_base_name
from tracekit.model.kernels.roles import CallRole, call_role
from tracekit.numerics import intervals
from tracekit.numerics.idle import blocking, causes
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity
from tracekit.views.keys import row_numbers
from tracekit.views.launches.attribution import host_calls
from tracekit.views.strings import resolved

__all__ = ["PAGEABLE", "CallNames", "call_names", "copies_with_host", "held_threads"]

PAGEABLE = 0
"""CUPTI's kind of memory that the host may page out."""
TO_DEVICE, TO_HOST = 1, 2
"""CUPTI's kinds of copies."""
_BITS = {
    CallRole.ENQUEUES: blocking.ENQUEUES,
    CallRole.WAITS: blocking.WAITS,
    CallRole.COPIES_AND_WAITS: blocking.BLOCKS,
    CallRole.CAPTURE_BEGINS: blocking.BEGINS_CAPTURE,
    CallRole.CAPTURE_ENDS: blocking.ENDS_CAPTURE,
    CallRole.KERNEL_LAUNCH: blocking.LAUNCHES,
    CallRole.GRAPH_LAUNCH: blocking.LAUNCHES | blocking.GRAPHS,
}
_HELD = (
    (CallRole.MODULE_LOAD, "module_load"),
    (CallRole.ALLOCATES, "allocation"),
    (CallRole.GRAPH_BUILD, "graph_build"),
)
"""What holds a thread up and its cause, what goes first of all first."""
_BLOCKING_OS_CALL = (
    r"wait|sleep|poll|select|(?:^|_)lock|join|recv|accept|connect|^p?readv?(?:64)?$|fread|futex"
    r"|fsync|fdatasync|flock"
)
"""Calls in which a thread may be put to sleep until something happens."""


class CallNames(NamedTuple):
    """The names of all host calls.

    Attributes:
        number: uint32[m], row of `table` of each row of ``runtime``.
        osrt: int64[k], the same of each row of ``osrt``.
        table: Frame of name String (without version suffixes) and role UInt16 (`CallRole`; 0 of
            calls to the operating system).
    """

    number: NDArray[np.uint32]
    osrt: NDArray[np.int64]
    table: pl.DataFrame

    def roles(self) -> NDArray[np.uint16]:
        """Return the roles of each name, uint16[names]."""
        return self.table["role"].to_numpy()


@view
def call_names(trace: Trace) -> CallNames:
    """Return what each host call is."""
    number, names = _names(trace, trace.frame("runtime"))
    of_system, others = _names(trace, trace.frame("osrt"))
    roles = [int(call_role(n)) for n in names] + [0] * len(others)
    table = pl.DataFrame(
        {
            "name": pl.Series([*map(api_base_name, names), *others], dtype=pl.String),
            "role": pl.Series(roles, dtype=pl.UInt16),
        }
    )
    return CallNames(number, of_system.astype(np.int64) + len(names), table)


def _names(trace: Trace, rows: pl.DataFrame) -> tuple[NDArray[np.uint32], list[str]]:
    """Number of the name of each row, and the names."""
    number, ids = row_numbers(rows.select("name_id"))
    texts = ids.with_columns(pl.lit(None, pl.String).alias("name"))
    named = resolved(texts, trace.frame("strings"), "name", "name_id")
    return number, named["name"].fill_null("").to_list()


@view
def copies_with_host(trace: Trace) -> pl.DataFrame:
    """Return the copies between a device and host memory.

    Returns:
        Frame of work UInt32 (row of `activity`), copy_kind Int32, pageable Boolean (null where the
        kind of memory was not recorded); sorted by work.
    """
    work = activity(trace)
    at = work.select((pl.col("source") == "memcpy").arg_true()).to_series()
    rows = trace.frame("memcpy")[work["row"].gather(at)]
    kind = pl.col("copy_kind")
    host = pl.when(kind == TO_DEVICE).then("src_kind").otherwise("dst_kind")
    found = rows.select(at.alias("work"), kind, (host == PAGEABLE).alias("pageable"))
    return found.filter(kind.is_in((TO_DEVICE, TO_HOST)))


class Held(NamedTuple):
    """What threads did other than launching.

    Attributes:
        waits: Waits for the device, and the enqueuing call before each call.
        waiting: The same waits by thread.
        busy: What else held threads up.
        busy_name: int32[n], name of the call of each interval of `busy`, -1 for the profiler.
    """

    waits: blocking.Blocking
    waiting: causes.Waiting
    busy: causes.Busy
    busy_name: NDArray[np.int32]


def held_threads(trace: Trace, launching: NDArray[np.int32]) -> Held:
    """Return what blocked the threads that made some calls.

    Args:
        trace: Has the tables ``osrt``, ``overhead`` and ``runtime``.
        launching: int32[m], rows of ``runtime``: what else blocked their threads is wanted.
    """
    calls, names, rows = host_calls(trace), call_names(trace), trace.frame("runtime")
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    n_threads = calls.threads.height
    bits = _call_bits(trace)
    waits = blocking.host_waits(start, end, calls.thread, bits, n_threads)
    first = np.searchsorted(waits.thread, np.arange(n_threads + 1))
    waiting = causes.Waiting(first, waits.start, waits.reach)
    launches = np.zeros(n_threads, np.bool_)
    launches[calls.thread[launching]] = True
    held = [role & names.roles() for role, _ in _HELD]
    nothing = np.empty(0, np.int64)
    at = [
        np.flatnonzero(own.astype(np.bool_)[names.number]) if own.any() else nothing for own in held
    ]
    busy = []
    overhead, blocked = _overhead(trace), _blocked(trace)
    for thread in range(n_threads):
        if not launches[thread]:
            busy.append(_disjoint(()))
            continue
        own = [rows_of[calls.thread[rows_of] == thread] for rows_of in at]
        layers = [overhead.get(calls.threads.row(thread)[:2], _NO_ROWS)]
        layers += [(start[r], end[r], names.number[r].astype(np.int32)) for r in own]
        layers.append(blocked.get(calls.threads.row(thread), _NO_ROWS))
        busy.append(_disjoint(layers))
    first = np.cumsum([0, *(b[0].size for b in busy)])
    columns = [np.concatenate([b[k] for b in busy]) if busy else _NO_ROWS[0] for k in range(4)]
    busy_of = causes.Busy(first, columns[0], columns[1], columns[2].astype(np.uint8))
    return Held(waits, waiting, busy_of, columns[3].astype(np.int32))


_Layer = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]
_NO_ROWS: _Layer = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))


def _call_bits(trace: Trace) -> NDArray[np.uint16]:
    """What each call does, `blocking.ENQUEUES` and so on."""
    calls, names = host_calls(trace), call_names(trace)
    roles = names.roles()
    of_name = np.zeros(roles.size, np.uint16)
    for role, bit in _BITS.items():
        of_name[(roles & role) > 0] |= bit
    bits = of_name[names.number]
    launching = calls.of_work[calls.of_work >= 0]
    bits[launching] |= blocking.HAS_WORK
    copies = copies_with_host(trace)
    call = calls.of_work[copies["work"].to_numpy()]
    pageable = copies["pageable"].fill_null(False).to_numpy()
    pairs = pageable | (copies["copy_kind"] == TO_HOST).to_numpy()
    bits[call[(call >= 0) & pageable]] |= blocking.BLOCKS
    bits[call[(call >= 0) & pairs]] |= blocking.PAIRS
    return bits


def _overhead(trace: Trace) -> dict[tuple[int, int], _Layer]:
    """When the profiler blocked each process, by report and process."""
    rows = trace.frame("overhead").select("report", "pid", "start_ns", "end_ns")
    found: dict[tuple[int, int], _Layer] = {}
    for (report, pid), own in rows.partition_by("report", "pid", as_dict=True).items():
        start, end = (own[c].to_numpy() for c in ("start_ns", "end_ns"))
        found[report, pid] = (start, end, np.full(start.size, -1, np.int32))
    return found


def _joined(one: intervals.Intervals, other: intervals.Intervals) -> intervals.Intervals:
    starts, ends = (np.concatenate(edges) for edges in zip(one, other, strict=True))
    return intervals.union(starts, ends)


def _blocked(trace: Trace) -> dict[tuple[int, int, int], _Layer]:
    """When calls to the operating system blocked each thread, by report, process and thread."""
    names = call_names(trace)
    is_blocking = names.table["name"].str.contains(_BLOCKING_OS_CALL).to_numpy()
    rows = trace.frame("osrt").select("report", "pid", "tid", "start_ns", "end_ns")
    rows = rows.with_columns(pl.Series("name", names.osrt)).filter(is_blocking[names.osrt])
    found: dict[tuple[int, int, int], _Layer] = {}
    for (report, pid, tid), own in rows.partition_by("report", "pid", "tid", as_dict=True).items():
        start, end, name = (own[c].to_numpy() for c in ("start_ns", "end_ns", "name"))
        found[report, pid, tid] = (start, end, name.astype(np.int32))
    return found


def _disjoint(layers: Sequence[_Layer]) -> tuple[NDArray[np.int64], ...]:
    """Start, end, cause and name of disjoint intervals: each layer without those before it."""
    free: intervals.Intervals | None = None
    found = []
    names = ("profiler", *(name for _, name in _HELD), "host_blocked")
    for name, (start, end, row) in zip(names, layers, strict=False):
        if not start.size:
            continue
        own = intervals.union(start, end)
        pieces = own if free is None else intervals.subtract(*own, *free)
        free = own if free is None else _joined(free, own)
        order = np.argsort(start, kind="stable")
        at = np.searchsorted(start[order], pieces[0], side="right") - 1
        code = np.full(pieces[0].size, causes.cause(name), np.int64)
        found.append((*pieces, code, row[order][at].astype(np.int64)))
    if not found:
        return tuple(np.empty(0, np.int64) for _ in range(4))
    columns = [np.concatenate(c) for c in zip(*found, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return tuple(c[order] for c in columns)
