"""L2 samples by layer: which kernels speak for a layer, and how its KV cache lay at that time."""

from __future__ import annotations

import re

import polars as pl

from tracekit.model.catalog import record_command
from tracekit.model.table import Column
from tracekit.model.trace import Trace, view
from tracekit.numerics.intervals import union
from tracekit.views.activity import activity, used_gpus
from tracekit.views.kv import kv_cache
from tracekit.views.kv_layout import measure
from tracekit.views.l2 import hit_counters, kernel_hits
from tracekit.views.metrics import SAMPLED, dram, level_over
from tracekit.views.ranges import ranges

__all__ = [
    "ATTENTION",
    "LAYER_KV",
    "kv_beside",
    "kv_of_layers",
    "layer_kernels",
    "miss_by_occupancy",
    "recording",
]

ATTENTION = "attention"
MISS_BINS, OCCUPANCY_BINS = (20, 40), (30, 60)
COMPUTE_TRIAGE = {"GH100": "gh100-ct"}
"""Chip to the metric set of nsys that samples an L2 hit rate."""
FREQUENCY = "--gpu-metrics-frequency=100000"
_PERMISSION = re.compile(r"privilege|permission|ERR_NVGPUCTRPERM|CAP_SYS_ADMIN|CAP_PERFMON", re.I)
_IN_USE = re.compile(r"in use|already.*(use|subscrib)|another (tool|process|client)", re.I)

LAYER_KV: tuple[Column, ...] = (
    Column("kv_blocks", pl.Int64, "", "live KV blocks of the layer; null without markers"),
    Column("bytes", pl.Int64, "bytes", "distinct live bytes that markers state"),
    Column("frag_frac", pl.Float64, "1", "share of neighbouring blocks that lie apart"),
    Column("run_mean_bytes", pl.Float64, "bytes", "mean contiguous piece"),
    Column("o32_request_frac", pl.Float64, "1", "extra sectors of 128 B requests"),
    Column("page_ratio", pl.Float64, "1", "2 MiB pages over needed; null below 2 MiB"),
    Column("line_overfetch_frac", pl.Float64, "1", "extra 128 B cache lines that blocks touch"),
    Column("line_bytes", pl.Int64, "bytes", "cache lines that the stated blocks touch"),
    Column("footprint_l2_frac", pl.Float64, "x", "line_bytes over the size of the L2"),
    Column("span_bytes", pl.Int64, "bytes", "lowest to highest address, summed over sequences"),
    Column("span_l2_frac", pl.Float64, "x", "span_bytes over the size of the L2"),
)
"""Columns of `kv_of_layers` beside gpu and layer."""


@view(of=[kernel_hits, ranges])
def layer_kernels(trace: Trace) -> pl.DataFrame:
    """Return the rows of `kernel_hits` that speak for layers, with `of`, what was chosen.

    Their `label` is the text of their range.

    Attention kernels read the KV cache; where a trace has any in its layers, only they count.
    """
    inside = kernel_hits(trace).drop_nulls("layer")
    texts = ranges(trace)["text"]
    label = (
        texts[inside["range"]].cast(pl.String) if len(texts) else inside["range"].cast(pl.String)
    )
    inside = inside.with_columns(label.alias("label"))
    attention = inside.filter(pl.col("kind") == ATTENTION)
    if attention.height:
        return attention.with_columns(pl.lit("attention kernels").alias("of"))
    return inside.with_columns(pl.lit("all kernels").alias("of"))


@view(of=[layer_kernels, kv_cache])
def kv_of_layers(trace: Trace) -> pl.DataFrame:
    """Measure the KV layout of each layer when half of its kernels had been launched.

    Returns:
        Frame of gpu, layer and `LAYER_KV`, one row a layer that has kernels and stated blocks;
        keys and values of a layer count together.
    """
    return kv_beside(trace, layer_kernels(trace))


