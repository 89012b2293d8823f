"""Sampled stretches of idle tensor cores that dequantising work accounts for.

A product of few rows reads weights with its tensor cores idle, and rightly so: high DRAM reads are
starvation only while a consumer waits for dequantisation, or in a fused kernel that reads slower
than memory allows.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import polars as pl

from tracekit.analyses.dequant_stall.periods import DEQUANT, FUSED, work_of
from tracekit.analyses.dequant_stall.tables import STARVATION
from tracekit.model.kernels import KernelKind
from tracekit.numerics import intervals
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.samples import sampling, starvation
from tracekit.trace import Trace
from tracekit.views.counters.metrics import DRAM, TENSOR, counter, metric_names, samples_of
from tracekit.views.device.activity import WORK_KIND
from tracekit.views.device.kernels import kernel_names

__all__ = ["TENSOR", "Sampled", "idle_tensor_cores"]

READ = DRAM[0][0]
SLOW_BELOW = 0.8
"""Share of its bandwidth bound below which a fused kernel counts as starved."""
_PRODUCTS = (KernelKind.GEMM.value, KernelKind.MOE_GEMM.value)


class Sampled(NamedTuple):
    """What samples say.

    Attributes:
        stretches: Frame of `STARVATION`.
        period_ns: Longest sampling period of the two counters; None when not both were sampled
            on every GPU that dequantises.
        known: Whether that is fine enough to see a dequantisation kernel.
    """

    stretches: pl.DataFrame
    period_ns: int | None
    known: bool


def idle_tensor_cores(
    trace: Trace, periods: pl.DataFrame, kernels: pl.DataFrame, rows: pl.DataFrame
) -> Sampled:
    """Find starvation and valleys.

    Args:
        trace: The run.
        periods: Frame of `PERIODS`.
        kernels: Frame of `KERNELS`, whose bounds tell which fused kernels are slow.
        rows: What `work_of` returns for dequantising and fused kernels.
    """
    gpus = rows["gpu"].drop_nulls().unique().sort().to_list()
    sampled = [p for p in (_period_ns(trace, gpu) for gpu in gpus) if p is not None]
    if not sampled or len(sampled) < len(gpus):
        return Sampled(STARVATION.empty(), None, known=False)
    period = max(sampled)
    if period > starvation.COARSEST_PERIOD_NS:
        return Sampled(STARVATION.empty(), period, known=False)
    names = kernel_names(trace).select("name_key", "name")
    rows = work_of(trace, (DEQUANT, FUSED, *_PRODUCTS))
    bounds = kernels.select("name", pl.col("kind").cast(WORK_KIND), "t_min_ns")
    rows = rows.join(names, on="name_key", how="left").join(bounds, on=["name", "kind"], how="left")
    found = [
        part
        for gpu in gpus
        for part in _of_gpu(gpu, _cells(trace, gpu), rows.filter(pl.col("gpu") == gpu), periods)
    ]
    stretches = pl.concat([STARVATION.empty(), *found]).sort("gpu", "start_ns", "what")
    return Sampled(stretches, period, known=True)


def _period_ns(trace: Trace, gpu: int) -> int | None:
    """Longest sampling period of DRAM read and tensor activity; None unless both were sampled."""
    if not {READ, TENSOR} <= metric_names(trace, gpu):
        return None
    read, tensor = (counter(trace, gpu, name) for name in (READ, TENSOR))
    # A partitioned GPU reports zero for counters that its partitions share.
    if read is None or not read.cells.value.any():
        return None
    other = _all_cells(trace, gpu, TENSOR) if tensor is None else tensor.cells
    return max(read.cells.period_ns, other.period_ns)


def _cells(trace: Trace, gpu: int) -> tuple[sampling.Cells, sampling.Cells]:
    """DRAM read and tensor activity in percent."""
    read, tensor = (_all_cells(trace, gpu, name) for name in (READ, TENSOR))
    return read.keep(read.value >= 0), tensor.keep(tensor.value >= 0)


def _all_cells(trace: Trace, gpu: int, name: str) -> sampling.Cells:
    edge = cast("sampling.Edge", trace.settings.get("sampling.edge", "leading"))
    return sampling.cells(*samples_of(trace, gpu, name), edge)


def _of_gpu(
    gpu: int,
    pair: tuple[sampling.Cells, sampling.Cells],
    rows: pl.DataFrame,
    periods: pl.DataFrame,
) -> list[pl.DataFrame]:
    own = periods.filter(pl.col("gpu") == gpu)
    length = pl.col("end_ns") - pl.col("start_ns")
    slow = rows.filter((pl.col("kind") == FUSED) & (pl.col("t_min_ns") < SLOW_BELOW * length))
    waiting = {"dequant period": _union(own), "fused kernel": _union(slow)}
    running = {
        "dequant kernel": _union(rows.filter(pl.col("kind") == DEQUANT)),
        "fused kernel": _union(rows.filter(pl.col("kind") == FUSED)),
        "matrix product": _union(rows.filter(pl.col("kind").is_in(_PRODUCTS))),
    }
    least = 2 * max(c.period_ns for c in pair)
    parts = []
    for what, where, stretches in (
        ("starvation", waiting, starvation.starved(*pair)),
        ("valley", running, starvation.valleys(*pair)),
    ):
        if stretches is not None:
            parts.append(_labelled(gpu, what, stretches, where, least))
    return parts


def _labelled(
    gpu: int, what: str, stretches: Intervals, where: dict[str, Intervals], least_ns: int
) -> pl.DataFrame:
    """Stretches cut to what they may be blamed on, those too short to be seen left out."""
    both = [np.concatenate(side) for side in zip(*where.values(), strict=True)]
    start, end = intervals.intersect(*stretches, *intervals.union(*both))
    long_enough = end - start >= least_ns
    start, end = start[long_enough], end[long_enough]
    names = list(where)
    covered = np.array([intervals.overlap_ns(start, end, *where[name]) for name in names])
    inside = [names[i] for i in covered.argmax(axis=0)] if start.size else []
    frame = pl.DataFrame(
        {"start_ns": start, "end_ns": end, "inside": pl.Series(inside, dtype=pl.String)}
    )
    return STARVATION.conform(frame.with_columns(gpu=pl.lit(gpu), what=pl.lit(what)))


def _union(rows: pl.DataFrame) -> Intervals:
    return intervals.union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
