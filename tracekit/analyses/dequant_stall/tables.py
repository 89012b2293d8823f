"""What `dequant_stall` returns: its tables."""

from __future__ import annotations

import polars as pl

from tracekit.model.table import Column, Table

__all__ = [
    "ALL_STEPS",
    "GROUPS",
    "KERNELS",
    "NO_STEPS",
    "PERIODS",
    "STALLS",
    "STARVATION",
    "SUMMARY",
]

I64, F64, STR = pl.Int64, pl.Float64, pl.String
ALL_STEPS, NO_STEPS = "all steps", "whole capture"

PERIODS = Table(
    "periods",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("stream", I64, "", "stream"),
        Column("step", pl.UInt32, "", "step of the first kernel; null outside steps"),
        Column("group", STR, "", "step group; null outside steps"),
        Column("layer", pl.Int32, "", "layer of the first kernel; null when unknown"),
        Column("start_ns", I64, "ns", "start of the first dequantisation kernel"),
        Column("end_ns", I64, "ns", "start of the consumer"),
        Column("n_kernels", pl.UInt32, "", "dequantisation kernels in the chain"),
        Column("dequant_ns", I64, "ns", "time that they run"),
        Column("exposed_ns", I64, "ns", "part that no kernel on another stream covers"),
        Column("gap_ns", I64, "ns", "end of the last one to start of the consumer"),
        Column("consumer_wait_ns", I64, "ns", "start of the first one to start of the consumer"),
        Column("kernel", STR, "", "name of the first dequantisation kernel"),
        Column("consumer", STR, "", "name of the consumer"),
        Column("consumer_stream", I64, "", "stream of the consumer"),
        Column("via", STR, "", "how the consumer was found: stream order, or event"),
    ),
    "one chain of dequantisation kernels before its consumer",
)
GROUPS = Table(
    "groups",
    (
        Column("group", STR, "", f"step group, {ALL_STEPS!r}, or {NO_STEPS!r} without steps"),
        Column("n_steps", pl.UInt32, "", "steps with device work"),
        Column("step_ns", I64, "ns", "sum of the steps' GPU spans"),
        Column("n_periods", pl.UInt32, "", "periods inside"),
        Column("dequant_ns", I64, "ns", "dequantisation time"),
        Column("exposed_ns", I64, "ns", "exposed part"),
        Column("share_frac", F64, "1", "exposed_ns / step_ns"),
    ),
    "dequantisation as a share of one group of steps",
)
KERNELS = Table(
    "kernels",
    (
        Column("name", STR, "", "kernel name"),
        Column("kind", STR, "", "dequant, or gemm_quant when fused into the product"),
        Column("n", pl.UInt32, "", "executions"),
        Column("total_ns", I64, "ns", "sum of durations"),
        Column("p50_ns", F64, "ns", "median duration"),
        Column("p95_ns", F64, "ns", "95th percentile"),
        Column("p99_ns", F64, "ns", "99th percentile"),
        Column("p95_sure", pl.Boolean, "", "at least 20 executions"),
        Column("p99_sure", pl.Boolean, "", "at least 100 executions"),
        Column("t_min_ns", F64, "ns", "bytes over DRAM bandwidth; null: bytes not known"),
        Column("efficiency_frac", F64, "1", "t_min_ns / p50_ns"),
    ),
    "one dequantising kernel",
)
STARVATION = Table(
    "starvation",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("start_ns", I64, "ns", "start"),
        Column("end_ns", I64, "ns", "end"),
        Column("what", STR, "", "starvation (DRAM reads high) or valley (low); tensor cores idle"),
        Column("inside", STR, "", "what it falls into; the one that covers most of it"),
    ),
    "one sampled stretch of idle tensor cores that dequantising work accounts for",
)
STALLS = Table(
    "stalls",
    (
        Column("name", STR, "", "kernel name"),
        Column("kind", STR, "", "dequant, or gemm_quant when fused into the product"),
        Column("n", I64, "", "executions under Nsight Compute"),
        Column("issue_active_frac", F64, "1", "cycles in which a scheduler issues"),
        Column("reason", STR, "", "what warps wait for most"),
        Column("stall_frac", F64, "1", "of the time between two instructions of a warp"),
        Column("flagged", pl.Boolean, "", "stall above 0.3 and issue below 0.8; null: unknown"),
        Column("reading", STR, "", "what that points at"),
        Column("occupancy_frac", F64, "1", "achieved: resident warps of the most that fit"),
        Column("occupancy_gap_pp", F64, "pp", "theoretical minus achieved occupancy"),
    ),
    "what warps of one dequantising kernel wait for, as Nsight Compute counted, longest first",
)
SUMMARY = Table(
    "summary",
    (
        Column("n_dequant", pl.UInt32, "", "standalone dequantisation kernels"),
        Column("n_fused", pl.UInt32, "", "matrix products that dequantise inside"),
        Column("n_quantize", pl.UInt32, "", "activation quantisation kernels (no stall)"),
        Column("n_unconsumed", pl.UInt32, "", "dequantisation kernels whose consumer is unknown"),
        Column("n_by_event", pl.UInt32, "", "periods whose consumer waited for an event"),
        Column("n_waits", pl.UInt32, "", "waits for events; null without dequantisation"),
        Column("n_waits_unresolved", pl.UInt32, "", "of these, without the record they wait for"),
        Column("n_outside_steps", pl.UInt32, "", "periods outside every step, not in the shares"),
        Column("sample_period_ns", I64, "ns", "sampling period of DRAM and tensor activity"),
        Column("starvation_known", pl.Boolean, "", "whether that is fine enough"),
        Column("opaque_ns", I64, "ns", "device time hidden in graph-level rows"),
        Column("unclassified_frac", F64, "1", "share of kernel time without a class"),
        Column("has_steps", pl.Boolean, "", "whether steps were found"),
    ),
    "what the verdict also needs; one row",
)
