"""Attributes the time that contention costs to the work that overlaps slowed collectives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.ncu import SHAPE
from tracekit.model.table import Column, Table
from tracekit.numerics import intervals, numbering
from tracekit.numerics.bootstrap import MIN_EACH, lost, median_ratio
from tracekit.numerics.excess import assign_excess
from tracekit.numerics.rows.overlapping import INSIDE, sides
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.collectives.kernels import collectives
from tracekit.views.collectives.matching import instances, matching
from tracekit.views.collectives.overlap import ALONE_FRAC, comm_overlap, merged
from tracekit.views.contention.loss import contention_excess
from tracekit.views.device.activity import OPAQUE, WORK_KIND, activity
from tracekit.views.device.kernels import kernel_names, shapes
from tracekit.views.device.lanes import COMM_KINDS, Lanes, lanes
from tracekit.views.keys import row_numbers

__all__ = ["ATTRIBUTION", "INSIDE_FRAC", "SLOWED_COMPUTE", "excess_attribution", "slowed_compute"]

_PAIR = ["comm", "op", "mechanism"]
ATTRIBUTION = Table(
    "attribution",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("mechanism", pl.String, "", "bandwidth (DRAM), link, SM/scheduling or unknown"),
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("corunner", pl.String, "", "overlapping work: kernel name, or kind of copy"),
        Column("kind", pl.String, "", "class of work"),
        Column("n", pl.Int64, "", "executions that share time with it"),
        Column("excess_ns", pl.Float64, "ns", "lost time attributed to it"),
        Column("excess_frac", pl.Float64, "1", "share of the mechanism's excess"),
    ),
    "overlapping work to which lost time is attributed",
)


@view
def excess_attribution(trace: Trace) -> pl.DataFrame:
    """Return the overlapping work to which lost time is attributed.

    The excess of a collective is spread over what overlapped it on each of its GPUs, in
    proportion to the integral of 1 / (rows active) over the common time, an equal part a GPU.

    Returns:
        Frame of `ATTRIBUTION`, most excess first within comm, op, mechanism: corunner is the
        kernel's name or the kind of copy, n its executions that shared time, excess_frac the
        share of the mechanism's excess.
    """
    slowed = contention_excess(trace).drop_nulls("excess_ns")
    if slowed.is_empty():
        return ATTRIBUTION.empty()
    pairs = slowed.select(_PAIR).unique(maintain_order=True).with_row_index("pair")
    slowed = slowed.join(pairs, on=_PAIR, how="left", nulls_equal=True, maintain_order="left")
    rows = _with_windows(trace, slowed)
    work = activity(trace).select("name_key", "kind")
    found_on = lanes(trace)

    def assigned(of_gpu: pl.DataFrame) -> list[pl.DataFrame]:
        return _assigned(of_gpu, found_on[of_gpu["gpu"][0]], work)

    gpus = rows.partition_by("gpu", maintain_order=True)
    parts = [part for of_gpu in each(assigned, gpus) for part in of_gpu]
    names = kernel_names(trace).select("name_key", pl.col("name").alias("corunner"))
    found = (
        pl.concat(parts)
        .join(pairs, on="pair", how="left", maintain_order="left")
        .join(names, on="name_key", how="left", maintain_order="left")
    )
    found = found.with_columns(
        pl.coalesce("corunner", pl.col("kind").cast(pl.String)).alias("corunner")
    )
    shares = pl.col("excess_ns") / pl.col("excess_ns").sum().over(_PAIR)
    found = ATTRIBUTION.select(found.with_columns(shares.alias("excess_frac")))
    order = [*_PAIR, "excess_ns", "gpu", "corunner"]
    return found.sort(order, descending=[False] * 3 + [True] + [False] * 2)


def _with_windows(trace: Trace, slowed: pl.DataFrame) -> pl.DataFrame:
    """Windows of the members of slowed collectives, each with its part of the excess, in order."""
    members = matching(trace).members
    excess = np.full(instances(trace).height, np.nan)
    pair = np.zeros(excess.size, np.uint32)
    own = slowed["instance"].to_numpy()
    excess[own], pair[own] = slowed["excess_ns"].to_numpy(), slowed["pair"].to_numpy()
    instance = members["instance"].to_numpy()
    at = np.flatnonzero(~np.isnan(excess)[instance])
    at = at[np.argsort(members["activity"].to_numpy()[at])]
    part = excess / np.bincount(instance, minlength=excess.size)
    rows = members.select("row", "gpu", "end_ns")[at]
    return (
        comm_overlap(trace)
        .kernels.select("window_start_ns")[rows["row"]]
        .hstack(
            [
                *rows.drop("row"),
                pl.Series("pair", pair[instance[at]]),
                pl.Series("excess_ns", part[instance[at]]),
            ]
        )
    )


def _assigned(rows: pl.DataFrame, lane: Lanes, work: pl.DataFrame) -> list[pl.DataFrame]:
    """Excess by co-running name and kind on one GPU, a frame a mechanism."""
    parts = []
    for own in rows.partition_by("pair", maintain_order=True):
        start, end, excess = (own[c].to_numpy() for c in ("window_start_ns", "end_ns", "excess_ns"))
        other = lane.overlapping_rows(intervals.union(start, end))
        given, weight = assign_excess(start, end, excess, lane.start[other], lane.end[other])
        at = np.flatnonzero(weight > 0)
        shared = work[(lane.first + other[at]).astype(np.uint32)]
        shared = shared.with_columns(pl.Series("excess_ns", given[at]))
        shared = shared.group_by("name_key", "kind").agg(
            pl.len().cast(pl.Int64).alias("n"), pl.col("excess_ns").sum()
        )
        gpu = pl.lit(own["gpu"][0], pl.Int16).alias("gpu")
        parts.append(shared.with_columns(gpu, pl.lit(own["pair"][0], pl.UInt32).alias("pair")))
    return parts


INSIDE_FRAC = 0.95
"""Share of a kernel that collectives must cover for it to count as run inside them."""
_MOST_PACKED = 1 << 62
_LOOKED_AT_ONCE = 1 << 16
_SHARES = ALONE_FRAC, INSIDE_FRAC
_LIKE = ["name_key", "kind", *SHAPE, "bytes"]
SLOWED_COMPUTE = Table(
    "slowed_compute",
    (
        Column("name", pl.String, "", "kernel name, or kind of copy"),
        Column("kind", pl.String, "", "class of work"),
        Column("grid", pl.String, "", "grid of the kernel"),
        Column("block", pl.String, "", "block of the kernel"),
        Column("bytes", pl.Int64, "bytes", "size of a copy; null for kernels"),
        Column("n_outside", pl.Int64, "", "executions outside of collectives"),
        Column("n_inside", pl.Int64, "", "executions inside"),
        Column("outside_ns", pl.Float64, "ns", "median duration outside"),
        Column("inside_ns", pl.Float64, "ns", "median duration inside"),
        Column("slowdown_ratio", pl.Float64, "x", "overlapped over alone, medians"),
        Column("slowdown_lo_ratio", pl.Float64, "x", "lower end of its 95% bootstrap interval"),
        Column("slowdown_hi_ratio", pl.Float64, "x", "upper end"),
        Column("excess_ns", pl.Int64, "ns", "above the median outside, summed, mean over GPUs"),
        Column("hidden_ns", pl.Int64, "ns", "communication hidden by it, mean over GPUs"),
    ),
    "like work inside collectives, against outside",
)


@view
def slowed_compute(trace: Trace) -> pl.DataFrame:
    """Compare work inside collectives with the same work outside of any.

    Only like is compared with like: kernels of one name, grid and block, copies of one kind and
    size, with at least five executions on either side.

    Returns:
        Frame of `SLOWED_COMPUTE`, most excess first. ``excess_ns`` is the time above the median
        outside, summed, mean over GPUs; ``hidden_ns`` likewise the communication time that ran
        meanwhile, which would have been exposed without the overlap.
    """
    names = dict(kernel_names(trace).select("name_key", "name").rows())
    rows = []
    for key, group in _candidates(_like(trace, _inside_or_outside(trace))):
        name, kind, shape = key["name_key"], key["kind"], [key[c] for c in SHAPE]
        grid, block = (
            None if None in part else "x".join(map(str, part)) for part in (shape[:3], shape[3:])
        )
        about = {"name": names.get(name, kind), "kind": kind, "grid": grid, "block": block}
        rows.append(about | {"bytes": key["bytes"]} | _compared(*group))
    order = ["excess_ns", "name", "grid", "block", "bytes"]
    return pl.DataFrame(rows, schema=SLOWED_COMPUTE.schema).sort(
        order, descending=[True] + [False] * 4, nulls_last=True
    )


def _compared(outside: NDArray[np.int64], inside: NDArray[np.int64], n_gpus: int) -> dict[str, Any]:
    """Durations of like work inside and outside of collectives; sums are means over GPUs."""
    slowdown = median_ratio(outside, inside)
    return {
        "n_outside": outside.size,
        "n_inside": inside.size,
        "outside_ns": float(np.median(outside)),
        "inside_ns": float(np.median(inside)),
        "slowdown_ratio": float(np.median(inside) / np.median(outside)),
        "slowdown_lo_ratio": slowdown.lo,
        "slowdown_hi_ratio": slowdown.hi,
        "excess_ns": round(lost(outside, inside) / n_gpus),
        "hidden_ns": round(int(inside.sum()) / n_gpus),
    }


_Sides = tuple[NDArray[np.int64], NDArray[np.int64], int]


def _candidates(work: pl.DataFrame) -> Iterator[tuple[dict[str, Any], _Sides]]:
    """Like work with enough executions on both sides: durations outside, inside, and GPUs."""
    number, first = _numbered(work.select(_LIKE))
    inside, length = work["inside"].to_numpy(), work["length_ns"].to_numpy()
    side = 2 * number + inside
    order = np.argsort(side.astype(np.min_scalar_type(2 * first.size)), kind="stable")
    count = np.bincount(side, minlength=2 * first.size)
    end = np.cumsum(count)
    gpu, gpus = numbering.numbered(work["gpu"].to_numpy().astype(np.int64))
    on = np.zeros((first.size, gpus.size), np.bool_)
    on[number[inside], gpu[inside]] = True
    enough = np.flatnonzero((count.reshape(-1, 2) >= MIN_EACH).all(axis=1))
    keys = work.select(_LIKE)[first[enough].astype(np.uint32)].rows(named=True)
    for key, group in zip(keys, enough.tolist(), strict=True):
        out, within = (
            length[order[end[one] - count[one] : end[one]]] for one in (2 * group, 2 * group + 1)
        )
        yield key, (out, within, int(on[group].sum()))


def _numbered(keys: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number equal rows alike, and the first row of each number; nulls are equal."""
    number, size = np.zeros(keys.height, np.int64), 1
    for column in keys:
        values = column.to_physical()
        low, high = (int(str(v)) if v is not None else 0 for v in (values.min(), values.max()))
        if size * (high - low + 2) > _MOST_PACKED:
            number, first = numbering.numbered(number)
            size = first.size
        values = (values.cast(pl.Int64) - (low - 1)).fill_null(0)
        number, size = number * (high - low + 2) + values.to_numpy(), size * (high - low + 2)
    return numbering.numbered(number)


