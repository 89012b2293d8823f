"""What separate dequantisation costs besides its own time: gaps, and slower matrix products."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import KernelKind
from tracekit.numerics.rows import overlapping
from tracekit.trace import Trace, view
from tracekit.views.device.activity import WORK_KIND, activity, queues
from tracekit.views.device.kernels import shapes
from tracekit.views.idle.timelines import timelines
from tracekit.views.launches.attribution import attribution, steps

__all__ = ["consumer_losses"]

_KINDS = WORK_KIND.categories.to_numpy()
_IS_DEQUANT = np.isin(_KINDS, [KernelKind.DEQUANT.value])
_IS_KERNEL = np.isin(_KINDS, [k.value for k in KernelKind])
_IS_PRODUCT = np.isin(_KINDS, [k.value for k in KernelKind if k.is_gemm or k == "attention"])

_LIKE = ["timeline", "name_key", "shape"]
_CONTROL = {"timeline": pl.UInt16, "name_key": pl.UInt32, "shape": pl.UInt32} | {
    "control_ns": pl.Float64
}


@view
def consumer_losses(trace: Trace) -> dict[tuple[int, str], tuple[float, float]]:
    """Return what the consumers of separately dequantised weights lose, by timeline and group.

    Returns:
        ``(gaps_ns, slower_ns)``, medians over steps: time from each dequantisation to the kernel
        that follows it, and by how much these take longer than the median kernel of the same name,
        grid and block in steps of a group without dequantisation (0 where there is none to compare
        with).
    """
    work = activity(trace)
    kind, queue = work["kind"].to_physical().to_numpy(), work["queue"].to_numpy()
    if not _IS_DEQUANT[kind].any():
        return {}
    at, then = overlapping.followed(queue, kind, _IS_DEQUANT, _IS_KERNEL, queues(trace).height)
    pairs = then >= 0
    pairs[pairs] = _IS_PRODUCT[kind[then[pairs]]]
    at, then = at[pairs], then[pairs]
    start, end = (work[c].to_numpy() for c in ("start_ns", "end_ns"))
    fed = _products(trace, then).with_columns(
        pl.Series("gap_ns", np.maximum(start[then] - end[at], 0))
    )
    fed = fed.drop_nulls("group")
    fed = fed.join(_controls(trace, fed), on=_LIKE, how="left", maintain_order="left")
    slower = (pl.col("time_ns") - pl.col("control_ns")).clip(lower_bound=0).fill_null(0.0)
    per_step = fed.group_by("timeline", "group", "step").agg(
        pl.col("gap_ns").sum(), slower.sum().alias("slower_ns")
    )
    typical = per_step.group_by("timeline", "group").agg(
        pl.col("gap_ns").median(), pl.col("slower_ns").median()
    )
    names = steps(trace)["group"].unique().sort().to_list()
    return {
        (line, names[group]): (gap, loss)
        for line, group, gap, loss in typical.sort("timeline", "group").iter_rows()
    }


def _controls(trace: Trace, fed: pl.DataFrame) -> pl.DataFrame:
    """Median time of like kernels in steps of groups without dequantisation."""
    n_groups = steps(trace)["group"].n_unique()
    if fed["group"].n_unique() == n_groups:
        return pl.DataFrame(schema=_CONTROL)
    kind = activity(trace)["kind"].to_physical().to_numpy()
    products = _products(trace, np.flatnonzero(_IS_PRODUCT[kind])).drop_nulls("group")
    with_dequant = fed.select("timeline", "group").unique()
    control = products.join(with_dequant, on=["timeline", "group"], how="anti")
    return control.group_by(_LIKE).agg(pl.col("time_ns").median().alias("control_ns"))


def _products(trace: Trace, at: NDArray[np.int64]) -> pl.DataFrame:
    """Some rows of `activity`: what they are, and their step and its group (null outside)."""
    rows = pl.Series(at.astype(np.uint32))
    own = activity(trace).select("start_ns", "end_ns", "name_key", "row")[rows]
    of_step = steps(trace)["group"]
    groups = of_step.unique().sort().to_list()
    code = of_step.replace_strict(groups, range(len(groups)), return_dtype=pl.UInt32)
    line = np.zeros(activity(trace).height, np.uint16)
    for number, one in enumerate(timelines(trace)):
        line[one.rows] = number
    step = attribution(trace)["step"].gather(rows)
    return own.select(
        pl.Series("timeline", line[at]),
        step.alias("step"),
        code.gather(step).alias("group"),
        "name_key",
        pl.Series("shape", shapes(trace).row[own["row"].to_numpy()]),
        (pl.col("end_ns") - pl.col("start_ns")).alias("time_ns"),
    )
