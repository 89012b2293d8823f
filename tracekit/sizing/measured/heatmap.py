"""Utilisation of memory and links of every GPU over time."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.errors import InputError
from tracekit.trace import Trace
from tracekit.views.counters import metrics
from tracekit.views.counters.levels import means_over
from tracekit.views.device.hardware import gpu_hardware, peak_bytes_per_s

__all__ = ["CELL", "TOTAL", "Heatmap", "heatmap"]

_NAMES = re.compile(r"^(DRAM (?:Read |Write )?|NVLink (?:RX|TX) .*|PCIe (?:RX|TX) )")
_GROUPS = {
    "DRAM": re.compile(r"^DRAM "),
    "NVLink RX": re.compile(r"^NVLink RX "),
    "NVLink TX": re.compile(r"^NVLink TX "),
    "PCIe RX": re.compile(r"^PCIe RX "),
    "PCIe TX": re.compile(r"^PCIe TX "),
}
_MOST_BINS = 20_000
_PERIODS = 10
"""Sampling periods that a bin must hold, so that no single sample makes its mean."""
CELL = pl.Schema(
    {
        "gpu": pl.Int64(),
        "bin_start_ns": pl.Int64(),
        "bin_end_ns": pl.Int64(),
        "metric": pl.String(),
        "mean_pct": pl.Float64(),
        "coverage_frac": pl.Float64(),
    }
)
"""Columns of the cells: mean_pct is null where less than half of the bin is covered."""
TOTAL = pl.Schema(
    {
        "gpu": pl.Int64(),
        "group": pl.String(),
        "mean_frac": pl.Float64(),
        "busiest_frac": pl.Float64(),
        "peak_bytes_per_s": pl.Float64(),
        "mean_bytes_per_s": pl.Float64(),
        "coverage_frac": pl.Float64(),
    }
)
"""Columns of the totals: a group's counters added up; rates are null without a known peak."""


class Heatmap(NamedTuple):
    """Cells and totals.

    Attributes:
        cells: Frame of `CELL`, one row a GPU, counter and bin.
        totals: Frame of `TOTAL`, one row a GPU and group.
        bin_ns: Length of a bin.
        silent: Counters that read zero throughout, as (gpu, name): idle, or shared counters of a
            partitioned GPU.
        without: GPUs without any such counter.
    """

    cells: pl.DataFrame
    totals: pl.DataFrame
    bin_ns: int
    silent: tuple[tuple[int, str], ...]
    without: tuple[int, ...]


def heatmap(trace: Trace, *, bin_ns: int | None = None, bins: int = 200) -> Heatmap:
    """Return time-weighted means of memory and link counters in bins.

    Args:
        trace: May read ``gpu_metrics`` and ``metric_names``.
        bin_ns: Length of a bin; at least ten sampling periods. None for `bins` of equal length,
            or as many as that allows.
        bins: Bins over the sampled time.

    Raises:
        InputError: No such counter was sampled, or `bin_ns` is too short or too long a list.
    """
    found: dict[tuple[int, str], metrics.Counter] = {}
    silent, without = [], []
    for gpu in trace.gpus:
        names = sorted(n for n in metrics.metric_names(trace, gpu.index) if _NAMES.match(n))
        names = [n for n in names if n.endswith("[Throughput %]")]
        if not names:
            without.append(gpu.index)
        for name in names:
            counter = metrics.counter(trace, gpu.index, name)
            if counter is None:
                silent.append((gpu.index, name))
            else:
                found[gpu.index, name] = counter
    if not found:
        message = "no counter of DRAM, NVLink or PCIe with a value was sampled"
        raise InputError(message, hint="record with --gpu-metrics-devices=all")
    starts, ends = _bins(found, bin_ns, bins)
    return Heatmap(
        cells=_cells(found, starts, ends),
        totals=_totals(trace, found, starts, ends),
        bin_ns=int(ends[0] - starts[0]),
        silent=tuple(silent),
        without=tuple(without),
    )


def _bins(
    found: dict[tuple[int, str], metrics.Counter], bin_ns: int | None, bins: int
) -> tuple[metrics.Int64, metrics.Int64]:
    low = min(int(c.cells.start[0]) for c in found.values())
    high = max(int(c.cells.end[-1]) for c in found.values())
    least = _PERIODS * max(c.cells.period_ns for c in found.values())
    if bin_ns is not None and bin_ns < least:
        message = f"a bin of {bin_ns} ns is shorter than ten sampling periods, {least} ns"
        raise InputError(message)
    length = max(least, -(-(high - low) // bins)) if bin_ns is None else bin_ns
    number = -(-(high - low) // length)
    if number > _MOST_BINS:
        message = f"{number} bins are too many"
        raise InputError(message, hint=f"at most {_MOST_BINS}: choose longer bins or a window")
    starts = low + length * np.arange(number, dtype=np.int64)
    return starts, starts + length


def _cells(
    found: dict[tuple[int, str], metrics.Counter], starts: metrics.Int64, ends: metrics.Int64
) -> pl.DataFrame:
    frames = []
    for (gpu, name), counter in found.items():
        mean, coverage = means_over([counter], starts, ends)
        frames.append(
            pl.DataFrame(
                {
                    "gpu": pl.repeat(gpu, starts.size, dtype=pl.Int64, eager=True),
                    "bin_start_ns": starts,
                    "bin_end_ns": ends,
                    "metric": pl.repeat(name, starts.size, dtype=pl.String, eager=True),
                    "mean_pct": pl.Series(100 * mean).fill_nan(None),
                    "coverage_frac": coverage,
                }
            )
        )
    return pl.concat(frames).cast(CELL)


def _totals(
    trace: Trace,
    found: dict[tuple[int, str], metrics.Counter],
    starts: metrics.Int64,
    ends: metrics.Int64,
) -> pl.DataFrame:
    rows = []
    for gpu in trace.gpus:
        row = gpu_hardware(gpu)
        link = None if row is None or row.link_both_gb_per_s is None else row.link_one_way_gb_per_s
        peaks = {"DRAM": peak_bytes_per_s(trace, gpu)}
        peaks |= {f"NVLink {way}": None if link is None else link * 1e9 for way in ("RX", "TX")}
        for group, pattern in _GROUPS.items():
            counters = [c for (g, n), c in found.items() if g == gpu.index and pattern.match(n)]
            if not counters:
                continue
            mean, _ = means_over(counters, starts, ends)
            # GPUs may be sampled for different times: each over its own.
            own = counters[0].cells
            whole, covered = means_over(counters, own.start[:1], own.end[-1:])
            level = None if np.isnan(whole[0]) else float(whole[0])
            peak = peaks.get(group)
            rows.append(
                {
                    "gpu": gpu.index,
                    "group": group,
                    "mean_frac": level,
                    "busiest_frac": None if np.isnan(mean).all() else float(np.nanmax(mean)),
                    "peak_bytes_per_s": peak,
                    "mean_bytes_per_s": None if level is None or peak is None else level * peak,
                    "coverage_frac": float(covered[0]),
                }
            )
    return pl.DataFrame(rows, schema=TOTAL)
