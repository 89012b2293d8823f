"""What the samples of the L2 hit rate say about kernels, pooled by name, layer and occupancy.

The kernels of one GPU are measured at a time: what is kept has a row a kernel name, not a kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import KernelKind
from tracekit.model.trace import Trace, view
from tracekit.numerics import sampling, speaking
from tracekit.numerics.intervals import union
from tracekit.numerics.threads import each
from tracekit.views.activity import WORK_KIND, activity
from tracekit.views.attribution import attribution
from tracekit.views.l2 import FULL_SCALE, HitCounter, hit_counters, resident_warps
from tracekit.views.metrics import SAMPLED, dram, mean_over

__all__ = ["ATTENTION", "KernelHits", "kernel_hits"]

ATTENTION = KernelKind.ATTENTION.value
MISS_BINS, OCCUPANCY_BINS = (20, 40), (30, 60)
_KINDS = WORK_KIND.categories.to_numpy()
_IS_KERNEL = np.isin(_KINDS, [k.value for k in KernelKind])
_IS_ATTENTION = _KINDS == ATTENTION
_NO_GPU = -1
"""Sorts before every GPU, as `activity` is sorted."""
Int64 = NDArray[np.int64]


class KernelHits(NamedTuple):
    """Sums over kernels of sampled GPUs.

    Both frames have n_kernels, time_ns and median_ns of the executions, cells (fully inside; where
    there is none, those that overlap), valid_cells, raw_integral (counter value times covered ns
    of valid cells), covered_ns, subsample (for some execution no cell lies inside, weighed by
    overlap instead), occupancy_frac (resident warps; null when not sampled) and error (standard
    error of raw_integral / covered_ns).

    Attributes:
        by_name: One row a gpu, name_key and kind.
        by_layer: One row a gpu and layer, with t_ns (when half of its kernels had been launched)
            and range (row in `ranges` of the first one).
        of: Which kernels speak for layers. Attention kernels read the KV cache; where a trace has
            any in its layers, only they count.
        by_occupancy: Frame of `BINNED`, one row a bin that holds kernels whose hit rate and
            occupancy are known.
    """

    by_name: pl.DataFrame
    by_layer: pl.DataFrame
    of: str
    by_occupancy: pl.DataFrame


class _Own(NamedTuple):
    """The kernels of one GPU, in order of start."""

    rows: pl.DataFrame
    in_layers: pl.DataFrame
    bins: list[tuple[int, str, str, int, int, float | None]]


BINNED = pl.Schema(
    {
        "gpu": pl.Int16(),
        "miss_bin": pl.String(),
        "occupancy_bin": pl.String(),
        "n_kernels": pl.Int64(),
        "time_ns": pl.Int64(),
        "dram_frac": pl.Float64(),
    }
)


@view("gpu_metrics", of=[hit_counters, activity, attribution, *SAMPLED])
def kernel_hits(trace: Trace) -> KernelHits:
    """Return what the L2 hit-rate samples say about the kernels of sampled GPUs."""
    work, counters = activity(trace), hit_counters(trace)
    # Sorted by GPU: the kernels of one are a slice.
    gpus = work["gpu"].fill_null(_NO_GPU).to_numpy()
    # Looked up in their own type: NumPy would widen all of them otherwise.
    edges = (np.array([c.gpu, c.gpu + 1], gpus.dtype) for c in counters)
    slices = [np.searchsorted(gpus, edge).tolist() for edge in edges]
    kind = work["kind"].to_physical().to_numpy()
    inside = attribution(trace)["layer"].is_not_null().to_numpy()
    attention = any(
        bool((_IS_ATTENTION[kind[low:high]] & inside[low:high]).any()) for low, high in slices
    )
    speaks = inside & _IS_ATTENTION[kind] if attention else inside

    def measured(which: int) -> _Own:
        low, high = slices[which]
        at = low + np.flatnonzero(_IS_KERNEL[kind[low:high]])
        return _measured(trace, counters[which], at, speaks[at])

    parts = each(measured, range(len(counters)))
    return KernelHits(
        pl.concat([_BY_NAME, *(p.rows for p in parts)], how="diagonal"),
        pl.concat([_BY_LAYER, *(p.in_layers for p in parts)], how="diagonal"),
        "attention kernels" if attention else "all kernels",
        pl.DataFrame([row for p in parts for row in p.bins], schema=BINNED, orient="row").sort(
            "gpu", "miss_bin", "occupancy_bin"
        ),
    )


def _measured(trace: Trace, counter: HitCounter, at: Int64, speaks: NDArray[np.bool_]) -> _Own:
    rows = pl.Series(at.astype(np.uint32))
    own = activity(trace).select("start_ns", "end_ns", "name_key", "kind")[rows]
    start, end = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    found = speaking.spoken(counter.cells, counter.valid, start, end)
    hits = own.select("name_key", "kind", (pl.col("end_ns") - pl.col("start_ns")).alias("length"))
    hits = hits.with_columns(
        pl.Series("cells", found.cells),
        pl.Series("valid_cells", found.valid_cells),
        pl.Series("raw_integral", found.integral),
        pl.Series("covered_ns", found.covered_ns),
        pl.Series("subsample", found.subsample),
    )
    occupancy = resident_warps(trace, counter.gpu)
    sampled, bins = occupancy is not None and occupancy.value.size > 0, []
    if occupancy is not None and sampled:
        warps = sampling.over_windows(occupancy, start, end)
        hits = hits.with_columns(
            pl.Series("warps_integral", warps.integral / FULL_SCALE),
            pl.Series("warps_ns", warps.covered_ns),
        )
        bins = _bins(trace, counter, found, warps, (start, end))
    launches = attribution(trace).select("layer", "range", "launch_start_ns")
    in_layers = hits.with_columns(own["start_ns"]).filter(speaks)
    in_layers = in_layers.hstack(launches[rows.filter(pl.Series(speaks))])
    moment = pl.coalesce("launch_start_ns", "start_ns").median().cast(pl.Int64).alias("t_ns")
    gpu = pl.lit(counter.gpu, pl.Int16).alias("gpu")
    by_layer = in_layers.group_by("layer", maintain_order=True)
    return _Own(
        # A name is of one kind; one key is quicker than two.
        hits.group_by("name_key", maintain_order=True)
        .agg(pl.col("kind").first(), *_pooled(sampled))
        .with_columns(gpu),
        by_layer.agg(*_pooled(sampled), moment, pl.col("range").first()).with_columns(gpu),
        bins,
    )


def _pooled(has_occupancy: bool) -> list[pl.Expr]:
    """Sums over kernels, and the ratios that cannot be had from sums."""
    integral, covered = pl.col("raw_integral"), pl.col("covered_ns")
    # Where nothing is covered the integral is 0, and so is the deviation.
    deviation = integral - integral.sum() / covered.sum() * covered
    n = (covered > 0).sum()
    spread = (deviation.pow(2).sum() * n / (n - 1)).sqrt() / covered.sum()
    sums = [
        pl.len().alias("n_kernels"),
        pl.col("length").sum().alias("time_ns"),
        pl.col("length").median().alias("median_ns"),
        pl.col("cells", "valid_cells").cast(pl.Int64).sum(),
        pl.col("raw_integral", "covered_ns").sum(),
        pl.col("subsample").any(),
        # Standard error of a ratio of sums (linearised); null for one execution.
        pl.when(n > 1).then(spread).alias("error"),
    ]
    if has_occupancy:
        warps = pl.col("warps_integral").sum() / pl.col("warps_ns").sum()
        sums.append(warps.fill_nan(None).alias("occupancy_frac"))
    return sums


_SUMS = pl.Schema(
    {
        "n_kernels": pl.UInt32(),
        "time_ns": pl.Int64(),
        "median_ns": pl.Float64(),
        "cells": pl.Int64(),
        "valid_cells": pl.Int64(),
        "raw_integral": pl.Float64(),
        "covered_ns": pl.Int64(),
        "subsample": pl.Boolean(),
        "error": pl.Float64(),
        "occupancy_frac": pl.Float64(),
    }
)
_BY_NAME = pl.DataFrame(
    schema={"gpu": pl.Int16(), "name_key": pl.UInt32(), "kind": WORK_KIND, **_SUMS}
)
_BY_LAYER = pl.DataFrame(
    schema={
        "gpu": pl.Int16(),
        "layer": pl.Int32(),
        **_SUMS,
        "t_ns": pl.Int64(),
        "range": pl.UInt32(),
    }
)


def _bins(
    trace: Trace,
    counter: HitCounter,
    found: speaking.Spoken,
    warps: sampling.Means,
    windows: tuple[Int64, Int64],
) -> list[tuple[int, str, str, int, int, float | None]]:
    """Kernels by miss share and resident warps, both in percent, with the DRAM level meanwhile."""
    known = (found.covered_ns > 0) & (found.valid_cells * 2 >= found.cells) & (warps.covered_ns > 0)
    at = np.flatnonzero(known)
    miss = 100 * (1 - found.integral[at] / found.covered_ns[at] / counter.full_scale)
    occupancy = 100 * (warps.integral[at] / FULL_SCALE) / warps.covered_ns[at]
    bins = 3 * np.digitize(miss, MISS_BINS) + np.digitize(occupancy, OCCUPANCY_BINS)
    rows = []
    for code in np.unique(bins).tolist():
        start, end = (times[at[bins == code]] for times in windows)
        level = mean_over(dram(trace, counter.gpu), union(start, end))
        names = (_bin_name(MISS_BINS, code // 3), _bin_name(OCCUPANCY_BINS, code % 3))
        mean = None if level is None else level[0]
        rows.append((counter.gpu, *names, start.size, int((end - start).sum()), mean))
    return rows


def _bin_name(edges: tuple[int, int], place: int) -> str:
    low, high = edges
    return (f"0-{low}", f"{low}-{high}", f"{high}-100")[place]
