"""Sampled L2 hit rate of kernels: which counter, at which scale, and which samples are valid.

Only cells that lie fully inside a kernel speak for it; where a kernel is shorter than that, cells
are weighed by overlap and the row says so. Samples outside of the scale are invalid: they are
dropped and counted, and their time stays uncovered.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.samples import sampling
from tracekit.trace import Trace, view
from tracekit.views.counters.metrics import HIT_RATES, OCCUPANCY, SAMPLED, metric_names, samples_of
from tracekit.views.device.activity import used_gpus

__all__ = [
    "FULL_SCALE",
    "HIT_RATES",
    "OCCUPANCY",
    "HitCounter",
    "hit_counters",
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
    """Return the value that means 100 %.

    The compute-triage counter of some versions reads half of the truth: then its largest value
    over a whole trace is 50, and busy moments sit exactly there.

    Args:
        values: int64[n], all samples of the counter.
    """
    top = int(values.max()) if values.size else FULL_SCALE
    at_top = int(np.count_nonzero(values == HALF_SCALE))
    return HALF_SCALE if top == HALF_SCALE and at_top >= SAMPLES_AT_TOP else FULL_SCALE


@view("gpu_metrics", of=[used_gpus, *SAMPLED])
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


def resident_warps(trace: Trace, gpu: int) -> sampling.Cells | None:
    """Return the cells of the resident warps, 0..100; None when they were not sampled."""
    name = next((n for n in OCCUPANCY if n in metric_names(trace, gpu)), None)
    if name is None:
        return None
    level = _cells(trace, gpu, name)
    return level.keep((level.value >= 0) & (level.value <= FULL_SCALE))
