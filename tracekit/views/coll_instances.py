"""The same collective on all its ranks: waiting, skew and transfer of each.

A rank that comes early spins inside its kernel until the last one has come. So of a kernel's
duration only the part after the latest start moves data; the part before is waiting. One value a
collective, *transfer* = last end - latest start, is what collectives are compared by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.model.trace import Alignment, Trace, view
from tracekit.numerics.clocks import best_shift
from tracekit.views.collectives import POINT_TO_POINT, SYNCHRONOUS_OPS, collectives

__all__ = ["STATUS", "Matching", "instances", "matching"]

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
_CLK_ALIGNED, _CLK_DISAGREES = 0.8, 0.4
INSTANCE = pl.Schema(
    {
        "instance": pl.UInt32(),
        "comm": pl.String(),
        "op": pl.String(),
        "bytes": pl.Int64(),
        "dtype": pl.String(),
        "name": pl.String(),
        "grid": pl.String(),
        "nranks_at_least": pl.Int64(),
        "n_seen": pl.UInt32(),
        "first_start_ns": pl.Int64(),
        "last_start_ns": pl.Int64(),
        "last_end_ns": pl.Int64(),
        "transfer_ns": pl.Int64(),
        "skew_ns": pl.Int64(),
        "late_rank_id": pl.UInt32(),
        "clock_fault": pl.Boolean(),
        "in_graph": pl.Boolean(),
        "prov": pl.Float64(),
    }
)
COMMUNICATOR = pl.Schema(
    {
        "comm": pl.String(),
        "comm_known": pl.Boolean(),
        "status": STATUS,
        "n_ranks": pl.Int64(),
        "nranks": pl.Int64(),
        "n_kernels": pl.Int64(),
        "n_matched": pl.Int64(),
        "n_mismatched": pl.Int64(),
        "n_clock_faults": pl.Int64(),
        "clk": pl.Float64(),
        "mad_ns": pl.Float64(),
        "prov": pl.Float64(),
    }
)


@dataclass(frozen=True)
class Matching:
    """Collectives matched across ranks.

    Attributes:
        members: Rows of `collectives` that belong to a matched collective, plus instance UInt32,
            wait_ns Int64 (latest start - own start) and xfer_ns Int64 (own end - latest start, at
            least 0); sorted by instance, rank_id.
        communicators: One row a communicator, sorted by it: comm, comm_known, status `STATUS`,
            n_ranks (recorded), nranks (as the library said, null unknown), n_kernels, n_matched
            (collectives), n_mismatched (operation or size differ between ranks), n_clock_faults,
            clk and prov (0..1), mad_ns (error of the clock alignment, 0 within one report).
    """

    members: pl.DataFrame
    communicators: pl.DataFrame


@view(of=[collectives])
def matching(trace: Trace) -> Matching:
    """Match the collectives of every communicator across its ranks."""
    rows = collectives(trace)
    rows = rows.filter(~pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False))
    parts, communicators = [], []
    base = 0
    for comm, group in _groups(trace, rows):
        found, about = _match_one(trace, group)
        if found.height:
            parts.append(found.with_columns((pl.col("instance") + base).cast(pl.UInt32)))
            base += found["instance"].n_unique()
        communicators.append({"comm": comm, **about})
    empty = _timed(rows.clear().with_columns(pl.lit(0, pl.UInt32).alias("instance")), 0.0)
    members = pl.concat(parts) if parts else empty
    return Matching(
        members.sort("instance", "rank_id"), pl.DataFrame(communicators, schema=COMMUNICATOR)
    )


def _groups(trace: Trace, rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Kernels by communicator; an unnamed one falls into circles of ranks that are in step.

    Tensor-parallel groups side by side use the same kernels in the same order, but only ranks of
    one group meet each other.
    """
    found: list[tuple[str, pl.DataFrame]] = []
    for (comm,), group in rows.partition_by("comm", as_dict=True, maintain_order=True).items():
        if group["comm_known"].all() or _match_one(trace, group)[1]["status"] != "not in step":
            found.append((str(comm), group))
            continue
        for i, circle in enumerate(_circles(trace, group)):
            label = f"{comm}/{i}"
            found.append((label, circle.with_columns(pl.lit(label).alias("comm"))))
    return found


def _circles(trace: Trace, group: pl.DataFrame) -> list[pl.DataFrame]:
    left = group.partition_by("rank_id", maintain_order=True)
    circles = []
    while left:
        first, rest = left[0], left[1:]
        circle, left = [first], []
        for rank in rest:
            status = _match_one(trace, pl.concat([first, rank]))[1]["status"]
            (circle if status in ("matched", "missing ranks") else left).append(rank)
        circles.append(pl.concat(circle))
    return circles


