"""Sampled L2 hit rate of kernels: which counter, at which scale, and which samples are valid.

Only cells that lie fully inside a kernel speak for it; where a kernel is shorter than that, cells
are weighed by overlap and the row says so. Samples outside of the scale are invalid: they are
dropped and counted, and their time stays uncovered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.trace import Trace, view
from tracekit.numerics import sampling
from tracekit.numerics.threads import each
from tracekit.views.activity import WORK_KIND, activity, used_gpus
from tracekit.views.attribution import attribution
from tracekit.views.metrics import HIT_RATES, OCCUPANCY, SAMPLED, metric_names, samples_of

__all__ = ["HIT_RATES", "OCCUPANCY", "HitCounter", "hit_counters", "kernel_hits"]

FULL_SCALE, HALF_SCALE = 100, 50
SAMPLES_AT_TOP = 20
"""Samples at exactly 50, and none above, from which on 50 is taken for the full scale."""


@dataclass(frozen=True)
class HitCounter:
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
    """Return the value that means 100 %.

    The compute-triage counter of some versions reads half of the truth: then its largest value
    over a whole trace is 50, and busy moments sit exactly there.

    Args:
        values: int64[n], all samples of the counter.
    """
    top = int(values.max()) if values.size else FULL_SCALE
    at_top = int(np.count_nonzero(values == HALF_SCALE))
    return HALF_SCALE if top == HALF_SCALE and at_top >= SAMPLES_AT_TOP else FULL_SCALE


@view("gpu_metrics", "metric_names", of=[used_gpus, *SAMPLED])
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
    edge = cast("sampling.Edge", trace.settings.get("sampling.edge", "leading"))
    return sampling.cells(*samples_of(trace, gpu, name), edge)


KERNEL_HITS = pl.Schema(
    {
        "gpu": pl.Int16(),
        "layer": pl.Int32(),
        "name_key": pl.UInt32(),
        "kind": WORK_KIND,
        "range": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "launch_start_ns": pl.Int64(),
        "cells": pl.Int64(),
        "valid_cells": pl.Int64(),
        "raw_integral": pl.Float64(),
        "covered_ns": pl.Int64(),
        "subsample": pl.Boolean(),
        "warps_integral": pl.Float64(),
        "warps_ns": pl.Int64(),
    }
)


@view("gpu_metrics", "metric_names", of=[hit_counters, activity, attribution, *SAMPLED])
def kernel_hits(trace: Trace) -> pl.DataFrame:
    """Return what the L2 hit-rate samples say about every kernel of a sampled GPU.

    Returns:
        One row a kernel execution, by gpu and start: gpu, layer (null when unknown), name_key,
        kind, range (row in `ranges`), start_ns, end_ns, launch_start_ns, cells (fully inside;
        where there is none, those that overlap), valid_cells, raw_integral (counter value times
        covered ns of valid cells), covered_ns, subsample (no cell lies inside, weighed by overlap
        instead), warps_integral (resident-warp share times ns) and warps_ns.
    """
    columns = ["gpu", "source", "kind", "name_key", "start_ns", "end_ns"]
    launches = attribution(trace).select("layer", "launch_start_ns", "range")
    kernels = activity(trace).select(columns).hstack(launches)
    kernels = kernels.filter(pl.col("source") == "kernel")
    counters = [(c, _occupancy(trace, c.gpu)) for c in hit_counters(trace)]
    # Sorted by GPU: the kernels of one are a slice.
    gpus = kernels["gpu"].fill_null(_NO_GPU).to_numpy()

    def measured(sampled: tuple[HitCounter, sampling.Cells | None]) -> pl.DataFrame:
        gpu = sampled[0].gpu
        begin, end = np.searchsorted(gpus, [gpu, gpu + 1])
        own = kernels.slice(begin, end - begin)
        own = own.hstack(_hits(*sampled, own))
        return own.select(KERNEL_HITS.names()).cast(KERNEL_HITS)

    return pl.concat([pl.DataFrame(schema=KERNEL_HITS), *each(measured, counters)])


_NO_GPU = -1


def _occupancy(trace: Trace, gpu: int) -> sampling.Cells | None:
    """Cells of the resident warps, 0..100; None when they were not sampled."""
    name = next((n for n in OCCUPANCY if n in metric_names(trace, gpu)), None)
    if name is None:
        return None
    level = _cells(trace, gpu, name)
    return level.keep((level.value >= 0) & (level.value <= FULL_SCALE))


def _hits(
    counter: HitCounter, occupancy: sampling.Cells | None, kernels: pl.DataFrame
) -> pl.DataFrame:
    start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    cells, valid = counter.cells, counter.valid
    found = sampling.cells_of(cells, start, end)
    short = found.inside == 0
    rows = np.flatnonzero(short)
    first = np.where(short, found.first_over, found.first_inside)
    count = np.where(short, found.over, found.inside)
    length = np.where(valid, cells.end - cells.start, 0)
    integral = _between(cells.value.astype(np.int64) * length, first, count).astype(np.float64)
    covered = _between(length, first, count)
    over = sampling.over_windows(cells.keep(valid), start[rows], end[rows])
    integral[rows], covered[rows] = over.integral, over.covered_ns
    columns = {
        "cells": count,
        "valid_cells": _between(valid.astype(np.int64), first, count),
        "raw_integral": integral,
        "covered_ns": covered,
        "subsample": short,
    }
    nothing = pl.Series([None], dtype=pl.Float64).new_from_index(0, kernels.height)
    if occupancy is None:
        return pl.DataFrame({**columns, "warps_integral": nothing, "warps_ns": nothing})
    means = sampling.over_windows(occupancy, start, end)
    warps = {"warps_integral": means.integral / FULL_SCALE, "warps_ns": means.covered_ns}
    return pl.DataFrame({**columns, **warps})


def _between(
    values: NDArray[np.int64], first: NDArray[np.int64], count: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Sum of `count` values from `first` on."""
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(values)))
    between: NDArray[np.int64] = sums[first + count] - sums[first]
    return between
