"""What the frames of `step_budget` say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import count, duration, share

__all__ = ["verdict"]

Row = dict[str, Any]
STEPS_FOR_SURE = 5
NO_STEP_MARKS = 0.6
NAMED = 4
"""So many components are named in a title."""
WORTH_NAMING_FRAC = 0.01
UNKNOWN_FRAC = 0.25
"""A budget of which a larger share is not explained says nothing."""
_WORK = ("kernels", "memcpy", "memset", "graph_trace")
_WORDS = {
    "gemm": "matrix products",
    "dequant": "dequantisation",
    "other": "other kernels",
    "opaque": "opaque graphs",
    "comm_transfer": "communication",
    "comm_wait": "waiting in collectives",
    "comm_unsplit": "communication (includes waiting)",
    "copy": "copies that nothing hides",
    "memset": "memsets",
}
_UNEXPLAINED = ("opaque", "idle: unknown")


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `step_budget`."""
    groups = frames["groups"].filter(pl.col("span_ns") > 0)
    if groups.is_empty():
        return (
            Finding(
                id="step_budget/no-work",
                level=Level.UNKNOWN,
                title="not judged: no device work was recorded",
                missing=(Missing("kernels, copies or graphs of a GPU", _WORK),),
            ),
        )
    largest = groups.sort("span_ns", descending=True, maintain_order=True).row(0, named=True)
    found = [_budget(frames, largest)]
    late = groups.filter(pl.col("n_outliers") > 0).with_columns(
        (pl.col("excess_ns") / pl.col("span_ns")).alias("excess_frac")
    )
    if late.height:
        worst = late.sort("excess_frac", descending=True, maintain_order=True)
        found.append(_outliers(frames, worst.row(0, named=True), params))
    return found


def _own(frame: pl.DataFrame, group: Row) -> pl.DataFrame:
    return frame.filter(
        pl.col("gpu").eq_missing(pl.lit(group["gpu"], pl.Int16))
        & (pl.col("step_group") == group["step_group"])
    )


def _budget(frames: Frames, group: Row) -> Finding:
    """Where the time of the steps that take most of it goes."""
    parts = _own(frames["components"], group).filter(pl.col("where") == "in steps")
    by_size = parts.sort("sum_ns", descending=True, maintain_order=True)
    named = by_size.filter(pl.col("frac") >= WORTH_NAMING_FRAC).head(NAMED)
    listed = ", ".join(
        f"{_WORDS.get(name, name)} {share(frac)}"
        for name, frac in named.select("component", "frac").iter_rows()
    )
    marked = group["n_steps"] > 0
    dark = float(parts.filter(pl.col("component").is_in(_UNEXPLAINED))["frac"].sum())
    title = f"{_what(group)} on {_gpu(group)} goes to {listed}"
    if dark >= WORTH_NAMING_FRAC:
        title += f"; {share(dark)} is not explained"
    return Finding(
        id="step_budget/budget",
        level=Level.OK if dark <= UNKNOWN_FRAC else Level.UNKNOWN,
        title=title,
        missing=tuple(_missing(parts)) if dark > UNKNOWN_FRAC else (),
        metrics=_metrics(group, by_size, dark),
        confidence=Confidence(
            n=group["n_steps"] if marked else STEPS_FOR_SURE,
            n_hi=STEPS_FOR_SURE,
            provenance=1.0 if marked else NO_STEP_MARKS,
            why="every nanosecond counts once; classes follow kernel names"
            if marked
            else "no steps are marked: the whole span is one",
        ),
        caveats=tuple(_caveats(group, parts)),
        scope=(("gpu", str(group["gpu"])), ("step group", group["step_group"])),
        evidence=(
            Evidence("components", {"gpu": group["gpu"]}, (), "Budget by component"),
            Evidence("groups", title="Step groups"),
        ),
    )