def _match_one(trace: Trace, group: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, object]]:
    """Match one communicator; members numbered from 0, and its row of `COMMUNICATOR`."""
    ranks = group.partition_by("rank_id", maintain_order=True)
    clk, mad_ns = _clock(trace, group)
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
        "clk": clk,
        "mad_ns": mad_ns,
        "prov": group["prov"].min(),
    }
    if len(ranks) < 2:
        return group.clear(), about | {"status": "one rank"}
    if clk == 0:
        return group.clear(), about | {"status": "clocks not aligned"}
    numbered = _numbered(ranks)
    if numbered is None:
        return group.clear(), about | {"status": "counts differ"}
    together = numbered.filter(pl.len().over("instance") == len(ranks))
    agreeing = together.filter(
        (pl.col("op").n_unique().over("instance") == 1)
        & (pl.col("bytes").n_unique().over("instance") == 1)
    )
    about["n_mismatched"] = (together.height - agreeing.height) // len(ranks)
    return _judged(agreeing, about, mad_ns)


def _judged(
    members: pl.DataFrame, about: dict[str, object], mad_ns: float
) -> tuple[pl.DataFrame, dict[str, object]]:
    members = members.with_columns((pl.col("instance").rank("dense") - 1).cast(pl.UInt32))
    members = _timed(members, mad_ns)
    faults = _faults(members, mad_ns)
    n = members["instance"].n_unique()
    if n == 0:
        return members, about | {"status": "operations differ"}
    out_of_step = faults > (1 - IN_STEP_FRAC) * n
    if out_of_step and not about["comm_known"]:
        return members.clear(), about | {"status": "not in step", "n_clock_faults": faults}
    nranks = about["nranks"]
    few = isinstance(nranks, int) and about["n_ranks"] != nranks
    return members, about | {
        "n_matched": n,
        "n_clock_faults": faults,
        "status": "missing ranks" if few else "matched",
        "clk": _CLK_DISAGREES if out_of_step else about["clk"],
    }


def _clock(trace: Trace, group: pl.DataFrame) -> tuple[float, float]:
    """Confidence in a common clock (0: none) and the error of the alignment in ns."""
    reports = sorted(set(group["report"]))
    if len(reports) == 1:
        return 1.0, 0.0
    known: dict[int, Alignment] = {a.report: a for a in trace.alignment}
    found = [known.get(r) for r in reports]
    if any(a is None or not a.aligned for a in found):
        return 0.0, 0.0
    return _CLK_ALIGNED, max(a.mad_ns or 0.0 for a in found if a is not None)


def _numbered(ranks: list[pl.DataFrame]) -> pl.DataFrame | None:
    """Number the collectives alike on all ranks; None when there is no unique way."""
    longest = max(ranks, key=lambda r: r.height)
    reference = longest["end_ns"].to_numpy()
    parts = []
    for rank in ranks:
        start = 0
        if rank.height != longest.height:
            shift = best_shift(reference, rank["end_ns"].to_numpy())
            if shift is None:
                return None
            start = shift.start
        number = np.arange(start, start + rank.height, dtype=np.uint32)
        parts.append(rank.with_columns(pl.Series("instance", number)))
    return pl.concat(parts)


def _timed(members: pl.DataFrame, mad_ns: float) -> pl.DataFrame:
    """Add waiting and transfer; differences that the clocks cannot resolve are zero."""
    latest = pl.col("start_ns").max().over("instance")
    wait = latest - pl.col("start_ns")
    return members.with_columns(
        pl.when(wait.cast(pl.Float64) < _MADS * mad_ns).then(0).otherwise(wait).alias("wait_ns"),
        (pl.col("end_ns") - latest).clip(lower_bound=0).alias("xfer_ns"),
    )


def _faults(members: pl.DataFrame, mad_ns: float) -> int:
    """Synchronous collectives that some rank left before the last one came."""
    ends = members.filter(pl.col("op").fill_null("AllReduce").is_in(SYNCHRONOUS_OPS))
    ends = ends.group_by("instance").agg(pl.col("end_ns").min(), pl.col("start_ns").max())
    early = ends["start_ns"].cast(pl.Float64) - ends["end_ns"].cast(pl.Float64)
    return int((early > _MADS * mad_ns).sum())


@view(of=[matching])
def instances(trace: Trace) -> pl.DataFrame:
    """Return one row per collective that was matched across its ranks.

    Returns:
        Frame of `INSTANCE`, sorted by instance. ``transfer_ns`` is last end - latest start (at
        least 0), ``skew_ns`` latest - first start, 0 below three times the error of the clocks.
    """
    found = matching(trace)
    first = ("comm", "op", "bytes", "dtype", "name", "grid", "nranks_at_least", "in_graph")
    latest = pl.col("start_ns").max()
    rows = found.members.group_by("instance", maintain_order=True).agg(
        *(pl.col(c).first() for c in first),
        pl.len().alias("n_seen"),
        pl.col("start_ns").min().alias("first_start_ns"),
        latest.alias("last_start_ns"),
        pl.col("end_ns").max().alias("last_end_ns"),
        (pl.col("end_ns").max() - latest).clip(lower_bound=0).alias("transfer_ns"),
        pl.col("wait_ns").max().alias("skew_ns"),
        pl.col("rank_id").sort_by("start_ns", "rank_id").last().alias("late_rank_id"),
        (latest > pl.col("end_ns").min()).alias("clock_fault"),
        pl.col("prov").min(),
    )
    return rows.select(list(INSTANCE)).cast(INSTANCE).sort("instance")
