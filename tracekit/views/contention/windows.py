"""When communication and other work shared a GPU, and what its memory did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.table import Column, Table
from tracekit.numerics import intervals, numbering
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.collectives.kernels import collectives
from tracekit.views.collectives.overlap import merged
from tracekit.views.counters import metrics
from tracekit.views.device.lanes import lanes
from tracekit.views.keys import row_numbers

__all__ = ["SHARED_TIME", "WINDOWS", "contention_windows", "shared_time"]

WINDOWS = Table(
    "windows",
    (
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("start_ns", pl.Int64, "ns", "start"),
        Column("end_ns", pl.Int64, "ns", "end"),
        Column("length_ns", pl.Int64, "ns", "end - start"),
        Column("comm", pl.String, "", "operations"),
        Column("corunners", pl.String, "", "kinds of overlapping work"),
        Column("dram_read_frac", pl.Float64, "1", "DRAM read, share of peak"),
        Column("dram_write_frac", pl.Float64, "1", "DRAM write, share of peak"),
        Column("coverage_frac", pl.Float64, "1", "share of the windows that samples cover"),
        Column("subsample", pl.Boolean, "", "windows are shorter than the sampling period"),
    ),
    "one stretch of communication that other work overlaps",
)
SHARED_TIME = Table(
    "shared_time",
    (
        Column("gpu", pl.Int16, "", "GPU; null when the report does not name it"),
        Column("what", pl.String, "", "contended, pure_comm or pure_compute"),
        Column("time_ns", pl.Int64, "ns", "time of that kind"),
        Column("dram_frac", pl.Float64, "1", "DRAM read + write, share of peak"),
        Column("coverage_frac", pl.Float64, "1", "share of the windows that samples cover"),
        Column("change_ratio", pl.Float64, "x", "DRAM contended over pure compute, minus 1"),
    ),
    "time of one GPU by what ran",
)


@view
def _sides(trace: Trace) -> dict[int, tuple[Intervals, Intervals, Intervals]]:
    """Unions of communication, other work, and both at once, of each GPU with communication.

    Work on the stream of a communication kernel never counts as overlapping it.
    """
    comm = collectives(trace).drop_nulls("gpu")
    comm = comm.select("gpu", "pid", "stream", "start_ns", "end_ns")

    def sides(rows: pl.DataFrame) -> tuple[Intervals, Intervals, Intervals]:
        work = lanes(trace)[rows["gpu"][0]]
        whole, both = work.busy_union(), []
        number, streams = row_numbers(rows.select("pid", "stream"))
        for own, (pid, stream) in enumerate(streams.rows()):
            others = work.not_on(pid, stream)
            other = work.busy_union(others) if work.has_work(~others) else whole
            mine = rows.filter(pl.Series(number == own))
            both.append(intervals.intersect(*merged(mine), *other))
        shared = intervals.union(
            np.concatenate([b[0] for b in both]), np.concatenate([b[1] for b in both])
        )
        return merged(rows), whole, shared

    lanes(trace)
    parts = sorted(comm.partition_by("gpu"), key=lambda rows: int(rows["gpu"][0]))
    found = each(sides, parts)
    return {int(rows["gpu"][0]): own for rows, own in zip(parts, found, strict=True)}


@view
def contention_windows(trace: Trace) -> pl.DataFrame:
    """Return every stretch in which a GPU communicated and did other work at once.

    Returns:
        Frame of `WINDOWS`, sorted by gpu and start: comm names the operations, corunners the kinds
        of other work, most time first; DRAM shares are time-weighted, null without samples.
    """
    sides, work, comm = _sides(trace), lanes(trace), collectives(trace)
    comm = comm.select("gpu", "start_ns", "end_ns", pl.col("op").fill_null("unknown"))
    reads = {gpu: [metrics.total(trace, gpu, (name,)) for name in metrics.DRAM[0]] for gpu in sides}

    def windows(gpu: int) -> pl.DataFrame:
        own, both = comm.filter(pl.col("gpu") == gpu), sides[gpu][2]
        ops = {
            str(op): intervals.overlap_ns(*both, *merged(rows))
            for (op,), rows in own.partition_by("op", as_dict=True).items()
        }
        _, others = work[gpu].overlap_by_kind(both)
        return _windows_of(gpu, both, ops, others, reads[gpu])

    parts = each(windows, sides)
    return pl.concat(parts) if parts else WINDOWS.empty()


def _windows_of(
    gpu: int,
    windows: Intervals,
    ops: dict[str, NDArray[np.int64]],
    others: dict[str, NDArray[np.int64]],
    reads: list[tuple[metrics.Counter, ...]],
) -> pl.DataFrame:
    starts, ends = windows
    means = [metrics.means_over(side, starts, ends) for side in reads]
    period = max((c.cells.period_ns for side in reads for c in side), default=0)
    known = bool(period)
    found = pl.DataFrame(
        {
            "gpu": np.full(starts.size, gpu),
            "start_ns": starts,
            "end_ns": ends,
            "length_ns": ends - starts,
            "comm": _present(ops, starts.size),
            "corunners": _present(others, starts.size),
            "dram_read_frac": means[0][0],
            "dram_write_frac": means[1][0],
            "coverage_frac": np.minimum(means[0][1], means[1][1]) if known else np.nan,
            "subsample": pl.Series([known] * starts.size, dtype=pl.Boolean)
            & pl.Series(ends - starts < period, dtype=pl.Boolean),
        },
        schema_overrides={"gpu": pl.Int16},
    )
    return WINDOWS.select(found.with_columns(pl.col(pl.Float64).fill_nan(None)))


def _present(kinds: dict[str, NDArray[np.int64]], n: int) -> pl.Series:
    """Which kinds ran in each of n windows, the one with most time first.

    Few sequences of kinds occur, so each is put into words once.
    """
    names = sorted(kind for kind, shared in kinds.items() if shared.any())
    if not names:
        return pl.Series([None] * n, dtype=pl.String)
    shared = np.stack([kinds[name] for name in names])
    order = np.argsort(-shared, axis=0, kind="stable")
    order[np.arange(len(names))[:, None] >= (shared > 0).sum(axis=0)] = -1
    sequence, first = np.zeros(n, np.int64), np.zeros(1, np.int64)
    for place in order[: int((order >= 0).any(axis=1).sum())]:
        sequence, first = numbering.numbered(sequence * (len(names) + 1) + place + 1)
    words = [", ".join(names[k] for k in order[:, i] if k >= 0) or None for i in first]
    return pl.Series(words, dtype=pl.String)[sequence]


@view
def shared_time(trace: Trace) -> pl.DataFrame:
    """Return how long each GPU communicated alone, worked alone, and did both.

    Returns:
        Frame of `SHARED_TIME`: what is "contended", "pure_comm" or "pure_compute"; dram_frac the
        time-weighted DRAM read + write; change_ratio (contended over pure_compute, minus 1) on
        the contended rows. Communication itself moves memory, so a rise proves nothing.
    """
    sides = _sides(trace)
    counters = {gpu: metrics.dram(trace, gpu) for gpu in sides}
    parts = each(lambda gpu: _shared_on(gpu, counters[gpu], sides[gpu]), sides)
    return pl.DataFrame([row for part in parts for row in part], schema=SHARED_TIME.schema)


def _shared_on(
    gpu: int,
    counters: Sequence[metrics.Counter],
    sides: tuple[Intervals, Intervals, Intervals],
) -> list[dict[str, object]]:
    """Rows of `shared_time` of one GPU."""
    comm, other, both = sides
    unions = {
        "contended": both,
        "pure_comm": intervals.subtract(*comm, *both),
        "pure_compute": intervals.subtract(*other, *comm),
    }
    means = {what: metrics.mean_over(counters, u) or (None, None) for what, u in unions.items()}
    change = _change(means["contended"][0], means["pure_compute"][0])
    return [
        {
            "gpu": gpu,
            "what": what,
            "time_ns": intervals.total_ns(*union),
            "dram_frac": means[what][0],
            "coverage_frac": means[what][1],
            "change_ratio": change if what == "contended" else None,
        }
        for what, union in unions.items()
    ]


def _change(during: float | None, without: float | None) -> float | None:
    return None if during is None or not without else during / without - 1
