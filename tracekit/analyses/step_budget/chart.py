"""What `step_budget` has to show: where the time of a step goes, as a waterfall."""

from __future__ import annotations

import polars as pl

from tracekit.model.chart import Axis, Bar, Chart, Panel, Role, Rows
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import count_of, duration, share

__all__ = ["chart"]

MOST_GROUPS = 6
_ROLES = {
    "gemm": Role.MATRIX_PRODUCT,
    "attention": Role.ATTENTION,
    "dequant": Role.DEQUANTISATION,
    "other": Role.OTHER_COMPUTE,
    "opaque": Role.OPAQUE,
    "comm_transfer": Role.COMMUNICATION,
    "comm_wait": Role.WAIT,
    "comm_unsplit": Role.COMMUNICATION,
    "copy": Role.COPY,
    "memset": Role.COPY,
}


def chart(frames: Frames) -> Chart | None:
    """Return a waterfall of each group of steps, those that take most time first."""
    groups = frames["groups"].filter(pl.col("span_ns") > 0)
    groups = groups.sort("span_ns", descending=True, maintain_order=True).head(MOST_GROUPS)
    if groups.is_empty():
        return None
    panels = [
        _waterfall(frames["components"], gpu, group, n, span)
        for gpu, group, n, span in groups.select(
            "gpu", "step_group", "n_steps", "span_ns"
        ).iter_rows()
    ]
    caption = (
        "Every nanosecond counts once, for the first of these that runs; where nothing runs, for"
        " why nothing does. The bars end where the steps do."
    )
    return Chart("Where the time of a step goes", caption, tuple(panels))


def _waterfall(
    components: pl.DataFrame, gpu: int | None, group: str, n_steps: int, span_ns: int
) -> Panel:
    own = components.filter(
        pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16))
        & (pl.col("step_group") == group)
        & (pl.col("where") == "in steps")
        & (pl.col("sum_ns") > 0)
    )
    bars, left = [], 0
    for at, (name, time) in enumerate(own.select("component", "sum_ns").iter_rows()):
        tip = f"{name}: {duration(time)}"
        if n_steps:
            tip += f", {duration(time / n_steps)} a step"
        role = _ROLES.get(name, Role.IDLE)
        start, end = left / span_ns, (left + time) / span_ns
        bars.append(Bar(at, start, end, role, tip, share(time / span_ns)))
        left += time
    where = "GPU unknown" if gpu is None else f"GPU {gpu}"
    steps = f", {count_of(n_steps, 'step')}" if n_steps else ""
    return Panel(
        f"{where}: {group}{steps}",
        Axis("share of step time", "1", low=0, high=1),
        Rows(tuple(own["component"])),
        tuple(bars),
    )
