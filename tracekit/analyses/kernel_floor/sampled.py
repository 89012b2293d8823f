"""What sampled counters say about kernels of one class or name: means over their pure cells."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.numerics.samples import sampling
from tracekit.numerics.samples.pure_cells import pure_cells
from tracekit.trace import Trace
from tracekit.views.counters.metrics import DRAM, SMS_ACTIVE, TENSOR, metric_names, samples_of

__all__ = ["Counters", "counters", "means"]

Float64: TypeAlias = NDArray[np.float64]
_FULL_SCALE = 100
_SUMMED = ("dram_read_frac", "dram_write_frac")
_NAMES = {
    "dram_read_frac": DRAM[0][0],
    "dram_write_frac": DRAM[0][1],
    "dram_frac": DRAM[1][0],
    "tensor_frac": TENSOR,
    "sms_active_frac": SMS_ACTIVE[0],
}
"""Column to the exact name of its counter."""


class Counters(NamedTuple):
    """The counters of one GPU, those that are sampled at one time together.

    Attributes:
        groups: Cells and, by column, the share of peak in each cell; nan for an invalid sample.
        period_ns: Longest sampling period; None without samples.
    """

    groups: list[tuple[sampling.Cells, dict[str, Float64]]]
    period_ns: int | None


def counters(trace: Trace, gpu: int) -> Counters:
    """Return the counters that limits are read from.

    Args:
        trace: May read ``gpu_metrics`` and ``metric_names``.
        gpu: Index of the GPU.
    """
    edge = trace.settings.sampling_edge
    sampled = metric_names(trace, gpu)
    groups: dict[int, tuple[sampling.Cells, dict[str, Float64]]] = {}
    kept = []  # Arrays that are alive differ in their identity.
    for column, name in _NAMES.items():
        if name not in sampled:
            continue
        times, values = samples_of(trace, gpu, name)
        if not times.size:
            continue
        kept.append(times)
        if id(times) not in groups:
            groups[id(times)] = (sampling.extents(times, edge), {})
        share = np.minimum(values, _FULL_SCALE) / _FULL_SCALE
        groups[id(times)][1][column] = np.where(values < 0, np.nan, share)
    found = [(cells, _known(columns)) for cells, columns in groups.values()]
    periods = [cells.period_ns for cells, columns in found if columns]
    return Counters(found, max(periods, default=None))


def _known(columns: dict[str, Float64]) -> dict[str, Float64]:
    """Leave out DRAM counters that read zero throughout: a partitioned GPU does not show them."""
    dram = [c for c in columns if c.startswith("dram")]
    if any(np.nan_to_num(columns[c]).any() for c in dram):
        return columns
    return {c: values for c, values in columns.items() if c not in dram}


def means(
    found: Counters, work: pl.DataFrame, subject: NDArray[np.int32], n_subjects: int
) -> pl.DataFrame:
    """Return the means over the pure cells of each subject.

    Args:
        found: From `counters`.
        work: Rows of `activity` of the same GPU.
        subject: int32[n], subject of each row; negative for none.
        n_subjects: Number of subjects.

    Returns:
        Frame of n_pure UInt32 and the columns of shares, Float64 (null without pure cells or when
        not sampled); a row a subject.
    """
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    shares: dict[str, Float64] = {}
    n_pure = np.zeros(n_subjects, np.int64)
    for cells, columns in found.groups:
        whose, which = pure_cells(start, end, subject, n_subjects, (cells.start, cells.end))
        for column, values in columns.items():
            at = values[which]
            valid = ~np.isnan(at)
            n = np.bincount(whose[valid], minlength=n_subjects)
            total = np.bincount(whose[valid], weights=at[valid], minlength=n_subjects)
            shares[column] = np.divide(total, n, out=np.full(n_subjects, np.nan), where=n > 0)
            n_pure = np.maximum(n_pure, n)
    if all(column in shares for column in _SUMMED):
        shares["dram_frac"] = shares[_SUMMED[0]] + shares[_SUMMED[1]]
    frame: dict[str, Any] = {"n_pure": pl.Series(n_pure, dtype=pl.UInt32)}
    for column in _NAMES:
        known = shares.get(column, np.full(n_subjects, np.nan))
        frame[column] = pl.Series(known, dtype=pl.Float64).fill_nan(None)
    return pl.DataFrame(frame)
