"""What a report can say about communication at all: counts, sources and what is missing."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tracekit.model.table import Column, Table
from tracekit.trace import Trace, view
from tracekit.views.collectives.calls import host_calls
from tracekit.views.collectives.kernels import collectives
from tracekit.views.collectives.overlap import comm_overlap
from tracekit.views.counters import metrics
from tracekit.views.device.activity import queues
from tracekit.views.device.hardware import gpu_hardware
from tracekit.views.launches.step_time import CAPTURE, step_time
from tracekit.views.nvtx.payloads import payloads
from tracekit.views.overview.totals import overview

__all__ = [
    "FACTS",
    "RAW_DURATIONS",
    "CollectiveCounts",
    "collective_counts",
    "comm_facts",
    "raw_durations",
]

FACTS = Table(
    "facts",
    (
        Column("n_comm_kernels", pl.Int64, "", "communication kernels"),
        Column("n_ranks", pl.Int64, "", "ranks that were recorded"),
        Column("n_reports", pl.Int64, "", "reports"),
        Column("n_host_calls", pl.Int64, "", "host calls of collectives; graph replays need none"),
        Column("n_in_graph", pl.Int64, "", "communication kernels of CUDA graphs"),
        Column("n_without_launch", pl.Int64, "", "communication kernels without a recorded launch"),
        Column("n_op_conflicts", pl.Int64, "", "kernels whose name and call disagree"),
        Column("n_fused_groups", pl.Int64, "", "group calls that ran as one kernel"),
        Column("n_unsized", pl.Int64, "", "communication kernels of unknown message size"),
        Column("n_zero_len", pl.Int64, "", "rows of no length, dropped"),
        Column("n_blobs", pl.Int64, "", "NVTX payloads in the export"),
        Column("n_undecodable", pl.Int64, "", "payloads that no known layout fits"),
        Column("has_nccl_ranges", pl.Boolean, "", "whether NCCL's NVTX ranges were recorded"),
        Column("has_dram", pl.Boolean, "", "whether DRAM was sampled"),
        Column("has_link", pl.Boolean, "", "whether NVLink was sampled"),
        Column("has_steps", pl.Boolean, "", "whether steps were found"),
        Column("n_shared_gpus", pl.Int64, "", "GPUs that several processes used"),
        Column("span_ns", pl.Int64, "ns", "first to last device work"),
        Column("busy_ns", pl.Int64, "ns", "union of device work, summed over GPUs"),
        Column("comm_ns", pl.Int64, "ns", "union of communication, summed over GPUs"),
        Column("opaque_ns", pl.Int64, "ns", "device time inside opaque CUDA graphs"),
        Column("unclassified_frac", pl.Float64, "1", "share of kernel time without a class"),
        Column("mad_ns", pl.Float64, "ns", "error of the clock alignment"),
        Column("link_peak_gbps", pl.Float64, "GB/s", "peak of the GPU link in one direction"),
    ),
    "what the recording states about communication; one row",
)
RAW_DURATIONS = Table(
    "raw_durations",
    (
        Column("comm", pl.String, "", "communicator: its id, or ~family#k where unknown"),
        Column("op", pl.String, "", "operation; null when nothing states it"),
        Column("bytes", pl.Int64, "bytes", "whole message; null when unknown"),
        Column("rank_id", pl.UInt32, "", "number of the rank in this run"),
        Column("overlapped", pl.Boolean, "", "whether other work covered at least half of it"),
        Column("n", pl.Int64, "", "kernels"),
        Column("min_ns", pl.Int64, "ns", "shortest"),
        Column("median_ns", pl.Float64, "ns", "median"),
        Column("max_ns", pl.Int64, "ns", "longest"),
    ),
    "kernel durations, waiting included",
)
HALF = 0.5


class CollectiveCounts(NamedTuple):
    """What is known about the sources of `collectives`.

    Attributes:
        n_kernels: Communication kernels.
        n_zero_len: Communication or other kernels dropped as zero-length by the reader.
        n_without_launch: Communication kernels whose launching call was not recorded.
        n_op_conflicts: Kernel name and host call name different operations.
        n_host_calls: Host calls of collectives; graph replays make it smaller than `n_kernels`.
        n_blobs: NVTX payload blobs.
        n_undecodable: Of these, not decodable.
        has_nccl_ranges: Whether NCCL's NVTX domain was recorded.
    """

    n_kernels: int
    n_zero_len: int
    n_without_launch: int
    n_op_conflicts: int
    n_host_calls: int
    n_blobs: int
    n_undecodable: int
    has_nccl_ranges: bool


@view
def collective_counts(trace: Trace) -> CollectiveCounts:
    """Return where the facts of `collectives` come from."""
    rows, calls, blobs = collectives(trace), host_calls(trace), payloads(trace)
    ops = calls.filter(~pl.col("what").is_in(["GroupStart", "GroupEnd"]))
    dropped = [r.dropped.get("kernels", {}).get("zero length", 0) for r in trace.reports]
    per_source = (ops.filter(pl.col("source") == s).height for s in ("nccl", "marker"))
    return CollectiveCounts(
        n_kernels=rows.height,
        n_zero_len=sum(dropped),
        n_without_launch=rows["launch_start_ns"].null_count(),
        n_op_conflicts=rows.filter("op_conflict").height,
        n_host_calls=max(per_source),
        n_blobs=blobs.n_blobs,
        n_undecodable=blobs.n_undecodable,
        has_nccl_ranges=bool((calls["source"] == "nccl").any()),
    )


@view
def comm_facts(trace: Trace) -> pl.DataFrame:
    """Return the facts about the trace that verdicts on communication rest on.

    Returns:
        Frame of `FACTS` with one row. Times are summed over GPUs; ``mad_ns`` is the largest error
        of a clock alignment (0 within one report), null when a report is not aligned.
    """
    rows, counts, head = collectives(trace), collective_counts(trace), overview(trace)
    gpus = rows["gpu"].drop_nulls().unique().sort().to_list()
    users = queues(trace).select("gpu", "report", "pid").unique()
    pids = users.group_by("gpu").agg(pl.len().alias("n"))
    aligned = all(a.aligned for a in trace.alignment)
    peaks = {_link_peak(trace, g) for g in gpus}
    found = {
        "n_comm_kernels": rows.height,
        "n_ranks": rows["rank_id"].n_unique(),
        "n_reports": sum(r.has_timeline for r in trace.reports),
        "n_host_calls": counts.n_host_calls,
        "n_in_graph": rows.filter("in_graph").height,
        "n_without_launch": counts.n_without_launch,
        "n_op_conflicts": counts.n_op_conflicts,
        "n_fused_groups": rows.filter("fused_group").height,
        "n_unsized": rows["bytes"].null_count(),
        "n_zero_len": counts.n_zero_len,
        "n_blobs": counts.n_blobs,
        "n_undecodable": counts.n_undecodable,
        "has_nccl_ranges": counts.has_nccl_ranges,
        "has_dram": any(metrics.dram(trace, g) for g in gpus),
        "has_link": any(any(metrics.link(trace, g)) for g in gpus),
        "has_steps": not step_time(trace)["step_group"].eq(CAPTURE).all(),
        "n_shared_gpus": pids.filter((pl.col("n") > 1) & pl.col("gpu").is_in(gpus)).height,
        "span_ns": head.span_ns,
        "busy_ns": sum(g.busy_ns for g in head.gpus),
        "comm_ns": sum(g.comm_ns for g in head.gpus),
        "opaque_ns": sum(g.opaque_ns for g in head.gpus),
        "unclassified_frac": head.unclassified_frac,
        "mad_ns": max((a.mad_ns or 0.0 for a in trace.alignment), default=0.0) if aligned else None,
        "link_peak_gbps": peaks.pop() if len(peaks) == 1 else None,
    }
    return pl.DataFrame([found], schema=FACTS.schema)


def _link_peak(trace: Trace, gpu: int) -> float | None:
    row = gpu_hardware(trace.gpus[gpu])
    return None if row is None else row.link_one_way_gb_per_s


@view
def raw_durations(trace: Trace) -> pl.DataFrame:
    """Return durations of communication kernels as recorded: transfer and waiting together.

    Returns:
        Frame of `RAW_DURATIONS`, sorted by its keys.
    """
    columns = ["comm", "op", "bytes", "rank_id", "start_ns", "end_ns"]
    overlap = comm_overlap(trace).kernels["overlap_frac"]
    rows = collectives(trace).select(*columns, overlap)
    length = pl.col("end_ns") - pl.col("start_ns")
    by = ["comm", "op", "bytes", "rank_id", "overlapped"]
    found = (
        rows.with_columns((pl.col("overlap_frac") >= HALF).alias("overlapped"))
        .group_by(by)
        .agg(
            pl.len().alias("n"),
            length.min().alias("min_ns"),
            length.median().alias("median_ns"),
            length.max().alias("max_ns"),
        )
    )
    return RAW_DURATIONS.select(found).sort(by, nulls_last=True)
