"""L2 samples by layer: which kernels represent a layer, and how its KV cache lay at that time."""

from __future__ import annotations

import re

import polars as pl

from tracekit.model.catalog import record_command
from tracekit.model.table import Column
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, used_gpus
from tracekit.views.kv.cache import kv_cache
from tracekit.views.kv.layout import measure
from tracekit.views.l2.hits import kernel_hits

__all__ = [
    "LAYER_KV",
    "kv_of_layers",
    "layer_kv",
    "recording",
]

COMPUTE_TRIAGE = {"GH100": "gh100-ct"}
"""Chip to the metric set of nsys that samples an L2 hit rate."""
FREQUENCY = "--gpu-metrics-frequency=100000"
_PERMISSION = r"privilege|permission|ERR_NVGPUCTRPERM|CAP_SYS_ADMIN|CAP_PERFMON"
_IN_USE = r"in use|already.*(use|subscrib)|another (tool|process|client)"

LAYER_KV: tuple[Column, ...] = (
    Column("kv_blocks", pl.Int64, "", "live KV blocks of the layer; null without markers"),
    Column("bytes", pl.Int64, "bytes", "distinct live bytes that markers state"),
    Column("frag_frac", pl.Float64, "1", "share of neighbouring blocks that lie apart"),
    Column("stride_median_bytes", pl.Float64, "bytes", "median distance of two neighbours"),
    Column("run_mean_bytes", pl.Float64, "bytes", "mean contiguous piece"),
    Column("request_overfetch_frac", pl.Float64, "1", "extra sectors of 128 B requests"),
    Column("page_ratio", pl.Float64, "x", "2 MiB pages over needed; null below 2 MiB"),
    Column("line_overfetch_frac", pl.Float64, "1", "extra 128 B cache lines that blocks touch"),
    Column("line_bytes", pl.Int64, "bytes", "cache lines that the stated blocks touch"),
    Column("footprint_l2_ratio", pl.Float64, "x", "line_bytes over the size of the L2"),
    Column("span_bytes", pl.Int64, "bytes", "lowest to highest address, summed over sequences"),
    Column("span_l2_ratio", pl.Float64, "x", "span_bytes over the size of the L2"),
)
"""Columns of `kv_of_layers` after gpu and layer."""


@view
def kv_of_layers(trace: Trace) -> pl.DataFrame:
    """Measure the KV layout of each layer when half of its kernels had been launched.

    Returns:
        Frame of gpu, layer and `LAYER_KV`, one row a layer that has kernels and stated blocks;
        keys and values of a layer count together.
    """
    return _kv_at(trace, kernel_hits(trace).by_layer.select("gpu", "layer", "t_ns"))


def layer_kv(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Measure the KV layout of each layer when half of some kernels had been launched.

    Args:
        trace: The run.
        kernels: Frame of gpu, layer, launch_start_ns and start_ns, one row an execution.

    Returns:
        As `kv_of_layers`.
    """
    moment = pl.coalesce("launch_start_ns", "start_ns").median().cast(pl.Int64).alias("t_ns")
    return _kv_at(trace, kernels.group_by("gpu", "layer").agg(moment))


def _kv_at(trace: Trace, times: pl.DataFrame) -> pl.DataFrame:
    """Layout at t_ns of each gpu and layer."""
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
        "line_overfetch_frac": pl.col("line_overfetch_frac"),
        "footprint_l2_ratio": pl.col("line_bytes") / pl.col("l2_bytes"),
        "span_l2_ratio": pl.col("span_bytes") / pl.col("l2_bytes"),
    }
    return rows.select(
        "gpu",
        pl.col("layer").cast(pl.Int32),
        *(own.get(c.name, pl.col(c.name)).cast(c.dtype).alias(c.name) for c in LAYER_KV),
    )


@view
def recording(trace: Trace) -> dict[str, int | str]:
    """Return what was sampled at all, what kept it away, and how to record the L2 hit rate.

    Returns:
        n_kernels, n_metrics (distinct counters), blocked ("permission", "in use" or ""), chip,
        command (``nsys profile`` with the metric set that has the counter; "" when this chip's
        set is not known).
    """
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
        "n_kernels": int((activity(trace)["source"] == "kernel").sum()),
        "n_metrics": _n_metrics(trace) if trace.has("gpu_metrics") else 0,
        "blocked": "" if trace.has("gpu_metrics") else _blocked(trace),
        "chip": chip,
        "command": command,
    }


def _n_metrics(trace: Trace) -> int:
    return trace.frame("metric_names")["name"].drop_nulls().n_unique()


def _blocked(trace: Trace) -> str:
    said = trace.frame("diagnostics")["text"].drop_nulls().to_list()
    if any(re.search(_PERMISSION, text, re.I) for text in said):
        return "permission"
    return "in use" if any(re.search(_IN_USE, text, re.I) for text in said) else ""
