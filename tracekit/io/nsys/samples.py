"""Samples of hardware counters, read and put in the order that views want."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

import numpy as np
import polars as pl

from tracekit.io.nsys.reader import ReportReader
from tracekit.io.source import RowFilter
from tracekit.numerics.buckets import by_kind

__all__ = ["CounterOf", "by_counter", "metric_rows", "no_samples"]

CounterOf: TypeAlias = Callable[[int | None, int | None], int | None]
"""Device type and metric id to the number of the counter among the names in order; None for
counters that were not asked for."""


def metric_rows(
    reader: ReportReader,
    metrics: Collection[str],
    window: tuple[int, int] | None = None,
    types: Collection[int] | None = None,
) -> tuple[pl.DataFrame, CounterOf]:
    """Read the samples of the named counters, filtered while reading.

    Args:
        reader: The report.
        metrics: Exact names.
        window: Half-open time of this report, ns; None for all.
        types: Device types to read; None for all.

    Returns:
        The canonical frame ``gpu_metrics``, which may hold rows of further counters, and what
        tells them apart.
    """
    names = reader.load("metric_names").filter(pl.col("name").is_in(list(metrics)))
    ids = tuple(sorted(set(names["metric"])))
    where = [RowFilter("metricId", isin=ids)]
    if window is not None:
        where.append(RowFilter("timestamp", low=window[0], high=window[1]))
    if types is not None:
        where.append(RowFilter("typeId", isin=tuple(sorted(types))))
    rows = reader.load("gpu_metrics", where)
    number = {name: place for place, name in enumerate(sorted(metrics))}
    known = names.select("type_id", "metric", "name").rows()[::-1]  # the first one counts
    if names["type_id"].null_count():
        # A report without device types (older exports) has one name list for all devices.
        plain = {metric: number[name] for _, metric, name in known}
        return rows, lambda _, metric: plain.get(metric)
    full = {(type_id, metric): number[name] for type_id, metric, name in known}
    return rows, lambda type_id, metric: full.get((type_id, metric))


def no_samples(metrics: Collection[str]) -> pl.DataFrame:
    """Return no sample of some counters.

    Args:
        metrics: Exact names.
    """
    nothing = np.empty(0, np.int64)
    return _frame(0, sorted(metrics), np.zeros(len(metrics), np.int64), nothing, nothing)


def by_counter(rows: pl.DataFrame, report: int, metrics: Collection[str]) -> pl.DataFrame:
    """Sort the samples of a report by GPU, name and time.

    Args:
        rows: kind (``(gpu + 1) * len(metrics)`` and the number of the name, the GPU -1 where it is
            unknown), t_ns, value.
        report: Index of the report.
        metrics: Exact names.

    Returns:
        Frame of report, gpu, name (an Enum of the names in order), t_ns, value. A null GPU comes
        first; rows that agree in all three keep their order.
    """
    kinds = rows["kind"].to_numpy().astype(np.uint32)
    n_kinds = (int(kinds.max(initial=0)) // max(len(metrics), 1) + 1) * len(metrics)
    times, values = (np.ascontiguousarray(rows[c].to_numpy()) for c in ("t_ns", "value"))
    return _frame(report, sorted(metrics), *by_kind(kinds, times, values, n_kinds))


def _frame(
    report: int,
    names: list[str],
    count: np.ndarray[tuple[int], np.dtype[np.int64]],
    times: np.ndarray[tuple[int], np.dtype[np.int64]],
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> pl.DataFrame:
    index = np.arange(count.size)
    gpu = pl.Series("gpu", np.repeat((index // max(len(names), 1) - 1).astype(np.int16), count))
    if count[: len(names)].any():
        gpu = gpu.replace(-1, None)
    name = pl.Series("name", names, dtype=pl.Enum(names))
    place = pl.Series(np.repeat((index % max(len(names), 1)).astype(np.uint32), count))
    samples = {"gpu": gpu, "name": name.gather(place), "t_ns": times, "value": values}
    return pl.DataFrame(samples).select(pl.lit(report, pl.UInt16).alias("report"), *samples)
