"""Which kernels of which ranks are one collective.

Without a communicator id, kernels are matched in order, and only believed where they overlap in
time on all ranks.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.inputs import Alignment
from tracekit.model.table import Column, Table
from tracekit.numerics.clocks import best_shift
from tracekit.trace import Trace, view
from tracekit.views.collectives.kernels import (
    COLLECTIVES,
    POINT_TO_POINT,
    SYNCHRONOUS_OPS,
    collectives,
)
from tracekit.views.keys import row_numbers

__all__ = [
    "MEMBERS",
    "READ",
    "STATUS",
    "Matching",
    "communicators",
    "firsts",
    "instances",
    "last_starts",
    "match_one",
    "matching",
]

Rows: TypeAlias = NDArray[np.int64]

STATUS = pl.Enum(
    [
        "matched",
        "one rank",
        "missing ranks",
        "counts differ",
        "operations differ",
        "clocks not aligned",
        "not in step",
    ]
)
"""Whether the collectives of a communicator could be matched across its ranks.

``one rank``: only one rank was recorded. ``missing ranks``: matched, but the communicator has more
ranks than were recorded. ``operations differ``: no collective has one operation and size on all
ranks. ``counts differ``: ranks recorded different numbers of collectives and no
unique correspondence exists. ``not in step``: without a communicator id, kernels taken in order do
not overlap in time, so they are not the same collective.
"""
IN_STEP_FRAC = 0.9
"""Share of collectives whose ranks must overlap in time for a match by order to be believed."""
_MADS = 3
_CLK_ALIGNED, _CLOCKS_DISAGREE = 0.8, 0.4
READ = [
    *("activity", "report", "gpu", "rank_id", "comm", "comm_known", "op", "bytes", "nranks"),
    *("start_ns", "end_ns", "step", "provenance"),
]
_OF_COLLECTIVE = [
    "activity",
    "rank_id",
    "gpu",
    "comm",
    "op",
    "start_ns",
    "end_ns",
    "step",
    "provenance",
]
MEMBERS = Table(
    "members",
    (
        Column("instance", pl.UInt32, "", "number of the collective"),
        Column("row", pl.UInt32, "", "row of `collectives`"),
        *map(COLLECTIVES.column, _OF_COLLECTIVE),
        Column("wait_ns", pl.Int64, "ns", "latest start - own start"),
        Column("xfer_ns", pl.Int64, "ns", "own end - latest start"),
    ),
    "one communication kernel of a matched collective",
)


def communicators(trace: Trace, rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Divide kernels by communicator; an unnamed one falls into circles of ranks in step.

    Tensor-parallel groups side by side use the same kernels in the same order, but only ranks of
    one group meet each other.

    Args:
        trace: Has the alignment of the clocks.
        rows: `READ` of `collectives` with its row.

    Returns:
        Name and kernels of each.
    """
    found: list[tuple[str, pl.DataFrame]] = []
    for (comm,), group in rows.partition_by("comm", as_dict=True, maintain_order=True).items():
        if group["comm_known"].all() or match_one(trace, group)[1]["status"] != "not in step":
            found.append((str(comm), group))
            continue
        for i, circle in enumerate(_circles(trace, group)):
            label = f"{comm}/{i}"
            found.append((label, circle.with_columns(pl.lit(label, pl.Categorical).alias("comm"))))
    return found


def _circles(trace: Trace, group: pl.DataFrame) -> list[pl.DataFrame]:
    left = group.partition_by("rank_id", maintain_order=True)
    circles = []
    while left:
        first, rest = left[0], left[1:]
        circle, left = [first], []
        for rank in rest:
            status = match_one(trace, pl.concat([first, rank]))[1]["status"]
            (circle if status in ("matched", "missing ranks") else left).append(rank)
        circles.append(pl.concat(circle))
    return circles


