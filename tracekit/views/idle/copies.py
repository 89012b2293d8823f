"""Copies that nothing hides: what moves, from which memory, how fast, and what waits for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.hardware.host_link import host_link_gb_per_s
from tracekit.numerics import intervals
from tracekit.numerics.rows import shares
from tracekit.trace import Trace, view
from tracekit.views.device.activity import OPAQUE, WORK_KIND, activity, queues
from tracekit.views.device.kernels import COPY_KINDS, kernel_names
from tracekit.views.idle.host import call_names
from tracekit.views.idle.range_names import range_names
from tracekit.views.idle.timelines import Timeline, timelines
from tracekit.views.idle.waited import waited
from tracekit.views.launches.attribution import attribution, host_calls, steps

__all__ = ["COPY_SITES", "DeviceTime", "copy_sites", "device_time"]

MEMORY = {
    0: "pageable",
    1: "pinned",
    2: "device",
    3: "array",
    4: "managed",
    5: "device",
    6: "managed",
}
"""nsys's kinds of memory."""
UNKNOWN_MEMORY = "unknown"
SMALL_BYTES = 1 << 20
"""Below this a copy takes its time for being a copy, not for its bytes."""
_FROM_HOST, _TO_HOST = (1, 3, 11), (2, 4, 12)
COPY_SITES = pl.Schema(
    {
        "timeline": pl.UInt16(),
        "step_group": pl.String(),
        "range": pl.String(),
        "direction": pl.String(),
        "memory": pl.String(),
        "small": pl.Boolean(),
        "n": pl.UInt32(),
        "median_bytes": pl.Float64(),
        "bytes": pl.Int64(),
        "time_ns": pl.Int64(),
        "exposed_ns": pl.Int64(),
        "gb_per_s": pl.Float64(),
        "link_gb_per_s": pl.Float64(),
        "call": pl.String(),
        "call_ns": pl.Int64(),
        "n_host_waited": pl.UInt32(),
        "waiter": pl.String(),
        "waits_by": pl.String(),
        "first_start_ns": pl.Int64(),
        "first_end_ns": pl.Int64(),
    }
)
"""Columns of `copy_sites`."""
_IS_COPY = np.array([k.startswith("memcpy ") for k in WORK_KIND.categories])
_IS_OPAQUE = WORK_KIND.categories.to_numpy() == OPAQUE
_IS_MIGRATION = np.array([k.startswith("memcpy UVM") for k in WORK_KIND.categories])
_NOTHING: intervals.Intervals = (np.empty(0, np.int64), np.empty(0, np.int64))
_HOST_BACK_NS = 20_000
"""A call that returns at most so long before its copy ends has waited for the copy's data."""


class DeviceTime(NamedTuple):
    """How a timeline divides.

    Attributes:
        span_ns: First start to last end.
        busy_ns: Time in which anything ran.
        compute_ns: Time in which anything but copies ran.
        opaque_ns: Time in which graphs ran that were traced as a whole.
        n_work: Operations, migrations of unified memory left out: no call makes them.
        n_with_launch: Those whose launching call was recorded.
    """

    span_ns: int
    busy_ns: int
    compute_ns: int
    opaque_ns: int
    n_work: int
    n_with_launch: int

    @property
    def copy_only_ns(self) -> int:
        """Time in which only copies ran."""
        return self.busy_ns - self.compute_ns


@view
def device_time(trace: Trace) -> tuple[DeviceTime, ...]:
    """Return how each timeline divides, in the order of `timelines`."""
    found = []
    for line in timelines(trace):
        every = _union(trace, line, np.ones(_IS_COPY.size, np.bool_))
        compute = _union(trace, line, ~_IS_COPY)
        is_migration = _IS_MIGRATION[line.of(activity(trace)["kind"]).to_physical().to_numpy()]
        call = host_calls(trace).of_work[line.rows]
        call = call[~is_migration] if is_migration.any() else call
        span = int(every[1][-1] - every[0][0]) if every[0].size else 0
        opaque = _union(trace, line, _IS_OPAQUE) if trace.has("graph_trace") else _NOTHING
        busy, computing, hidden = (intervals.total_ns(*u) for u in (every, compute, opaque))
        found.append(DeviceTime(span, busy, computing, hidden, call.size, int((call >= 0).sum())))
    return tuple(found)