def _missing(parts: pl.DataFrame) -> Iterator[Missing]:
    """What would explain the rest."""
    names = set(parts["component"].to_list())
    if "opaque" in names:
        yield Missing("kernels inside CUDA graphs", ("kernels",))
    if "idle: unknown" in names:
        yield Missing("CUDA calls of the host", ("runtime",))


def _gpu(group: Row) -> str:
    return "an unidentified GPU" if group["gpu"] is None else f"GPU {group['gpu']}"


def _what(group: Row) -> str:
    if not group["n_steps"]:
        return f"the whole span of {duration(group['span_ns'])} (no steps are marked)"
    median = duration(group["median_ns"])
    return f"a step of '{group['step_group']}' ({count(group['n_steps'])} of {median})"


def _metrics(group: Row, parts: pl.DataFrame, dark: float) -> tuple[Metric, ...]:
    n = group["n_steps"] or None
    each = [
        Metric(f"{_slug(name)}_frac", frac, "1", n=n, doc=_WORDS.get(name, name))
        for name, frac in parts.select("component", "frac").iter_rows()
        if frac >= WORTH_NAMING_FRAC
    ]
    return (
        Metric("span_median_ns", group["median_ns"], "ns", n=n, doc="a step"),
        *each,
        Metric("between_median_ns", group["between_median_ns"], "ns", doc="to the next step"),
        Metric("explained_frac", 1 - dark, "1", doc="neither opaque nor idle for unknown causes"),
    )


def _slug(name: str) -> str:
    return name.replace(": ", "_").replace(" ", "_").replace("-", "_")


def _caveats(group: Row, parts: pl.DataFrame) -> Sequence[str]:
    found = ["Shares are of sums over steps, which add up; medians of components do not."]
    if group["n_cut"]:
        found.append(
            f"{count(group['n_cut'])} steps overlap the next one: their time ends where that"
            " begins."
        )
    if parts.filter(pl.col("component") == "comm_unsplit").height:
        found.append(
            "Communication includes waiting for late ranks: the recordings of all ranks are needed"
            " to tell them apart."
        )
    return found


def _outliers(frames: Frames, group: Row, params: Any) -> Finding:
    rows = _own(frames["outliers"], group).sort("excess_ns", descending=True, maintain_order=True)
    first = rows.row(0, named=True)
    frac = group["excess_frac"]
    level = Level.WARN if frac >= params.warn_excess_frac else Level.OK
    n, of = count(group["n_outliers"]), count(group["n_steps"])
    component = _WORDS.get(first["component"], first["component"])
    return Finding(
        id="step_budget/outliers",
        level=level,
        title=(
            f"{n} of {of} steps '{group['step_group']}' on {_gpu(group)} take longer than the rest:"
            f" '{first['label']}' {duration(first['span_ns'])} against"
            f" {duration(first['median_ns'])}, {share(min(first['component_frac'], 1.0))} of that"
            f" through {component}"
        ),
        metrics=(
            Metric("excess_frac", frac, "1", n=group["n_outliers"], doc="of the group's time"),
            Metric("excess_ns", group["excess_ns"], "ns", doc="beyond the median"),
            Metric("threshold_ns", group["threshold_ns"], "ns", doc="longer is an outlier"),
        ),
        at_stake_ns=group["excess_ns"],
        at_stake_frac=frac,
        at_stake_of="step time",
        confidence=Confidence(
            n=group["n_steps"], n_hi=STEPS_FOR_SURE, why="spans are measured exactly"
        ),
        advice=(
            "Look at the component that differs in the steps listed: a first step often compiles or"
            " allocates; later ones point to garbage collection, preemption or other requests."
        )
        if level is Level.WARN
        else "",
        scope=(("gpu", str(group["gpu"])), ("step group", group["step_group"])),
        t_range_ns=(first["start_ns"], first["start_ns"] + first["span_ns"]),
        thresholds={"excess_frac": (params.warn_excess_frac, None)},
        evidence=(Evidence("outliers", {"gpu": group["gpu"]}, (), "Outlier steps"),),
    )