def match_one(trace: Trace, group: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, object]]:
    """Match one communicator.

    Args:
        trace: Has the alignment of the clocks.
        group: Its kernels, by rank.

    Returns:
        Frame of `MEMBERS`, instances numbered from 0, and what is known of the communicator.
    """
    ranks = group.partition_by("rank_id", maintain_order=True)
    clock, mad_ns = _clock(trace, group)
    nranks = group["nranks"].max()
    about: dict[str, object] = {
        "comm_known": bool(group["comm_known"].all()),
        "status": "matched",
        "n_ranks": len(ranks),
        "nranks": nranks,
        "n_kernels": group.height,
        "n_matched": 0,
        "n_mismatched": 0,
        "n_clock_faults": 0,
        "clock": clock,
        "mad_ns": mad_ns,
        "provenance": group["provenance"].min(),
    }
    none = MEMBERS.empty()
    if len(ranks) < 2:
        return none, about | {"status": "one rank"}
    if clock == 0:
        return none, about | {"status": "clocks not aligned"}
    together = _together(ranks)
    if together is None:
        return none, about | {"status": "counts differ"}
    agreeing = together[_alike(group["op"], together) & _alike(group["bytes"], together)]
    about["n_mismatched"] = len(together) - len(agreeing)
    return _judged(group, agreeing, about, mad_ns)


def _alike(column: pl.Series, together: Rows) -> NDArray[np.bool_]:
    """Whether all kernels of each collective have one value; unknown is a value too."""
    number, _ = row_numbers(column.to_physical().to_frame())
    of = number[together]
    same: NDArray[np.bool_] = (of == of[:, :1]).all(axis=1)
    return same


def _judged(
    group: pl.DataFrame, together: Rows, about: dict[str, object], mad_ns: float
) -> tuple[pl.DataFrame, dict[str, object]]:
    n = len(together)
    if n == 0:
        return MEMBERS.empty(), about | {"status": "operations differ"}
    start, end = (group[c].to_numpy()[together] for c in ("start_ns", "end_ns"))
    latest = start.max(axis=1)
    synchronous = pl.col("op").fill_null("AllReduce").is_in(SYNCHRONOUS_OPS)
    early = group.select(synchronous).to_series().to_numpy()[together[:, 0]]
    early &= (latest.astype(np.float64) - end.min(axis=1)) > _MADS * mad_ns
    faults = int(early.sum())
    out_of_step = faults > (1 - IN_STEP_FRAC) * n
    if out_of_step and not about["comm_known"]:
        status = {"status": "not in step", "n_clock_faults": faults}
        return MEMBERS.empty(), about | status
    wait = latest[:, None] - start
    # Differences that the clocks cannot resolve are zero.
    wait[wait < _MADS * mad_ns] = 0
    members = group.select("row", *_OF_COLLECTIVE)[together.ravel()].with_columns(
        pl.Series("instance", np.repeat(np.arange(n, dtype=np.uint32), together.shape[1])),
        pl.Series("wait_ns", wait.ravel()),
        pl.Series("xfer_ns", np.maximum(end - latest[:, None], 0).ravel()),
    )
    nranks = about["nranks"]
    few = isinstance(nranks, int) and about["n_ranks"] != nranks
    return members, about | {
        "n_matched": n,
        "n_clock_faults": faults,
        "status": "missing ranks" if few else "matched",
        "clock": _CLOCKS_DISAGREE if out_of_step else about["clock"],
    }


def _clock(trace: Trace, group: pl.DataFrame) -> tuple[float, float]:
    """Confidence in a common clock (0: none) and the error of the alignment in ns."""
    reports = group["report"].unique().sort().to_list()
    if len(reports) == 1:
        return 1.0, 0.0
    known: dict[int, Alignment] = {a.report: a for a in trace.alignment}
    found = [known.get(r) for r in reports]
    if any(a is None or not a.aligned for a in found):
        return 0.0, 0.0
    return _CLK_ALIGNED, max(a.mad_ns or 0.0 for a in found if a is not None)