def _like(trace: Trace, work: pl.DataFrame) -> pl.DataFrame:
    """Frame of gpu, inside, length_ns and the columns of `_LIKE`, of its rows."""
    columns = ["gpu", "source", "row", "kind", "name_key", "start_ns", "end_ns"]
    found = activity(trace).select(columns)[work["at"]]
    row = pl.when(pl.col("source") == "kernel").then("row")
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    shape = shapes(trace).of(found.select(row).to_series())
    found = found.select("gpu", length, "name_key", "kind", _sizes(trace, found))
    return found.hstack(shape).hstack([work["inside"]])


def _sizes(trace: Trace, work: pl.DataFrame) -> pl.Series:
    """What copies and memsets moved, null for kernels: Int64."""
    copied, set_ = trace.frame("memcpy")["bytes"], trace.frame("memset")["bytes"]
    source, row = pl.col("source"), pl.col("row")
    at = pl.when(source == "memcpy").then(row).when(source == "memset").then(row + len(copied))
    return pl.concat([copied, set_])[work.select(at).to_series()]


_Names = NDArray[np.uint32]
_SideOf = NDArray[np.uint8]


def _inside_or_outside(trace: Trace) -> pl.DataFrame:
    """Work that clearly ran inside collectives or clearly not, on GPUs that communicate.

    Frame of at UInt32 (row of `activity`) and inside Boolean, by GPU and stream; only work of names
    that occur often enough on either side.
    """
    comm = collectives(trace).select("gpu", "pid", "stream", "start_ns", "end_ns")
    own = {rows["gpu"][0]: rows for rows in comm.drop_nulls("gpu").partition_by("gpu")}
    gpus = [(lane, own[gpu]) for gpu, lane in lanes(trace).items() if gpu in own]
    n_kinds = len(WORK_KIND.categories)
    n_names = n_kinds + int(str(kernel_names(trace)["name_key"].max() or 0)) + 1
    called = activity(trace).select("name_key", pl.col("kind").to_physical())
    name = pl.coalesce(pl.col("name_key") + n_kinds, "kind").alias("name")

    def sided(one: tuple[Lanes, pl.DataFrame]) -> tuple[_Names, _SideOf, NDArray[np.int64]]:
        lane, on_gpu = one
        names = called.slice(lane.first, lane.start.size).select(name).to_series().to_numpy()
        cover = _cover(lane, on_gpu)
        return names, *sides((lane.start, lane.end), cover, names, n_names, _SHARES)

    found = each(sided, gpus)
    counts = np.sum([np.zeros((n_names, 2)), *(count for _, _, count in found)], axis=0)
    compared: NDArray[np.bool_] = (counts >= MIN_EACH).all(axis=1)
    if not compared.any():
        return pl.DataFrame(schema={"at": pl.UInt32, "inside": pl.Boolean})
    place, parts = _by_stream([lane for lane, _ in gpus]), []
    for (lane, _), (names, side, _) in zip(gpus, found, strict=True):
        rows = np.flatnonzero((side > 0) & compared[names])
        rows = rows[np.argsort(place[lane.queue[rows]], kind="stable")]
        at = pl.Series(rows + lane.first, dtype=pl.UInt32)
        parts.append(pl.DataFrame({"at": at, "inside": side[rows] == INSIDE}))
    return pl.concat(parts)


