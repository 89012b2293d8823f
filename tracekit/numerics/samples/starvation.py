"""Stretches in which tensor cores idle, from sampled DRAM and tensor activity.

With DRAM reads high the tensor cores wait for data (*starvation*); with DRAM reads low too, neither
moves (*valley*): conversion or latency binds. A memory-bound kernel is starved by nature, so a
stretch is evidence only together with what ran in it.
"""

from __future__ import annotations

import numpy as np

from tracekit.numerics.intervals import Intervals
from tracekit.numerics.samples.sampling import Cells, over_windows, runs

HIGH_READ_PCT = 60.0
LOW_READ_PCT = 30.0
IDLE_TENSOR_PCT = 10.0
COARSEST_PERIOD_NS = 20_000


def starved(read_pct: Cells, tensor_pct: Cells) -> Intervals | None:
    """Find where DRAM reads are high and tensor cores idle.

    Args:
        read_pct: Cells of DRAM read activity, 0..100.
        tensor_pct: Cells of tensor activity, 0..100, of the same device.

    Returns:
        A union in ns of stretches of at least two sampling periods; None (unknown) when the
        period is longer than 20 us, which a dequantisation kernel would slip through.
    """
    return _idle_tensor(read_pct, tensor_pct, HIGH_READ_PCT, np.inf)


def valleys(read_pct: Cells, tensor_pct: Cells) -> Intervals | None:
    """Find where neither DRAM reads nor tensor cores are active.

    Args:
        read_pct: Cells of DRAM read activity, 0..100.
        tensor_pct: Cells of tensor activity, 0..100, of the same device.

    Returns:
        As `starved`. Only the part during which a kernel runs is a valley; intersect with it.
    """
    return _idle_tensor(read_pct, tensor_pct, -np.inf, LOW_READ_PCT)


def _idle_tensor(read: Cells, tensor: Cells, at_least: float, at_most: float) -> Intervals | None:
    if max(read.period_ns, tensor.period_ns) > COARSEST_PERIOD_NS:
        return None
    tensor_pct = over_windows(tensor, read.start, read.end).mean
    wanted = (read.value >= at_least) & (read.value <= at_most) & (tensor_pct <= IDLE_TENSOR_PCT)
    return runs(read, wanted)