def _union(trace: Trace, line: Timeline, kinds: NDArray[np.bool_]) -> intervals.Intervals:
    """When anything of some kinds ran."""
    work = activity(trace)
    start, end, queue = (line.of(work[c]).to_numpy() for c in ("start_ns", "end_ns", "queue"))
    kind = line.of(work["kind"]).to_physical().to_numpy()
    chosen = np.tile(kinds, (queues(trace).height, 1))
    return shares.union_of(start, end, queue, kind, chosen)


@view
def copy_sites(trace: Trace) -> pl.DataFrame:
    """Return copies by step group, range, direction, memory and whether they are small.

    Returns:
        Frame of `COPY_SITES`, most exposed time first: timeline UInt16, step_group (null outside
        steps), range (numbers as N), direction ("HtoD", ...), memory (of the host's side), small
        (below `SMALL_BYTES` each), n, median_bytes, bytes, time_ns, exposed_ns (time in which only
        copies ran; of copies that overlap, the earlier one has it), gb_per_s, link_gb_per_s (null
        where not known, or not the link to the host), call (that made the first), call_ns (host
        time in these calls), n_host_waited (calls that returned when their copy was done), waiter
        (what ran first after the longest exposed one), waits_by ("same stream", "event", "other"),
        and the longest exposed one's times.
    """
    parts = [_of_line(trace, number, line) for number, line in enumerate(timelines(trace))]
    rows = pl.concat([part for part in parts if part.height] or [pl.DataFrame()])
    if rows.is_empty():
        return pl.DataFrame(schema=COPY_SITES)
    keys = ["timeline", "step_group", "range_name", "copy_kind", "memory", "small"]
    by_exposed = pl.col("exposed_ns").arg_max()
    at_longest = [pl.col(c).get(by_exposed) for c in ("start_ns", "end_ns", "queue")]
    found = rows.group_by(keys, maintain_order=True).agg(
        pl.len().alias("n"),
        pl.col("bytes").median().alias("median_bytes"),
        pl.col("bytes").sum(),
        pl.col("time_ns").sum(),
        pl.col("exposed_ns").sum(),
        pl.col("call_name").max(),
        pl.col("call_ns").sum(),
        pl.col("host_waited").sum().alias("n_host_waited"),
        *at_longest,
    )
    return _named(trace, found)


def _of_line(trace: Trace, number: int, line: Timeline) -> pl.DataFrame:
    """The copies of one timeline, a row each."""
    work = activity(trace)
    is_copy = (line.of(work["source"]) == "memcpy").arg_true()
    if not len(is_copy):
        return pl.DataFrame()
    place = is_copy.to_numpy().astype(np.int64)
    at = line.row(place)
    own = work.select("start_ns", "end_ns", "row", "queue")[pl.Series(at)]
    start, end = (own[c].to_numpy() for c in ("start_ns", "end_ns"))
    reach = np.maximum.accumulate(np.append(np.int64(-1 << 62), end))[:-1]
    since = np.minimum(np.maximum(start, reach), end)
    compute = _union(trace, line, ~_IS_COPY)
    exposed = (end - since) - intervals.overlap_ns(since, end, *compute)
    facts = trace.frame("memcpy").select("bytes", "copy_kind", "src_kind", "dst_kind")[own["row"]]
    kind = pl.col("copy_kind")
    host = pl.when(kind.is_in(_TO_HOST)).then("dst_kind").otherwise("src_kind")
    memory = host.replace_strict(MEMORY, default=UNKNOWN_MEMORY, return_dtype=pl.String)
    step = attribution(trace)["step"].gather(pl.Series(at))
    groups = steps(trace).select("step", step_group="group")
    ranges = range_names(trace).of(attribution(trace)["range"].gather(pl.Series(at)))
    rows = facts.select(
        pl.lit(number, pl.UInt16).alias("timeline"),
        *(kind, "bytes", memory.alias("memory"), (pl.col("bytes") < SMALL_BYTES).alias("small")),
        pl.Series("range_name", ranges),
        pl.Series("start_ns", start),
        pl.Series("end_ns", end),
        pl.Series("time_ns", end - start),
        pl.Series("exposed_ns", exposed),
        own["queue"],
        step.alias("step"),
    )
    rows = rows.join(groups, on="step", how="left", maintain_order="left")
    return rows.hstack(_calls(trace, at, start, end))


