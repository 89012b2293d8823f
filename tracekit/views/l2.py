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
from tracekit.views.activity import activity
from tracekit.views.attribution import attribution
from tracekit.views.metrics import metric_names
from tracekit.views.ranges import ranges

__all__ = ["HIT_RATES", "OCCUPANCY", "HitCounter", "hit_counters", "kernel_hits"]

HIT_RATES = (
    "L2 Sector Hit Rate from L1 [Ratio %]",
    "L2 Hit Rate from L1 [Ratio %]",
    "L2 Sector Hit Rate [Ratio %]",
    "L2 Hit Rate [Ratio %]",
)
"""Counters of the share of L2 look-ups that hit, best first."""
OCCUPANCY = ("SM Warps Active [Throughput %]", "Compute Warps in Flight [Throughput %]")
"""Counters of resident warps as a share of the most that fit, best first."""
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


@view("gpu_metrics", "metric_names", of=[activity])
def hit_counters(trace: Trace) -> tuple[HitCounter, ...]:
    """Return the L2 hit-rate counter of each GPU that has one with any sample."""
    found = []
    for gpu in activity(trace)["gpu"].drop_nulls().unique().sort():
        name = next((n for n in HIT_RATES if n in metric_names(trace, gpu)), None)
        cells = None if name is None else _cells(trace, gpu, name)
        if name is not None and cells is not None and cells.value.size:
            scale = full_scale_of(cells.value.astype(np.int64))
            valid = (cells.value >= 0) & (cells.value <= scale)
            found.append(HitCounter(gpu, name, cells, valid, scale))
    return tuple(found)


def _cells(trace: Trace, gpu: int, name: str) -> sampling.Cells:
    samples = trace.samples([name]).filter(pl.col("gpu") == gpu)
    edge = cast("sampling.Edge", trace.settings.get("sampling.edge", "leading"))
    return sampling.cells(samples["t_ns"].to_numpy(), samples["value"].to_numpy(), edge)


KERNEL_HITS = pl.Schema(
    {
        "gpu": pl.Int16(),
        "layer": pl.Int32(),
        "name_key": pl.UInt32(),
        "kind": pl.String(),
        "label": pl.String(),
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


@view(of=[hit_counters, activity, attribution, ranges])
def kernel_hits(trace: Trace) -> pl.DataFrame:
    """Return what the L2 hit-rate samples say about every kernel of a sampled GPU.

    Returns:
        One row a kernel execution, by gpu and start: gpu, layer (null when unknown), name_key,
        kind, label (text of its range), start_ns, end_ns, launch_start_ns, cells (fully inside;
        where there is none, those that overlap), valid_cells, raw_integral (counter value times
        covered ns of valid cells), covered_ns, subsample (no cell lies inside, weighed by overlap
        instead), warps_integral (resident-warp share times ns) and warps_ns.
    """
    work = activity(trace).hstack(
        attribution(trace).select("layer", "launch_start_ns", "range", "reason")
    )
    kernels = work.filter(pl.col("source") == "kernel")
    texts = ranges(trace).select("text").with_row_index("range")
    kernels = kernels.join(
        texts.select(pl.col("range").cast(pl.Int64), label="text"),
        on="range",
        how="left",
        maintain_order="left",
    )
    parts = [pl.DataFrame(schema=KERNEL_HITS)]
    for counter in hit_counters(trace):
        own = kernels.filter(pl.col("gpu") == counter.gpu)
        parts.append(own.hstack(_hits(trace, counter, own)).select(KERNEL_HITS.names()))
    return pl.concat(part.cast(KERNEL_HITS) for part in parts)


def _hits(trace: Trace, counter: HitCounter, kernels: pl.DataFrame) -> pl.DataFrame:
    start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    valid = counter.cells.keep(counter.valid)
    inside, n_valid = sampling.inside_windows(valid, start, end)
    _, n_inside = sampling.inside_windows(counter.cells, start, end)
    over = sampling.over_windows(valid, start, end)
    short = n_inside == 0
    n_over, n_valid_over = (_overlapping(cells, start, end) for cells in (counter.cells, valid))
    warps = next((n for n in OCCUPANCY if n in metric_names(trace, counter.gpu)), None)
    columns = {
        "cells": np.where(short, n_over, n_inside),
        "valid_cells": np.where(short, n_valid_over, n_valid),
        "raw_integral": np.where(short, over.integral, inside.integral),
        "covered_ns": np.where(short, over.covered_ns, inside.covered_ns),
        "subsample": short,
    }
    nothing = pl.Series([None] * kernels.height, dtype=pl.Float64)
    if warps is None:
        return pl.DataFrame({**columns, "warps_integral": nothing, "warps_ns": nothing})
    level = _cells(trace, counter.gpu, warps)
    level = level.keep((level.value >= 0) & (level.value <= FULL_SCALE))
    means = sampling.over_windows(level, start, end)
    return pl.DataFrame(
        {
            **columns,
            "warps_integral": means.integral / FULL_SCALE,
            "warps_ns": means.covered_ns,
        }
    )


def _overlapping(
    cells: sampling.Cells, start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Number of cells that share time with each window."""
    first = np.searchsorted(cells.end, start, side="right")
    stop = np.searchsorted(cells.start, end, side="left")
    count: NDArray[np.int64] = np.maximum(stop - first, 0).astype(np.int64)
    return count