def _counted(lane: Lanes) -> NDArray[np.bool_]:
    """Which kinds are compared: bool[kinds]."""
    return np.array([k not in (*COMM_KINDS, OPAQUE) for k in lane.kinds], np.bool_)


def _by_stream(gpus: list[Lanes]) -> NDArray[np.uint16]:
    """Place of each queue: by GPU, then by stream, the one that is used first coming first."""
    n_queues = max((lane.stream_of.size for lane in gpus), default=0)
    place, before = np.zeros(n_queues, np.uint16), 0
    for lane in gpus:
        counted = _counted(lane)
        first: dict[tuple[int | None, int | None], int] = {}
        used = np.flatnonzero(lane.count[:, counted].any(axis=1))
        pairs = [lane.streams[lane.stream_of[queue]] for queue in used]
        for queue, pair in zip(used, pairs, strict=True):
            row = _first_of(lane, int(queue), counted)
            first[pair] = min(row, first.get(pair, row))
        ordered = sorted(first, key=first.__getitem__)
        place[used] = [before + ordered.index(pair) for pair in pairs]
        before += len(ordered)
    return place


def _first_of(lane: Lanes, queue: int, counted: NDArray[np.bool_]) -> int:
    """First row of a queue that is compared; it mostly comes early."""
    for low in range(0, lane.queue.size, _LOOKED_AT_ONCE):
        own = slice(low, low + _LOOKED_AT_ONCE)
        found = (lane.queue[own] == queue) & counted[lane.kind[own]]
        if found.any():
            return low + int(np.argmax(found))
    return 0


def _cover(lane: Lanes, comm: pl.DataFrame) -> NDArray[np.int64]:
    """How long communication on other streams of its GPU covers each row; -1 if not counted."""
    cover = intervals.overlap_ns(lane.start, lane.end, *merged(comm))
    for pid, stream in row_numbers(comm.select("pid", "stream"))[1].rows():
        queues = ~lane.not_on(pid, stream)[lane.stream_of]
        # Most streams of communication have no other work.
        if lane.count[queues][:, _counted(lane)].any():
            mine = queues[lane.queue]
            on = pl.col("pid").eq_missing(pid) & pl.col("stream").eq_missing(stream)
            others = merged(comm.filter(~on))
            cover[mine] = intervals.overlap_ns(lane.start[mine], lane.end[mine], *others)
    cover[~_counted(lane)[lane.kind]] = -1
    return cover