def _calls(
    trace: Trace, at: NDArray[np.uint32], start: NDArray[np.int64], end: NDArray[np.int64]
) -> pl.DataFrame:
    """The call of each copy: its name, how long it took, and whether it waited for the copy."""
    call, rows = host_calls(trace).of_work[at], trace.frame("runtime")
    known = call >= 0
    name = np.full(call.size, -1, np.int32)
    length, waited_for = np.zeros(call.size, np.int64), np.zeros(call.size, np.bool_)
    if known.any():
        own = call[known]
        begun, ended = (rows[c].to_numpy()[own] for c in ("start_ns", "end_ns"))
        name[known], length[known] = call_names(trace).number[own], ended - begun
        covers = (begun <= start[known]) & (ended >= end[known] - _HOST_BACK_NS)
        waited_for[known] = covers & (ended > start[known])
    columns = {"call_name": name, "call_ns": length, "host_waited": waited_for}
    return pl.DataFrame(columns)


def _named(trace: Trace, found: pl.DataFrame) -> pl.DataFrame:
    """Put words in place of numbers, and say what waits for each site's longest copy."""
    texts, names = range_names(trace).names, call_names(trace).table["name"]
    lines = timelines(trace)
    waiters = [
        _waiter(trace, lines[line], *longest)
        for line, *longest in found.select("timeline", "end_ns", "queue").rows()
    ]
    kind = pl.col("copy_kind")
    return (
        found.with_columns(
            pl.Series("range", _texts(texts, found["range_name"]), pl.String),
            pl.Series("call", _texts(names.to_list(), found["call_name"]), pl.String),
            kind.replace_strict(COPY_KINDS, default="kind unknown", return_dtype=pl.String).alias(
                "direction"
            ),
            (pl.col("bytes") / pl.col("time_ns")).alias("gb_per_s"),
            pl.Series("link_gb_per_s", _links(trace, found), pl.Float64),
            pl.Series("waiter", [w for w, _ in waiters], pl.String),
            pl.Series("waits_by", [by for _, by in waiters], pl.String),
            pl.col("start_ns").alias("first_start_ns"),
            pl.col("end_ns").alias("first_end_ns"),
        )
        .select(list(COPY_SITES))
        .cast(COPY_SITES)
        .sort(
            ["exposed_ns", "time_ns", "timeline", "first_start_ns"],
            descending=[True, True, False, False],
        )
    )


def _texts(names: tuple[str, ...] | list[str], rows: pl.Series) -> list[str | None]:
    return [names[row] if row >= 0 else None for row in rows.to_list()]


def _links(trace: Trace, found: pl.DataFrame) -> list[float | None]:
    """Peak of the link that each site's copies take, GB/s."""
    links: list[float | None] = []
    for number, kind in found.select("timeline", "copy_kind").rows():
        gpu = timelines(trace)[number].gpu
        link = None
        if gpu is not None and kind in (*_FROM_HOST, *_TO_HOST):
            device = trace.gpus[gpu]
            link = host_link_gb_per_s(device.chip, device.name)
        links.append(link)
    return links


def _waiter(trace: Trace, line: Timeline, end: int, queue: int) -> tuple[str | None, str | None]:
    """What ran first after a copy had ended, and how it came to wait for it."""
    work = activity(trace)
    starts, kinds = line.of(work["start_ns"]).to_numpy(), line.of(work["kind"]).to_physical()
    after = int(np.searchsorted(starts, end, side="left"))
    is_copy = _IS_COPY[kinds[after : after + _LOOK_AHEAD].to_numpy()]
    if is_copy.all():
        return None, None
    row = int(line.row(np.array([after + int(np.argmin(is_copy))]))[0])
    name = work["name_key"][row]
    shown = work["kind"][row]
    if name is not None:
        shown = kernel_names(trace).filter(pl.col("name_key") == name)["name"][0]
    if work["queue"][row] == queue:
        return shown, "same stream"
    by_event = waited(trace, np.array([row], np.uint32))[0]
    return shown, "event" if by_event else "other"


_LOOK_AHEAD = 4096
"""Operations after a copy among which what waits for it is looked for."""
