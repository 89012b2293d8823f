"""Which kernels of which ranks are one collective.

Without a communicator id, kernels are matched in order, and only believed where they overlap in
time on all ranks.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.inputs import Alignment
from tracekit.numerics.clocks import best_shift
from tracekit.trace import Trace
from tracekit.views.collectives.kernels import COLLECTIVES, SYNCHRONOUS_OPS
from tracekit.views.keys import row_numbers

__all__ = ["MEMBER", "READ", "STATUS", "communicators", "match_one"]

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
_CLK_ALIGNED, _CLK_DISAGREES = 0.8, 0.4
READ = [
    *("activity", "report", "gpu", "rank_id", "comm", "comm_known", "op", "bytes", "nranks"),
    *("start_ns", "end_ns", "step", "prov"),
]
_OF_COLLECTIVE = ["activity", "rank_id", "gpu", "comm", "op", "start_ns", "end_ns", "step", "prov"]
MEMBER = pl.Schema(
    {
        "instance": pl.UInt32(),
        "row": pl.UInt32(),
        **{name: COLLECTIVES[name] for name in _OF_COLLECTIVE},
        "wait_ns": pl.Int64(),
        "xfer_ns": pl.Int64(),
    }
)
"""Columns of `Matching.members`."""


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
        Frame of `MEMBER`, instances numbered from 0, and what is known of the communicator.
    """
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
    none = pl.DataFrame(schema=MEMBER)
    if len(ranks) < 2:
        return none, about | {"status": "one rank"}
    if clk == 0:
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
        return pl.DataFrame(schema=MEMBER), about | {"status": "operations differ"}
    start, end = (group[c].to_numpy()[together] for c in ("start_ns", "end_ns"))
    latest = start.max(axis=1)
    synchronous = pl.col("op").fill_null("AllReduce").is_in(SYNCHRONOUS_OPS)
    early = group.select(synchronous).to_series().to_numpy()[together[:, 0]]
    early &= (latest.astype(np.float64) - end.min(axis=1)) > _MADS * mad_ns
    faults = int(early.sum())
    out_of_step = faults > (1 - IN_STEP_FRAC) * n
    if out_of_step and not about["comm_known"]:
        status = {"status": "not in step", "n_clock_faults": faults}
        return pl.DataFrame(schema=MEMBER), about | status
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
        "clk": _CLK_DISAGREES if out_of_step else about["clk"],
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
