"""What `kernel_floor` returns: its tables."""

from __future__ import annotations

import polars as pl

from tracekit.model.table import Column, Table

__all__ = ["CLASSES", "GPUS", "TOP_KERNELS"]

F64, I64, STR = pl.Float64, pl.Int64, pl.String
_TIMES = (
    Column("n", pl.UInt32, "", "executions"),
    Column("time_ns", I64, "ns", "summed durations"),
    Column("share_frac", F64, "1", "of the summed durations of all work on the GPU"),
    Column("median_ns", F64, "ns", "median duration"),
)
_LIMITS = (
    Column("few_blocks_frac", F64, "1", "launches with fewer blocks than multiprocessors"),
    Column("n_pure", pl.UInt32, "", "samples of which at least 90 % lie in these kernels"),
    Column("dram_read_frac", F64, "1", "mean of pure samples: DRAM read, of peak"),
    Column("dram_write_frac", F64, "1", "mean of pure samples: DRAM write, of peak"),
    Column("dram_frac", F64, "1", "mean of pure samples: DRAM read and write, of peak"),
    Column("tensor_frac", F64, "1", "mean of pure samples: tensor cores active"),
    Column("sms_active_frac", F64, "1", "mean of pure samples: multiprocessors with work"),
    Column("verdict", STR, "", "what bounds these kernels"),
    Column("why", STR, "", "why the verdict is unknown; null where it is not"),
    Column("bound_ns", F64, "ns", "most that reaching the limit could save; null when not known"),
    Column("speedup_most_frac", F64, "1", "near a limit: most by which they could be faster"),
)
CLASSES = Table(
    "classes",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("kind", STR, "", "class of kernels"),
        *_TIMES,
        *_LIMITS,
    ),
    "the kernels of one class on one GPU",
)
TOP_KERNELS = Table(
    "top_kernels",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("name", STR, "", "kernel, spellings of one name together"),
        Column("kind", STR, "", "class of the kernel"),
        *_TIMES,
        *_LIMITS,
    ),
    "the kernels of one name on one GPU, whatever their class",
)
GPUS = Table(
    "gpus",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("span_ns", I64, "ns", "first to last work on the GPU"),
        Column("device_ns", I64, "ns", "summed durations of all work"),
        Column("kernel_ns", I64, "ns", "summed durations of kernels, communication left out"),
        Column("judged_ns", I64, "ns", "part of it in classes with a verdict"),
        Column("sampled", pl.Boolean, "", "whether DRAM or tensor counters were sampled"),
        Column("period_ns", I64, "ns", "sampling period; null without samples"),
        Column("sm_count", pl.Int32, "", "multiprocessors; null when unknown"),
        Column("achievable_frac", F64, "1", "share of peak bandwidth that kernels can reach"),
        Column("opaque_ns", I64, "ns", "busy time inside CUDA graphs traced as a whole"),
    ),
    "one GPU",
)