def _together(ranks: list[pl.DataFrame]) -> Rows | None:
    """Rows of the kernels that are one collective; None when there is no unique way.

    Returns:
        int64[collectives, ranks], rows in the frames of the ranks one after another.
    """
    longest = max(ranks, key=lambda r: r.height)
    reference = longest["end_ns"].to_numpy()
    starts, zero, row = [], [], 0
    for rank in ranks:
        start = 0
        if rank.height != longest.height:
            shift = best_shift(reference, rank["end_ns"].to_numpy())
            if shift is None:
                return None
            start = shift.start
        starts.append(start)
        zero.append(row - start)
        row += rank.height
    ends = [start + rank.height for start, rank in zip(starts, ranks, strict=True)]
    return np.arange(max(starts), min(ends), dtype=np.int64)[:, None] + np.array(zero, np.int64)


INSTANCES = Table(
    "instances",
    (
        Column("instance", pl.UInt32, "", "number of the collective"),
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("bytes", pl.Int64, "bytes", "whole message; null when unknown"),
        Column("dtype", pl.String, "", "element type"),
        Column("name", pl.String, "", "kernel name, or kind of copy"),
        Column("grid", pl.String, "", "grid of the kernel"),
        Column("nranks_at_least", pl.Int64, "", "ranks of the communicator, or those seen"),
        Column("n_seen", pl.UInt32, "", "ranks that were recorded"),
        Column("first_start_ns", pl.Int64, "ns", "first start over the ranks"),
        Column("last_start_ns", pl.Int64, "ns", "latest start over the ranks"),
        Column("last_end_ns", pl.Int64, "ns", "last end over the ranks"),
        Column("transfer_ns", pl.Int64, "ns", "last end - latest start"),
        Column("skew_ns", pl.Int64, "ns", "latest start - first start"),
        Column("late_rank_id", pl.UInt32, "", "rank that came last"),
        Column("clock_fault", pl.Boolean, "", "whether a rank left before the last one came"),
        Column("in_graph", pl.Boolean, "", "whether it ran inside a CUDA graph"),
        Column("step", pl.UInt32, "", "step; null outside of steps"),
        Column("provenance", pl.Float64, "", "confidence in source of size and operation, 0..1"),
    ),
    "one collective, matched across its ranks",
)
COMMUNICATORS = Table(
    "communicators",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("comm_known", pl.Boolean, "", "whether the id is the library's own"),
        Column("status", STATUS, "", "whether ranks could be matched"),
        Column("n_ranks", pl.Int64, "", "ranks that were recorded"),
        Column("nranks", pl.Int64, "", "ranks of it; null when not stated"),
        Column("n_kernels", pl.Int64, "", "communication kernels of it"),
        Column("n_matched", pl.Int64, "", "collectives matched across ranks"),
        Column("n_mismatched", pl.Int64, "", "collectives that differ between ranks; not used"),
        Column("n_clock_faults", pl.Int64, "", "collectives left before the last rank came"),
        Column("clock", pl.Float64, "", "confidence in a common clock, 0..1"),
        Column("mad_ns", pl.Float64, "ns", "error of the clock alignment"),
        Column("provenance", pl.Float64, "", "confidence in source of size and operation, 0..1"),
    ),
    "one communicator and its matching",
)


class Matching(NamedTuple):
    """Collectives matched across ranks.

    Attributes:
        members: Frame of `MEMBERS`, the kernels that belong to a matched collective: row (in
            `collectives`), wait_ns (latest start - own start) and xfer_ns (own end - latest start,
            at least 0); sorted by instance, rank_id.
        communicators: One row a communicator, sorted by it: comm, comm_known, status `STATUS`,
            n_ranks (recorded), nranks (as the library said, null unknown), n_kernels, n_matched
            (collectives), n_mismatched (operation or size differ between ranks), n_clock_faults,
            clock and provenance (0..1), mad_ns (error of the clock alignment, 0 within one report).
    """

    members: pl.DataFrame
    communicators: pl.DataFrame


