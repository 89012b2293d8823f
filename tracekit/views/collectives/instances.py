"""The same collective on all its ranks: waiting, skew and transfer of each.

A rank that comes early spins inside its kernel until the last one has come. So of a kernel's
duration only the part after the latest start moves data; the part before is waiting. One value a
collective, *transfer* = last end - latest start, is what collectives are compared by.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.trace import Trace, view
from tracekit.views.collectives.kernels import POINT_TO_POINT, collectives
from tracekit.views.collectives.matching import MEMBER, READ, STATUS, communicators, match_one

__all__ = ["Matching", "firsts", "instances", "last_starts", "matching"]

Rows: TypeAlias = NDArray[np.int64]

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
        "step": pl.UInt32(),
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


class Matching(NamedTuple):
    """Collectives matched across ranks.

    Attributes:
        members: Frame of `MEMBER`, the kernels that belong to a matched collective: row (in
            `collectives`), wait_ns (latest start - own start) and xfer_ns (own end - latest start,
            at least 0); sorted by instance, rank_id.
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
    rows = collectives(trace).select(READ).with_row_index("row")
    rows = rows.filter(~pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False))
    parts, about_each = [pl.DataFrame(schema=MEMBER)], []
    base = 0
    for comm, group in communicators(trace, rows):
        found, about = match_one(trace, group)
        parts.append(found.with_columns(pl.col("instance") + base).select(list(MEMBER)))
        base += int(str(about["n_matched"]))
        about_each.append({"comm": comm, **about})
    return Matching(pl.concat(parts), pl.DataFrame(about_each, schema=COMMUNICATOR))


@view(of=[collectives, matching])
def instances(trace: Trace) -> pl.DataFrame:
    """Return one row per collective that was matched across its ranks.

    Returns:
        Frame of `INSTANCE`, sorted by instance. ``transfer_ns`` is last end - latest start (at
        least 0), ``skew_ns`` latest - first start, 0 below three times the error of the clocks;
        ``step`` is that of the lowest rank that has one.
    """
    rows = matching(trace).members
    instance, start, end, rank = (
        rows[c].to_numpy() for c in ("instance", "start_ns", "end_ns", "rank_id")
    )
    first = firsts(rows)
    if first.size == 0:
        return pl.DataFrame(schema=INSTANCE)
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
        prov=np.minimum.reduceat(rows["prov"].to_numpy(), first),
    )
    return found.select(list(INSTANCE)).cast(INSTANCE)


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


@view(of=[collectives, instances, matching])
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
