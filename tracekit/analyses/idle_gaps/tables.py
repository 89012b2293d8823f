"""Columns of what `idle_gaps` computes."""

from __future__ import annotations

import polars as pl

from tracekit.model.table import Column, Table

__all__ = ["CAUSES", "COPIES", "FAMILIES", "GAINS", "GPUS", "LONGEST", "SITES", "SUMMARY"]

GPU = Column("gpu", pl.Int16, "", "index of the GPU; null when unknown")
GROUP = Column("step_group", pl.String, "", "text of the steps with N for their number")
RANGE = Column("range", pl.String, "", "innermost NVTX range around the launch, numbers as N")

GPUS = Table(
    "gpus",
    (
        GPU,
        Column("span_ns", pl.Int64, "ns", "first start to last end of device work"),
        Column("idle_ns", pl.Int64, "ns", "nothing ran"),
        Column("idle_frac", pl.Float64, "1", "share of the span"),
        Column("copy_only_ns", pl.Int64, "ns", "only copies ran"),
        Column("copy_only_frac", pl.Float64, "1", "share of the span"),
        Column("compute_ns", pl.Int64, "ns", "kernels, graphs or memsets ran"),
        Column("opaque_ns", pl.Int64, "ns", "graphs ran that were traced as a whole"),
        Column("n_work", pl.Int64, "", "operations that a call launches"),
        Column("n_with_launch", pl.Int64, "", "operations whose launching call was recorded"),
    ),
    "one GPU",
)
CAUSES = Table(
    "causes",
    (
        GPU,
        Column("where", pl.String, "", "in steps, between steps, or the whole span"),
        GROUP,
        Column("n_steps", pl.Int64, "", "steps; 0 where none are marked"),
        Column("cause", pl.String, "", "why nothing ran"),
        Column("family", pl.String, "", "what kind of cause"),
        Column("time_ns", pl.Int64, "ns", "idle time"),
        Column("per_step_ns", pl.Float64, "ns", "median of a step"),
        Column("idle_frac", pl.Float64, "1", "share of the idle time there"),
        Column("time_frac", pl.Float64, "1", "share of all time there"),
        Column("first_step_ns", pl.Int64, "ns", "part of it in the first step of the group"),
    ),
    "idle time of one GPU with one cause",
)
FAMILIES = Table(
    "families",
    (
        GPU,
        GROUP,
        Column("n_steps", pl.Int64, "", "steps; 0 where none are marked"),
        Column("time_ns", pl.Int64, "ns", "time of the steps and between them, without pauses"),
        Column("pause_ns", pl.Int64, "ns", "pauses of more than ten steps between steps"),
        Column("n_work", pl.Float64, "", "median number of operations of a step"),
        Column("family", pl.String, "", "what kind of cause"),
        Column("idle_ns", pl.Int64, "ns", "idle time in the steps and between them"),
        Column("judged_ns", pl.Int64, "ns", "part of it that can be removed"),
        Column("judged_frac", pl.Float64, "1", "share of time_ns"),
    ),
    "idle time of one kind on one GPU, as it is judged",
)
SITES = Table(
    "sites",
    (
        GPU,
        GROUP,
        RANGE,
        Column("cause", pl.String, "", "why nothing ran"),
        Column("family", pl.String, "", "what kind of cause"),
        Column("call", pl.String, "", "call that waited, allocated, loaded, built or launched"),
        Column("next_call", pl.String, "", "of host work: the launch that ended it"),
        Column("after_wait", pl.Boolean, "", "of host work: whether it follows a wait"),
        Column("n", pl.UInt32, "", "stretches"),
        Column("median_ns", pl.Float64, "ns", "of a stretch"),
        Column("total_ns", pl.Int64, "ns", "idle time"),
        Column("per_step_ns", pl.Float64, "ns", "total over the steps of the group"),
        Column("idle_frac", pl.Float64, "1", "share of all idle time of the GPU"),
        Column("in_call_ns", pl.Int64, "ns", "part inside the launching call"),
        Column("first_start_ns", pl.Int64, "ns", "start of the first one"),
        Column("first_end_ns", pl.Int64, "ns", "its end"),
        Column("ended_by", pl.String, "", "work that ran after it"),
        Column("n_samples", pl.UInt32, "", "samples of the thread with this cause and range"),
        Column("host_evidence", pl.String, "", "functions that these samples hit most"),
        Column("off_cpu_frac", pl.Float64, "1", "time in which the thread was on no processor"),
    ),
    "idle time of one place in the program",
)
LONGEST = Table(
    "longest",
    (
        GPU,
        Column("start_ns", pl.Int64, "ns", "start"),
        Column("end_ns", pl.Int64, "ns", "end"),
        Column("cause", pl.String, "", "why nothing ran"),
        Column("family", pl.String, "", "what kind of cause"),
    ),
    "one of the longest pieces of idle time, the longest first",
)
COPIES = Table(
    "copies",
    (
        GPU,
        GROUP,
        RANGE,
        Column("direction", pl.String, "", "from where to where"),
        Column("memory", pl.String, "", "kind of memory on the host's side"),
        Column("small", pl.Boolean, "", "below 1 MiB each: the rate says nothing"),
        Column("n", pl.UInt32, "", "copies"),
        Column("per_step", pl.Float64, "", "copies a step"),
        Column("median_bytes", pl.Float64, "bytes", "of a copy"),
        Column("bytes", pl.Int64, "bytes", "together"),
        Column("time_ns", pl.Int64, "ns", "together"),
        Column("exposed_ns", pl.Int64, "ns", "time in which only copies ran"),
        Column("exposed_frac", pl.Float64, "1", "share of the time of the steps (of the span)"),
        Column("hidden_frac", pl.Float64, "1", "share of the copies' time that something hid"),
        Column("gb_per_s", pl.Float64, "GB/s", "bytes over time"),
        Column("link_frac", pl.Float64, "1", "share of the link's peak; null where not judged"),
        Column("call", pl.String, "", "call that made them"),
        Column("call_ns", pl.Int64, "ns", "host time inside these calls"),
        Column("n_host_waited", pl.UInt32, "", "calls that returned when their copy was done"),
        Column("waiter", pl.String, "", "what ran first after the longest exposed one"),
        Column("waits_by", pl.String, "", "how that came to wait: stream order, event, other"),
        Column("longest_start_ns", pl.Int64, "ns", "start of the longest exposed one"),
        Column("longest_end_ns", pl.Int64, "ns", "its end"),
    ),
    "copies of one place in the program",
)
GAINS = Table(
    "gains",
    (
        GPU,
        GROUP,
        Column("what", pl.String, "", "kind of change"),
        Column("change", pl.String, "", "what to change"),
        Column("n_steps", pl.Int64, "", "steps; 0 where none are marked"),
        Column("of_ns", pl.Float64, "ns", "time of a step now"),
        Column("busy_ns", pl.Float64, "ns", "part of it in which the device works"),
        Column("removes_busy_ns", pl.Float64, "ns", "part of that which the change removes"),
        Column("after_lo_ns", pl.Float64, "ns", "predicted time of a step, shortest"),
        Column("after_hi_ns", pl.Float64, "ns", "predicted time of a step, longest"),
        Column("gain_lo_ns", pl.Float64, "ns", "predicted gain a step, least"),
        Column("gain_hi_ns", pl.Float64, "ns", "predicted gain a step, most"),
        Column("assumptions", pl.String, "", "what must hold"),
        Column("confidence", pl.Float64, "", "at most 0.5 for an untested prediction"),
    ),
    "what one change is predicted to bring",
)
SUMMARY = Table(
    "summary",
    (
        Column("has_steps", pl.Boolean, "", "whether steps are marked"),
        Column("has_calls", pl.Boolean, "", "whether host calls were recorded"),
        Column("n_launches", pl.Int64, "", "launch calls outside of stream captures"),
        Column("n_without_work", pl.Int64, "", "those of which no device work was recorded"),
        Column("n_graph_without_work", pl.Int64, "", "part of those that launch graphs"),
        Column("capture_ns", pl.Int64, "ns", "length of the longest report; null if unknown"),
        Column("busy_ns", pl.Int64, "ns", "device work of all GPUs"),
        Column("after_ns", pl.Int64, "ns", "last device work to the end of the capture"),
        Column("last_call", pl.String, "", "wait that covers most of the time after that"),
        Column("last_call_ns", pl.Int64, "ns", "time of it after the last device work"),
        Column("host_call_ns", pl.Int64, "ns", "host time in launches and copies"),
        Column("osrt", pl.Boolean, "", "whether calls to the operating system were recorded"),
        Column("sampled", pl.Boolean, "", "whether the processor was sampled"),
    ),
    "the capture",
)
