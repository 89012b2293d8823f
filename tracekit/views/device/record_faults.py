"""Device records that cannot be right, and processes that share a GPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.numerics import intervals
from tracekit.numerics.rows.overlapping import reaching_over
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, device_ids, queues

__all__ = ["Overlaps", "SharedGpu", "shared_gpus", "stream_overlaps"]


class Overlaps(NamedTuple):
    """Work that overlaps more than its neighbour on its own stream.

    Attributes:
        n: Rows that reach over the beginning of the one after the next.
        time_ns: Time of those rows beyond the beginning of their next one, ns.
    """

    n: int
    time_ns: int


@view
def stream_overlaps(trace: Trace) -> Overlaps:
    """Count rows whose duration overlaps all that follows on their stream.

    A stream runs one thing after the other, and only a dependent launch may begin under its
    predecessor, so such a duration is damaged. Nodes of a CUDA graph are left out: branches of a
    graph may share a stream.
    """
    work, node = activity(trace), device_ids(trace).graph_node
    start, end, queue = (work[c].to_numpy() for c in ("start_ns", "end_ns", "queue"))
    if node is not None:
        own = node.is_null().to_numpy()
        start, end, queue = start[own], end[own], queue[own]
    return Overlaps(*reaching_over(start, end, queue, queues(trace).height))


class SharedGpu(NamedTuple):
    """Several processes with work on one GPU.

    Attributes:
        gpu: Index of the GPU.
        pids: Their process ids, ascending.
        both_ns: Time in which more than one has work on it, ns.
    """

    gpu: int
    pids: tuple[int, ...]
    both_ns: int


@view
def shared_gpus(trace: Trace) -> tuple[SharedGpu, ...]:
    """Return the GPUs on which several processes worked, by index."""
    known = queues(trace).with_row_index("queue").drop_nulls(["gpu", "pid"])
    found = []
    for (gpu,), own in known.group_by("gpu", maintain_order=True):
        processes = own.select("report", "pid").unique().sort("report", "pid")
        if processes.height == 1:
            continue
        work = activity(trace).filter(pl.col("gpu") == gpu)
        rows = work.select("start_ns", "end_ns", "queue")
        edges = []
        for (_, _), part in own.group_by("report", "pid", maintain_order=True):
            mine = rows.filter(pl.col("queue").is_in(part["queue"].implode()))
            edges.append(intervals.union(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()))
        alone = sum(intervals.total_ns(*union) for union in edges)
        both = [np.concatenate(side) for side in zip(*edges, strict=True)]
        covered = intervals.total_ns(*intervals.union(*both))
        pids = tuple(sorted(processes["pid"].unique().to_list()))
        found.append(SharedGpu(int(gpu), pids, alone - covered))
    return tuple(sorted(found))