def kv_beside(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Measure the KV layout of each layer when half of some kernels had been launched.

    Args:
        trace: The run.
        kernels: Frame of gpu, layer, launch_start_ns and start_ns, one row an execution.

    Returns:
        As `kv_of_layers`.
    """
    moment = pl.coalesce("launch_start_ns", "start_ns").median().cast(pl.Int64).alias("t_ns")
    times = kernels.group_by("gpu", "layer").agg(moment)
    times = times.sort("gpu", "layer").with_row_index("place")
    times = times.with_columns(pl.col("place", "layer").cast(pl.Int64))
    cache = kv_cache(trace)
    records = cache.records.join(cache.owners.select("pool_id", "gpu"), on="pool_id", how="left")
    live = records.join(times, on=["gpu", "layer"], how="inner").filter(
        (pl.col("t_alloc_ns") <= pl.col("t_ns"))
        & (pl.col("t_free_ns").is_null() | (pl.col("t_free_ns") > pl.col("t_ns")))
    )
    shape = measure(live, "place") if live.height else None
    if shape is None:
        return pl.DataFrame(
            schema={"gpu": pl.Int16, "layer": pl.Int32, **{c.name: c.dtype for c in LAYER_KV}}
        )
    sizes = {gpu.index: gpu.l2_bytes for gpu in trace.gpus}
    rows = times.join(shape, on="place", how="inner", maintain_order="left").with_columns(
        pl.col("gpu").replace_strict(sizes, default=None, return_dtype=pl.Int64).alias("l2_bytes")
    )
    own = {
        "kv_blocks": pl.col("m"),
        "line_overfetch_frac": pl.col("ou128_frac"),
        "footprint_l2_frac": pl.col("line_bytes") / pl.col("l2_bytes"),
        "span_l2_frac": pl.col("span_bytes") / pl.col("l2_bytes"),
    }
    return rows.select(
        "gpu",
        pl.col("layer").cast(pl.Int32),
        *(own.get(c.name, pl.col(c.name)).cast(c.dtype).alias(c.name) for c in LAYER_KV),
    )


@view("gpu_metrics", "metric_names", of=[kernel_hits, hit_counters, *SAMPLED])
def miss_by_occupancy(trace: Trace) -> pl.DataFrame:
    """Count kernels by L2 miss share and by resident warps.

    Returns:
        Frame of gpu, miss_bin and occupancy_bin (percent, String), n_kernels, time_ns and
        dram_frac (null when not sampled), one row a bin that holds kernels whose hit rate and
        occupancy are known, sorted.
    """
    scales = [(c.gpu, c.full_scale) for c in hit_counters(trace)]
    scale = pl.DataFrame(scales, schema={"gpu": pl.Int16, "scale": pl.Int64}, orient="row")
    hits = kernel_hits(trace).join(scale, on="gpu", how="left")
    miss = 100 * (1 - pl.col("raw_integral") / pl.col("covered_ns") / pl.col("scale"))
    known = (pl.col("covered_ns") > 0) & (pl.col("valid_cells") * 2 >= pl.col("cells"))
    rows = hits.filter(known & (pl.col("warps_ns") > 0)).with_columns(
        miss.alias("miss"), (100 * pl.col("warps_integral") / pl.col("warps_ns")).alias("warps")
    )
    rows = rows.with_columns(
        _binned("miss", MISS_BINS).alias("miss_bin"),
        _binned("warps", OCCUPANCY_BINS).alias("occupancy_bin"),
    )
    parts = []
    for key, part in rows.group_by("gpu", "miss_bin", "occupancy_bin"):
        windows = union(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
        level = level_over(dram(trace, int(str(key[0]))), windows)
        time = int((part["end_ns"] - part["start_ns"]).sum())
        parts.append((*key, part.height, time, None if level is None else level.mean_frac))
    return pl.DataFrame(parts, schema=_BINNED, orient="row").sort(
        "gpu", "miss_bin", "occupancy_bin"
    )


_BINNED = pl.Schema(
    {
        "gpu": pl.Int16(),
        "miss_bin": pl.String(),
        "occupancy_bin": pl.String(),
        "n_kernels": pl.Int64(),
        "time_ns": pl.Int64(),
        "dram_frac": pl.Float64(),
    }
)


def _binned(column: str, edges: tuple[int, int]) -> pl.Expr:
    low, high = edges
    return (
        pl.when(pl.col(column) < low)
        .then(pl.lit(f"0-{low}"))
        .when(pl.col(column) < high)
        .then(pl.lit(f"{low}-{high}"))
        .otherwise(pl.lit(f"{high}-100"))
    )


@view("diagnostics", "metric_names", "gpu_metrics", of=[activity, used_gpus])
def recording(trace: Trace) -> dict[str, int | str]:
    """Return what was sampled at all, what kept it away, and how to record the L2 hit rate.

    Returns:
        n_kernels, n_metrics (distinct counters), blocked ("permission", "in use" or ""), chip,
        command (``nsys profile`` with the metric set that has the counter; "" when this chip's
        set is not known).
    """
    kernels = activity(trace).filter(pl.col("source") == "kernel")
    n_metrics = trace.frame("metric_names")["name"].drop_nulls().n_unique()
    active = used_gpus(trace)
    used = [gpu for gpu in trace.gpus if gpu.index in active] or list(trace.gpus)
    chip = next((gpu.chip for gpu in used if gpu.chip), "")
    version = next((r.nsys_version for r in trace.reports if r.nsys_version), None)
    metric_set = COMPUTE_TRIAGE.get(chip.upper())
    command = ""
    if metric_set is not None or not chip:
        options = (f"--gpu-metrics-set={metric_set or 'gh100-ct'}", FREQUENCY)
        command = record_command(("kernels", "gpu_metrics"), version=version, extra=options)
    return {
        "n_kernels": kernels.height,
        "n_metrics": n_metrics if trace.has("gpu_metrics") else 0,
        "blocked": "" if trace.has("gpu_metrics") else _blocked(trace),
        "chip": chip,
        "command": command,
    }


def _blocked(trace: Trace) -> str:
    said = trace.frame("diagnostics")["text"].drop_nulls().to_list()
    if any(_PERMISSION.search(text) for text in said):
        return "permission"
    return "in use" if any(_IN_USE.search(text) for text in said) else ""