@view
def matching(trace: Trace) -> Matching:
    """Match the collectives of every communicator across its ranks."""
    rows = collectives(trace).select(READ).with_row_index("row")
    rows = rows.filter(~pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False))
    parts, about_each = [MEMBERS.empty()], []
    base = 0
    for comm, group in communicators(trace, rows):
        found, about = match_one(trace, group)
        parts.append(found.with_columns(pl.col("instance") + base).select(MEMBERS.schema.names()))
        base += int(str(about["n_matched"]))
        about_each.append({"comm": comm, **about})
    return Matching(pl.concat(parts), pl.DataFrame(about_each, schema=COMMUNICATORS.schema))


@view
def instances(trace: Trace) -> pl.DataFrame:
    """Return one row per collective that was matched across its ranks.

    Returns:
        Frame of `INSTANCES`, sorted by instance. ``transfer_ns`` is last end - latest start (at
        least 0), ``skew_ns`` latest - first start, 0 below three times the error of the clocks;
        ``step`` is that of the lowest rank that has one.
    """
    rows = matching(trace).members
    instance, start, end, rank = (
        rows[c].to_numpy() for c in ("instance", "start_ns", "end_ns", "rank_id")
    )
    first = firsts(rows)
    if first.size == 0:
        return INSTANCES.empty()
    latest, last_end = np.maximum.reduceat(start, first), np.maximum.reduceat(end, first)
    # Ranks ascend, so that of several latest ones the last stays.
    last = np.flatnonzero(start == latest[instance])
    late = np.empty(first.size, np.uint32)
    late[instance[last]] = rank[last]
    facts = collectives(trace).select(
        "bytes", "dtype", "name", "grid", "nranks_at_least", "in_graph"
    )
    found = rows.select("instance", "comm", "op")[first].hstack(facts[rows["row"][first]])
    found = found.with_columns(
        n_seen=np.diff(first, append=instance.size),
        first_start_ns=np.minimum.reduceat(start, first),
        last_start_ns=latest,
        last_end_ns=last_end,
        transfer_ns=np.maximum(last_end - latest, 0),
        skew_ns=np.maximum.reduceat(rows["wait_ns"].to_numpy(), first),
        late_rank_id=late,
        step=_first_known(rows["step"], instance, first.size),
        clock_fault=latest > np.minimum.reduceat(end, first),
        provenance=np.minimum.reduceat(rows["provenance"].to_numpy(), first),
    )
    return INSTANCES.select(found)


def _first_known(column: pl.Series, instance: NDArray[np.uint32], n: int) -> pl.Series:
    """The first value of each collective that is not null."""
    known = np.flatnonzero(column.is_not_null().to_numpy())[::-1]
    at = np.full(n, -1, np.int64)
    # Backwards, so that the first one stays.
    at[instance[known]] = known
    return column[pl.Series(at).set(pl.Series(at < 0), None).cast(pl.UInt32)]


def firsts(members: pl.DataFrame) -> Rows:
    """Return the first row of each collective in `Matching.members`: int64[instances]."""
    instance = members["instance"].to_numpy()
    new = np.append(np.ones(min(1, instance.size), np.bool_), instance[1:] != instance[:-1])
    return np.flatnonzero(new)


@view
def last_starts(trace: Trace) -> pl.DataFrame:
    """Return the latest start over the ranks, for each row of `collectives`.

    Returns:
        Frame of instance UInt32 and last_start_ns Int64, null for kernels that are not matched.
    """
    members, n = matching(trace).members, collectives(trace).height
    row, instance = members["row"].to_numpy(), members["instance"].to_numpy()
    of, latest = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    of[row] = instance
    latest[row] = instances(trace)["last_start_ns"].to_numpy()[instance]
    none = pl.Series(of < 0)
    return pl.DataFrame(
        {
            "instance": pl.Series(of).set(none, None).cast(pl.UInt32),
            "last_start_ns": pl.Series(latest).set(none, None),
        }
    )
