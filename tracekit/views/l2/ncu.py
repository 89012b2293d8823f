"""What Nsight Compute counted, and which kernels of the timeline it is of.

Both come from different runs. A kernel of the timeline takes the mean of the profiled executions of
its layer, name, grid and block; where layers do not decide, of the one at the same place in launch
order if both ran it equally often, else of all executions of that name and shape.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tracekit.model.catalog import CATALOG
from tracekit.model.ncu import BARE_NAME, SHAPE, join_timeline, miss_share
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity
from tracekit.views.device.kernels import kernel_names, shapes
from tracekit.views.launches.attribution import attribution

__all__ = ["HOW", "Matched", "matched", "profiled"]

HOW = ("layer", "order", "shape")
"""Ways in which a kernel of the timeline is matched, surest first."""
_KEY = ["bare", *SHAPE]
_COUNTS = ("misses", "lookups", "all_misses", "all_lookups", "dram_read_bytes")
_RAW = {f.name: f.raw[0] for f in CATALOG["ncu_kernels"].fields}


class Matched(NamedTuple):
    """The kernels of the timeline matched with those of Nsight Compute.

    Attributes:
        kernels: One row a kernel execution of the timeline, in order of start: gpu, layer, name,
            kind, bare, grid_x .. block_z, start_ns, launch_start_ns, time_ns, how (`HOW`, null
            when it was not profiled) and means of the executions that it stands for: misses,
            lookups, all_misses, all_lookups, dram_read_bytes (Float64, null when not counted).
        table: One row a name and shape; see `tracekit.model.ncu.join_timeline`.
    """

    kernels: pl.DataFrame
    table: pl.DataFrame

    def time_frac(self, how: str | None = None) -> float | None:
        """Return the share of kernel time that is matched, in one way or (None) in any."""
        total = int(self.kernels["time_ns"].sum())
        way = pl.col("how").is_not_null() if how is None else pl.col("how") == how
        return int(self.kernels.filter(way)["time_ns"].sum()) / total if total else None


@view
def profiled(trace: Trace) -> pl.DataFrame:
    """Return the profiled kernel executions.

    Returns:
        Frame of the catalog table plus bare (name without template and return type), misses and
        lookups of the L2 by the best counters, miss_source, inconsistent (misses exceeded
        look-ups, so another counter was taken), all_misses and all_lookups (any source of
        requests), occupancy_frac and occupancy_gap_pp (theoretical minus achieved).
    """
    rows = trace.frame("ncu_kernels")
    found = [
        miss_share({_RAW[name]: value for name, value in row.items() if name in _RAW})
        for row in rows.select(c for c in rows.columns if c.startswith("l2_")).iter_rows(named=True)
    ]
    lookups = pl.Series("lookups", [f.lookups for f in found], dtype=pl.Float64)
    share = pl.Series("share", [f.share for f in found], dtype=pl.Float64)
    sectors = pl.col("l2_sectors")
    rate = pl.when(pl.col("l2_hit_pct").is_between(0, 100)).then(1 - pl.col("l2_hit_pct") / 100)
    counted = pl.when(pl.col("l2_misses") <= sectors).then("l2_misses")
    everything = pl.coalesce(rate * sectors, counted)
    return rows.with_columns(
        pl.col("name").str.extract(BARE_NAME, 1).alias("bare"),
        lookups,
        (share * lookups).alias("misses"),
        pl.Series("miss_source", [f.source for f in found], dtype=pl.String),
        pl.Series("inconsistent", [f.inconsistent for f in found], dtype=pl.Boolean),
        everything.alias("all_misses"),
        pl.when(everything.is_not_null()).then(sectors).alias("all_lookups"),
        (pl.col("warps_pct") / 100).alias("occupancy_frac"),
        (pl.col("most_warps_pct") - pl.col("warps_pct")).alias("occupancy_gap_pp"),
    )


@view
def matched(trace: Trace) -> Matched:
    """Return the timeline matched with Nsight Compute; without a timeline its table alone."""
    work = activity(trace).hstack(attribution(trace).select("layer", "launch_start_ns"))
    work = work.filter(pl.col("source") == "kernel")
    rows = (
        work.hstack(shapes(trace).of(work["row"]))
        .join(kernel_names(trace).select("name_key", "name"), on="name_key", how="left")
        .with_columns(
            pl.col("name").str.extract(BARE_NAME, 1).alias("bare"),
            (pl.col("end_ns") - pl.col("start_ns")).alias("time_ns"),
        )
        .sort("start_ns", "gpu", "row", nulls_last=True)
    )
    counted = profiled(trace)
    rows = _with_way(rows, counted)
    columns = [
        "gpu",
        "layer",
        "name",
        "kind",
        *_KEY,
        "start_ns",
        "launch_start_ns",
        "time_ns",
        "how",
    ]
    return Matched(rows.select(*columns, *_COUNTS), join_timeline(rows, counted))


def _with_way(rows: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """Add how each kernel is matched, and the means of what it is matched with."""
    nth = pl.int_range(pl.len()).over(_KEY).alias("nth")
    rows = rows.with_columns(nth, pl.len().over(_KEY).alias("n_ran"))
    counted = counted.sort("report", "launch").with_columns(
        nth, pl.len().over(_KEY).alias("n_counted"), pl.lit(value=True).alias("found")
    )
    by_layer = _means(counted.drop_nulls("layer"), ["layer", *_KEY])
    same = counted.select(*_KEY, "n_counted").unique()
    by_order = counted.select(*_KEY, "nth", "found", *_COUNTS)
    rows = rows.join(same, on=_KEY, how="left", nulls_equal=True, maintain_order="left")
    ways = {
        "layer": (by_layer, ["layer", *_KEY], pl.lit(value=True)),
        "order": (by_order, [*_KEY, "nth"], pl.col("n_ran") == pl.col("n_counted")),
        "shape": (_means(counted, _KEY), _KEY, pl.lit(value=True)),
    }
    for way, (frame, key, holds) in ways.items():
        renamed = frame.rename({c: f"{c}_{way}" for c in ("found", *_COUNTS)})
        rows = rows.join(
            renamed, on=key, how="left", nulls_equal=way != "layer", maintain_order="left"
        ).with_columns((pl.col(f"found_{way}").is_not_null() & holds).alias(f"is_{way}"))
    chosen = [
        pl.coalesce(pl.when(f"is_{way}").then(pl.lit(way)) for way in HOW).alias("how"),
        *(_first(column) for column in _COUNTS),
    ]
    return rows.with_columns(chosen)


def _first(column: str) -> pl.Expr:
    """The value of the surest way, which may be null: a counter that was not collected."""
    found = pl.when("is_layer").then(f"{column}_layer").when("is_order").then(f"{column}_order")
    return found.when("is_shape").then(f"{column}_shape").alias(column)


def _means(counted: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Means over executions; null where one of them lacks the counter."""
    return counted.group_by(key).agg(
        pl.lit(value=True).first().alias("found"),
        *(pl.when(pl.col(c).null_count() == 0).then(pl.col(c).mean()).alias(c) for c in _COUNTS),
    )
