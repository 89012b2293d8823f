"""L2 misses of kernels and layers, and their association with how the KV cache lies in memory.

The hit rate is a sampled hardware counter; only samples inside a kernel count for it. Layers are
then compared: do those whose cache is more broken up, or larger against the L2, miss more? An
association is no cause, and the footprint, which usually is one, stands next to it in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tracekit.analyses.l2_miss.association import associate, judge, with_holm
from tracekit.analyses.l2_miss.chart import chart
from tracekit.analyses.l2_miss.counted import counted_kernels, counted_layers, matching
from tracekit.analyses.l2_miss.tables import (
    ASSOCIATIONS,
    COUNTERS,
    KERNELS,
    LAYERS,
    NCU_KERNELS,
    NCU_LAYERS,
    NCU_MATCH,
    SUMMARY,
)
from tracekit.analyses.l2_miss.verdict import verdict
from tracekit.model.finding import Level
from tracekit.trace import Trace
from tracekit.trace.analysis import Analysis, param
from tracekit.views.device.kernels import kernel_names
from tracekit.views.kv.cache import kv_cache
from tracekit.views.l2.hits import HITS_BY_OCCUPANCY, hit_counters, kernel_hits
from tracekit.views.l2.layers import kv_of_layers, recording
from tracekit.views.l2.ncu import matched, profiled
from tracekit.views.nvtx.ranges import ranges

__all__ = ["ANALYSIS", "Params"]

I64, F64 = pl.Int64, pl.Float64
PREDICTORS = ("frag_frac", "request_overfetch_frac", "page_ratio", "footprint_l2_ratio")
MIN_VALID, MIN_MATCHED = 0.5, 0.8


@dataclass(frozen=True)
class Params:
    """Parameters of `l2_miss`."""

    warn_miss_pp: float = param(
        5.0, unit="pp", help="more misses in the most than in the least broken layers: warning"
    )
    critical_miss_pp: float = param(10.0, unit="pp", help="the same: critical")
    useful_bytes: int = param(
        0,
        unit="bytes",
        help="bytes that one kernel must read, for its DRAM amplification; 0: not known",
    )


def compute(trace: Trace, params: Params) -> dict[str, pl.DataFrame]:
    """Return the frames of `ANALYSIS`."""
    hits = kernel_hits(trace)
    layers = _layers(trace)
    summary: dict[str, Any] = {"n_layers": layers.height, "n_kv": kv_cache(trace).records.height}
    counted, by_layer = profiled(trace), counted_layers(trace)
    both = None if counted.is_empty() else matched(trace)
    share = None if both is None else both.time_frac()
    summary |= {
        **recording(trace),
        "n_profiled": counted.height,
        "matched_frac": share,
        "by_shape_frac": None if both is None else both.time_frac("shape"),
    }
    found = _associations(layers, "sampled", params, judged=True)
    found += _associations(by_layer, "ncu", params, judged=(share or 0.0) >= MIN_MATCHED)
    return {
        "layers": layers,
        "kernels": _kernels(trace, hits.by_name),
        "associations": pl.DataFrame(found, schema=ASSOCIATIONS.schema),
        "counters": _counters(trace, layers),
        "occupancy": hits.by_occupancy,
        "ncu_kernels": counted_kernels(trace, params.useful_bytes),
        "ncu_layers": by_layer,
        "ncu_match": matching(trace),
        "summary": SUMMARY.conform(pl.DataFrame([summary])),
    }


def _rates(trace: Trace, sums: pl.DataFrame) -> pl.DataFrame:
    """Ratios of the sums of `kernel_hits`."""
    scales = [(c.gpu, c.full_scale) for c in hit_counters(trace)]
    scale = pl.DataFrame(scales, schema={"gpu": pl.Int16, "full_scale": I64}, orient="row")
    raw = pl.when(pl.col("covered_ns") > 0).then(pl.col("raw_integral") / pl.col("covered_ns"))
    enough = (pl.col("cells") > 0) & (pl.col("valid_cells") >= MIN_VALID * pl.col("cells"))
    sums = sums.join(scale, on="gpu", how="left").with_columns(raw.alias("raw_mean"))
    hit = pl.when(enough).then(pl.col("raw_mean") / pl.col("full_scale"))
    half = 1.96 * pl.col("error") / pl.col("full_scale")
    return sums.with_columns(
        hit.alias("hit_frac"),
        (1 - hit).alias("miss_frac"),
        (hit - half).clip(0).alias("hit_lo_frac"),
        (hit + half).clip(upper_bound=1).alias("hit_hi_frac"),
    )


def _kernels(trace: Trace, sums: pl.DataFrame) -> pl.DataFrame:
    """Hit rates of kernels by name, those that take the most time first."""
    if sums.is_empty():
        return KERNELS.empty()
    names = kernel_names(trace).select("name_key", "name")
    by_name = _rates(trace, sums).join(names, on="name_key", how="left")
    return KERNELS.conform(by_name.sort(["time_ns", "name"], descending=[True, False]))


def _layers(trace: Trace) -> pl.DataFrame:
    """Hit rates of layers with the layout of their KV cache."""
    hits, texts = kernel_hits(trace), ranges(trace)["text"]
    if hits.by_layer.is_empty():
        return LAYERS.empty()
    rates = _rates(trace, hits.by_layer)
    label = texts[rates["range"]] if len(texts) else rates["range"]
    label = label.cast(pl.String).str.replace(r"\blayer[=: ]\d+ *", "")
    rates = rates.with_columns(label.alias("label"), pl.lit(hits.of).alias("of"))
    rates = rates.join(kv_of_layers(trace), on=["gpu", "layer"], how="left")
    order = ["gpu", "hit_frac", "layer"]
    return LAYERS.conform(rates.sort(order, descending=[False, True, False], nulls_last=True))


def _associations(
    layers: pl.DataFrame, source: str, params: Params, *, judged: bool
) -> list[dict[str, Any]]:
    """Rows of `ASSOCIATIONS` from layers of one source; unknown throughout unless `judged`."""
    rows: list[dict[str, Any]] = []
    for (gpu,), own in layers.group_by("gpu", maintain_order=True):
        if not own["frag_frac"].is_not_null().any():
            continue
        coverage = own["miss_frac"].is_not_null().mean()
        share = float(coverage) if isinstance(coverage, float) else 0.0
        miss = _array(own, "miss_frac")
        where = {"gpu": gpu, "source": source}
        tested = [
            {"x_name": x, **associate(_array(own, x), miss, _array(own, "bytes"))}
            for x in PREDICTORS
        ]
        for row in with_holm(tested):
            level = judge(row, share, params) if judged else Level.UNKNOWN
            rows.append({**row, **where, "y_name": "miss_frac", "severity": level.value})
        time = associate(miss, _array(own, "median_ns")) | {"delta_miss_pp": None}
        rows.append({**time, **where, "x_name": "miss_frac", "y_name": "median_ns"})
    return rows


def _array(rows: pl.DataFrame, column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return rows[column].cast(F64).fill_null(np.nan).to_numpy()


def _counters(trace: Trace, layers: pl.DataFrame) -> pl.DataFrame:
    sizes = {gpu.index: gpu.l2_bytes for gpu in trace.gpus}
    rows = []
    for counter in hit_counters(trace):
        own = layers.filter(pl.col("gpu") == counter.gpu)
        rows.append(
            {
                "gpu": counter.gpu,
                "name": counter.name,
                "samples": counter.valid.size,
                "invalid": int((~counter.valid).sum()),
                "at_full_scale": int((counter.cells.value == counter.full_scale).sum()),
                "full_scale": counter.full_scale,
                "l2_bytes": sizes.get(counter.gpu),
                "n_layers": own.height,
                "n_known": int(own["miss_frac"].is_not_null().sum()),
            }
        )
    return pl.DataFrame(rows, schema=COUNTERS.schema)


ANALYSIS = Analysis(
    name="l2_miss",
    question="Which kernels and layers miss the L2, and is that associated with the KV layout?",
    requires=(),
    needs="sampled L2 hit rates, or an Nsight Compute page given with the report",
    record="tracekit run --metrics l2 -o run -- YOUR_COMMAND",
    params=Params,
    results=(
        *(LAYERS, KERNELS, ASSOCIATIONS, COUNTERS, HITS_BY_OCCUPANCY),
        *(NCU_KERNELS, NCU_LAYERS, NCU_MATCH, SUMMARY),
    ),
    compute=compute,
    verdict=verdict,
    chart=chart,
)
