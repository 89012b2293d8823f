"""What the samples of the L2 hit rate say about kernels, pooled by name, layer and occupancy.

The kernels of one GPU are measured at a time: what is kept has a row a kernel name, not a kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import KernelKind
from tracekit.model.table import Column, Table
from tracekit.numerics.intervals import union
from tracekit.numerics.samples import sampling, window_sums
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.counters.metrics import (
    HIT_RATES,
    OCCUPANCY,
    dram,
    mean_over,
    metric_names,
    samples_of,
)
from tracekit.views.device.activity import WORK_KIND, activity, used_gpus
from tracekit.views.keys import row_numbers
from tracekit.views.launches.attribution import attribution

__all__ = [
    "ATTENTION",
    "FULL_SCALE",
    "HITS_BY_OCCUPANCY",
    "HIT_RATES",
    "OCCUPANCY",
    "HitCounter",
    "KernelHits",
    "hit_counters",
    "kernel_hits",
    "resident_warps",
]

FULL_SCALE, HALF_SCALE = 100, 50
SAMPLES_AT_TOP = 20
"""Samples at exactly 50, and none above, from which on 50 is taken for the full scale."""


class HitCounter(NamedTuple):
    """The L2 hit-rate counter of one GPU.

    Attributes:
        gpu: Index of the GPU.
        name: Exact name.
        cells: All cells in time order; values in the counter's own scale.
        valid: bool[n], whether the value lies within the scale.
        full_scale: Value that means "every look-up hits": 100, or 50 where the samples say so.
    """

    gpu: int
    name: str
    cells: sampling.Cells
    valid: NDArray[np.bool_]
    full_scale: int

    @property
    def half_scale(self) -> bool:
        """Whether the counter was found to read half of the true share."""
        return self.full_scale == HALF_SCALE


def full_scale_of(values: NDArray[np.int64]) -> int:
    """Return the value that means 100%.

    The compute-triage counter of some versions reads half of the truth: then its largest value
    over a whole trace is 50, and busy moments sit exactly there.

    Args:
        values: int64[n], all samples of the counter.
    """
    top = int(values.max()) if values.size else FULL_SCALE
    at_top = int(np.count_nonzero(values == HALF_SCALE))
    return HALF_SCALE if top == HALF_SCALE and at_top >= SAMPLES_AT_TOP else FULL_SCALE


@view
def hit_counters(trace: Trace) -> tuple[HitCounter, ...]:
    """Return the L2 hit-rate counter of each GPU that has one with any sample."""
    found = []
    for gpu in sorted(used_gpus(trace)):
        name = next((n for n in HIT_RATES if n in metric_names(trace, gpu)), None)
        cells = None if name is None else _cells(trace, gpu, name)
        if name is not None and cells is not None and cells.value.size:
            scale = full_scale_of(cells.value.astype(np.int64))
            valid = (cells.value >= 0) & (cells.value <= scale)
            found.append(HitCounter(gpu, name, cells, valid, scale))
    return tuple(found)


def _cells(trace: Trace, gpu: int, name: str) -> sampling.Cells:
    edge = trace.settings.sampling_edge
    return sampling.cells(*samples_of(trace, gpu, name), edge)


def resident_warps(trace: Trace, gpu: int) -> sampling.Cells | None:
    """Return the cells of the resident warps, 0..100; None when they were not sampled."""
    name = next((n for n in OCCUPANCY if n in metric_names(trace, gpu)), None)
    if name is None:
        return None
    level = _cells(trace, gpu, name)
    return level.keep((level.value >= 0) & (level.value <= FULL_SCALE))


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
        of: Which kernels represent layers. Attention kernels read the KV cache; where a trace has
            any in its layers, only they count.
        by_occupancy: Frame of `HITS_BY_OCCUPANCY`, one row a bin that holds kernels whose hit rate
        and
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


HITS_BY_OCCUPANCY = Table(
    "occupancy",
    (
        Column("gpu", pl.Int16, "", "GPU"),
        Column("miss_bin", pl.String, "", "L2 miss share, percent"),
        Column("occupancy_bin", pl.String, "", "resident warps, percent of the most that fit"),
        Column("n_kernels", pl.Int64, "", "kernel executions"),
        Column("time_ns", pl.Int64, "ns", "sum of their durations"),
        Column("dram_frac", pl.Float64, "1", "DRAM read and write over them; null: not sampled"),
    ),
    "kernels by L2 miss share and occupancy",
)


@view
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
    attentive = _IS_ATTENTION[kind]
    attentive &= inside
    attention = any(bool(attentive[low:high].any()) for low, high in slices)
    speaks = attentive if attention else inside

    def measured(which: int) -> _Own:
        own = slice(*slices[which])
        return _measured(trace, counters[which], own, speaks[own])

    parts = each(measured, range(len(counters)))
    return KernelHits(
        pl.concat([_BY_NAME, *(p.rows for p in parts)], how="diagonal"),
        pl.concat([_BY_LAYER, *(p.in_layers for p in parts)], how="diagonal"),
        "attention kernels" if attention else "all kernels",
        pl.DataFrame(
            [row for p in parts for row in p.bins], schema=HITS_BY_OCCUPANCY.schema, orient="row"
        ).sort("gpu", "miss_bin", "occupancy_bin"),
    )


def _measured(trace: Trace, counter: HitCounter, own: slice, speaks: NDArray[np.bool_]) -> _Own:
    """Measure the work of one GPU, a slice of `activity`."""
    work = activity(trace).select("start_ns", "end_ns", "name_key", "kind")[own]
    windows = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    is_kernel = _IS_KERNEL[work["kind"].to_physical().to_numpy()]
    found = window_sums.spoken(counter.cells, counter.valid, *windows)
    occupancy, warps = resident_warps(trace, counter.gpu), None
    if occupancy is not None and occupancy.value.size:
        warps = sampling.over_windows(occupancy, *windows)
    names = work["name_key"].fill_null(0).to_numpy().astype(np.int32)
    names[~is_kernel] = -1
    by_name, _, first = _pooled(names, windows, found, warps)
    rows = pl.Series(np.flatnonzero(speaks & is_kernel).astype(np.uint32))
    launches = attribution(trace).select("layer", "range", "launch_start_ns")[own]
    number, layers = row_numbers(launches.select("layer")[rows])
    of_layer = np.full(work.height, -1, np.int32)
    of_layer[rows.to_numpy()] = number
    by_layer, group, first_of_layer = _pooled(of_layer, windows, found, warps)
    moments = launches[rows].with_columns(work["start_ns"][rows], pl.Series("group", number))
    moment = pl.coalesce("launch_start_ns", "start_ns").median().cast(pl.Int64).alias("t_ns")
    moments = moments.group_by("group").agg(moment).sort("group")
    gpu = pl.lit(counter.gpu, pl.Int16).alias("gpu")
    return _Own(
        # A name is of one kind.
        by_name.with_columns(gpu, work["name_key"][first], work["kind"][first]),
        by_layer.with_columns(
            gpu, layers["layer"][group], moments["t_ns"][group], launches["range"][first_of_layer]
        ),
        [] if warps is None else _bins(trace, counter, found, warps, windows, is_kernel),
    )


def _pooled(
    group: NDArray[np.int32],
    windows: tuple[Int64, Int64],
    found: window_sums.Spoken,
    warps: sampling.Means | None,
) -> tuple[pl.DataFrame, Int64, Int64]:
    """Pool kernels by group.

    Returns:
        Frame of `_SUMS`, a row a group that occurs, in order of its first kernel; which group that
        is; and its first kernel.
    """
    n_groups = int(group.max(initial=-1)) + 1
    pool = window_sums.pooled(group, n_groups, *windows, found)
    occur = np.flatnonzero(pool.first >= 0)
    n, time, cells, valid, covered, n_covered, short = pool.sums[:, occur]
    # Standard error of a ratio of sums (linearised); null for one execution.
    error = (pl.col("sq") * pl.col("k") / (pl.col("k") - 1)).sqrt() / pl.col("covered_ns")
    sums = _spread(pool, np.repeat(occur, n)).with_columns(
        pl.Series("n_kernels", n, pl.UInt32),
        pl.Series("time_ns", time),
        pl.Series("cells", cells),
        pl.Series("valid_cells", valid),
        pl.Series("raw_integral", pool.integral[occur]),
        pl.Series("covered_ns", covered),
        pl.Series("subsample", short > 0),
        pl.Series("k", n_covered),
    )
    sums = sums.with_columns(pl.when(pl.col("k") > 1).then(error).alias("error"))
    turn = np.argsort(pool.first[occur])
    sums = sums.drop("sq", "k")[turn]
    if warps is not None:
        sums = sums.with_columns(_occupancy(group, warps))
    return sums, occur[turn], pool.first[occur][turn]


def _spread(pool: window_sums.Pooled, group: Int64) -> pl.DataFrame:
    """Median length (median_ns) and sum of squares (sq) of each group, by number."""
    # With the sorted flag set, Polars takes groups as slices.
    own = pl.Series("group", group.astype(np.uint32)).set_sorted()
    rows = pl.DataFrame([own, pl.Series("median_ns", pool.length_ns), pl.Series("sq", pool.square)])
    wanted = pl.col("median_ns").median(), pl.col("sq").sum()
    return rows.group_by("group", maintain_order=True).agg(wanted).drop("group")


def _occupancy(group: NDArray[np.int32], warps: sampling.Means) -> pl.Series:
    """Resident warps of each group, in order of its first kernel; null when not sampled."""
    columns = {"group": group, "level": warps.integral / FULL_SCALE, "ns": warps.covered_ns}
    rows = pl.DataFrame(columns).filter(pl.col("group") >= 0)
    share = (pl.col("level").sum() / pl.col("ns").sum()).fill_nan(None).alias("occupancy_frac")
    return rows.group_by("group", maintain_order=True).agg(share)["occupancy_frac"]


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
    found: window_sums.Spoken,
    warps: sampling.Means,
    windows: tuple[Int64, Int64],
    is_kernel: NDArray[np.bool_],
) -> list[tuple[int, str, str, int, int, float | None]]:
    """Kernels by miss share and resident warps, both in percent, with the DRAM level meanwhile."""
    known = (found.covered_ns > 0) & (found.valid_cells * 2 >= found.cells) & (warps.covered_ns > 0)
    at = np.flatnonzero(known & is_kernel)
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
