"""The frames of `idle_gaps`."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from tracekit.analyses.idle_gaps import tables
from tracekit.numerics.idle import causes
from tracekit.numerics.idle.waterfall import by_cause
from tracekit.trace import Trace
from tracekit.views.idle.budget import budget
from tracekit.views.idle.capture import ending
from tracekit.views.idle.copies import copy_sites, device_time
from tracekit.views.idle.families import FAMILIES, FLOOR, family
from tracekit.views.idle.gaps import gap_rows
from tracekit.views.idle.host_evidence import host_evidence
from tracekit.views.idle.parts import idle_parts
from tracekit.views.idle.sites import sites
from tracekit.views.idle.timelines import timelines
from tracekit.views.idle.windows import BETWEEN, WHOLE
from tracekit.views.launches.attribution import steps
from tracekit.views.whatif.predictions import predictions
from tracekit.views.whatif.step_facts import ONE_OFF

__all__ = ["compute"]

_ALL_TIME = (np.array([-(1 << 62)]), np.array([1 << 62]))
_MOST_DRAWN = 8_000
"""A timeline draws no more boxes of a track."""
_PAUSE = 10
"""Time between two steps of more than so many steps is a pause: nothing was there to do."""
_JUDGED = ~np.isin(causes.CAUSES, ("profiler", *FLOOR))
_IS_ONE_OFF = np.isin(causes.CAUSES, ONE_OFF)
_OF_FAMILY = {name: np.isin(causes.CAUSES, own) for name, own in FAMILIES.items()}


def compute(trace: Trace, params: Any) -> dict[str, pl.DataFrame]:
    """Return the frames of `idle_gaps`."""
    gpus, families = _gpus(trace), _families(trace)
    named = families.with_columns(_indices(trace).gather(families["timeline"]))
    return {
        "gpus": gpus,
        "families": tables.FAMILIES.conform(named),
        "causes": _causes(trace),
        "sites": _sites(trace, gpus, families),
        "longest": _longest(trace),
        "copies": _copies(trace, families, params.host_link_gbps),
        "gains": _gains(trace),
        "summary": _summary(trace),
    }


def _indices(trace: Trace) -> pl.Series:
    return pl.Series("gpu", [line.gpu for line in timelines(trace)], pl.Int16)


def _gpus(trace: Trace) -> pl.DataFrame:
    times = device_time(trace)
    frame = pl.DataFrame(
        {
            "gpu": _indices(trace),
            "span_ns": [t.span_ns for t in times],
            "idle_ns": [t.span_ns - t.busy_ns for t in times],
            "copy_only_ns": [t.copy_only_ns for t in times],
            "compute_ns": [t.compute_ns for t in times],
            "opaque_ns": [t.opaque_ns for t in times],
            "n_work": [t.n_work for t in times],
            "n_with_launch": [t.n_with_launch for t in times],
        }
    )
    shares = [
        (pl.col(f"{c}_ns") / pl.col("span_ns")).alias(f"{c}_frac") for c in ("idle", "copy_only")
    ]
    return tables.GPUS.conform(frame.with_columns(shares))


def _causes(trace: Trace) -> pl.DataFrame:
    """Idle time by cause: of the whole span, inside the steps of each group, and between them."""
    if not timelines(trace):
        return tables.CAUSES.empty()
    found = [_whole(trace)]
    spent = budget(trace)
    windows = spent.windows.with_row_index("at").filter(pl.col("what") != WHOLE)
    lengths = (windows["end_ns"] - windows["start_ns"]).alias("length_ns")
    windows = windows.with_columns(lengths)
    keys = ["timeline", "group", "what"]
    for (line, group, what), own in windows.group_by(keys, maintain_order=True):
        idle = spent.idle_ns[own["at"].to_numpy()]
        first = idle[int(own["start_ns"].arg_min() or 0)]
        found.append(
            _rows(
                *(int(line), "in steps" if what == "step" else what, group, own["step"].n_unique()),
                *(idle, int(own["length_ns"].sum()), first),
            )
        )
    frame = pl.concat(found)
    frame = frame.with_columns(_indices(trace).gather(frame["timeline"]))
    order = ["gpu", "where", "step_group", "time_ns"]
    return tables.CAUSES.conform(frame.sort(order, descending=[False, False, False, True]))


def _whole(trace: Trace) -> pl.DataFrame:
    gaps, parts = gap_rows(trace), idle_parts(trace).parts
    rows = []
    for number, time in enumerate(device_time(trace)):
        own = gaps.of(number)
        low, high = np.searchsorted(parts.gap, [own.start, own.stop])
        start, end, cause = parts.start[low:high], parts.end[low:high], parts.cause[low:high]
        total = by_cause(start, end, cause, _ALL_TIME, len(causes.CAUSES))
        rows.append(_rows(number, WHOLE, None, 0, total, time.span_ns, total[0] * 0))
    return pl.concat(rows)


def _rows(
    line: int, where: str, group: Any, n_steps: int, idle: Any, length_ns: int, first: Any
) -> pl.DataFrame:
    """Rows of `CAUSES`: one a cause that occurs."""
    total = idle.sum(axis=0)
    at = np.flatnonzero(total)
    names = [causes.CAUSES[c] for c in at]
    every = max(int(total.sum()), 1)
    return pl.DataFrame(
        {
            "timeline": pl.Series([line] * at.size, dtype=pl.UInt32),
            "where": pl.Series([where] * at.size, dtype=pl.String),
            "step_group": pl.Series([group] * at.size, dtype=pl.String),
            "n_steps": pl.Series([n_steps] * at.size, dtype=pl.Int64),
            "cause": pl.Series(names, dtype=pl.String),
            "family": pl.Series([family(n) for n in names], dtype=pl.String),
            "time_ns": pl.Series(total[at], dtype=pl.Int64),
            "per_step_ns": pl.Series(np.median(idle[:, at], axis=0), dtype=pl.Float64),
            "idle_frac": pl.Series(total[at] / every, dtype=pl.Float64),
            "time_frac": pl.Series(total[at] / max(length_ns, 1), dtype=pl.Float64),
            "first_step_ns": pl.Series(first[at], dtype=pl.Int64),
        }
    )


def _families(trace: Trace) -> pl.DataFrame:
    """Idle time by family as it is judged: in the steps, and between them but for pauses.

    What only the first step of a group does, once, is not judged; nor is what the profiler causes,
    nor the least time between two operations.
    """
    spent, found = budget(trace), []
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    windows = spent.windows.with_row_index("at").with_columns(length)
    for (line, group), own in windows.group_by("timeline", "group", maintain_order=True):
        spans = own.filter(pl.col("what") != BETWEEN)
        longest = _PAUSE * float(spans["length_ns"].median() or 0.0)  # type: ignore[arg-type]
        is_pause = (pl.col("what") == BETWEEN) & (pl.col("length_ns") > longest)
        kept = own.filter(~is_pause)
        idle = spent.idle_ns[kept["at"].to_numpy()].sum(axis=0)
        judged = np.where(_JUDGED, idle, 0)
        n_steps = spans["step"].drop_nulls().len()
        if n_steps > 1:
            first = spans["at"][int(spans["start_ns"].arg_min() or 0)]
            judged -= np.where(_IS_ONE_OFF, spent.idle_ns[first], 0)
        time_ns = int(kept["length_ns"].sum())
        present = [name for name in FAMILIES if idle[_OF_FAMILY[name]].any()]
        for name in present or [next(iter(FAMILIES))]:
            of = _OF_FAMILY[name]
            row = {
                "timeline": line,
                "step_group": group if n_steps else None,
                "n_steps": n_steps,
                "time_ns": time_ns,
                "n_work": spans["n_work"].median(),
                "pause_ns": int(own.filter(is_pause)["length_ns"].sum()),
                "family": name,
                "idle_ns": int(idle[of].sum()),
                "judged_ns": int(judged[of].sum()),
            }
            found.append(row)
    schema = pl.Schema({"timeline": pl.UInt32(), **tables.FAMILIES.schema})
    del schema["gpu"]
    frame = pl.DataFrame(found, schema=schema)
    share = pl.when(pl.col("time_ns") > 0).then(pl.col("judged_ns") / pl.col("time_ns"))
    return frame.with_columns(share.alias("judged_frac"))


def _longest(trace: Trace) -> pl.DataFrame:
    """The longest pieces of idle time: what a timeline draws."""
    parts, gaps = idle_parts(trace).parts, gap_rows(trace)
    length = parts.end - parts.start
    at = np.arange(length.size)
    if length.size > _MOST_DRAWN:
        at = np.argpartition(-length, _MOST_DRAWN)[:_MOST_DRAWN]
    at = at[np.lexsort((parts.start[at], -length[at]))]
    names = [causes.CAUSES[c] for c in parts.cause[at]]
    rows = {
        "gpu": _indices(trace).gather(gaps.timeline[parts.gap[at]].astype(np.uint32)),
        "start_ns": parts.start[at],
        "end_ns": parts.end[at],
        "cause": pl.Series(names, dtype=pl.String),
        "family": pl.Series([family(name) for name in names], dtype=pl.String),
    }
    return tables.LONGEST.conform(pl.DataFrame(rows))


def _with_steps(rows: pl.DataFrame, families: pl.DataFrame) -> pl.DataFrame:
    """Add number and time of the steps that rows belong to; without steps, of the whole span."""
    per = families.select("timeline", "step_group", "n_steps", "time_ns").unique()
    per = per.with_columns(pl.col("timeline").cast(pl.UInt16)).rename({"time_ns": "length_ns"})
    keys = ["timeline", "step_group"]
    unmarked = per["step_group"].null_count() == per.height
    return rows.join(per, on=keys, how="left", nulls_equal=unmarked, maintain_order="left")


def _sites(trace: Trace, gpus: pl.DataFrame, families: pl.DataFrame) -> pl.DataFrame:
    rows = _with_steps(sites(trace), families)
    idle = gpus["idle_ns"].gather(rows["timeline"])
    seen = host_evidence(trace).select(
        *("timeline", "cause", "range", "n_samples", "off_cpu_frac"), host_evidence="functions"
    )
    keys = ["timeline", "cause", "range"]
    rows = rows.join(seen, on=keys, how="left", nulls_equal=True, maintain_order="left")
    kinds = [family(c) for c in rows["cause"]]
    return tables.SITES.conform(
        rows.with_columns(
            _indices(trace).gather(rows["timeline"]),
            pl.Series("family", kinds, pl.String),
            pl.when(pl.col("n_steps") > 0)
            .then(pl.col("total_ns") / pl.col("n_steps"))
            .alias("per_step_ns"),
            (pl.col("total_ns") / idle).alias("idle_frac"),
        )
    )


def _copies(trace: Trace, families: pl.DataFrame, link_gbps: float) -> pl.DataFrame:
    rows = _with_steps(copy_sites(trace), families)
    link = pl.col("link_gb_per_s")
    if link_gbps > 0:
        link = pl.when(pl.col("direction").is_in(["HtoD", "DtoH"])).then(link_gbps)
    return tables.COPIES.conform(
        rows.with_columns(
            _indices(trace).gather(rows["timeline"]),
            pl.when(pl.col("n_steps") > 0).then(pl.col("n") / pl.col("n_steps")).alias("per_step"),
            (pl.col("exposed_ns") / pl.col("length_ns")).alias("exposed_frac"),
            (1 - pl.col("exposed_ns") / pl.col("time_ns")).alias("hidden_frac"),
            pl.when(~pl.col("small")).then(pl.col("gb_per_s") / link).alias("link_frac"),
            pl.col("first_start_ns").alias("longest_start_ns"),
            pl.col("first_end_ns").alias("longest_end_ns"),
        )
    )


def _gains(trace: Trace) -> pl.DataFrame:
    rows = [
        {
            "gpu": p.gain.gpu,
            "step_group": p.gain.step_group or None,
            "what": p.what,
            "change": p.gain.change,
            "n_steps": p.gain.n_steps,
            "of_ns": p.gain.of_ns,
            "busy_ns": p.gain.busy_ns,
            "removes_busy_ns": p.gain.removes_busy_ns,
            "after_lo_ns": p.after_ns[0],
            "after_hi_ns": p.after_ns[1],
            "gain_lo_ns": p.gain.lo_ns,
            "gain_hi_ns": p.gain.hi_ns,
            "assumptions": "; ".join(p.gain.assumptions),
            "confidence": p.gain.confidence,
        }
        for p in predictions(trace)
    ]
    return pl.DataFrame(rows, schema=tables.GAINS.schema)


def _summary(trace: Trace) -> pl.DataFrame:
    idle, end = idle_parts(trace), ending(trace)
    row = {
        "has_steps": bool(steps(trace)["gpu_start_ns"].is_not_null().any()),
        "has_calls": trace.has("runtime"),
        "n_launches": idle.n_launches,
        "n_without_work": idle.n_without_work,
        "n_graph_without_work": idle.n_graphs_without_work,
        "capture_ns": end.capture_ns,
        "busy_ns": end.busy_ns,
        "after_ns": end.after_ns,
        "last_call": end.call,
        "last_call_ns": end.call_ns,
        "host_call_ns": end.host_call_ns,
        "osrt": trace.has("osrt"),
        "sampled": trace.has("cpu_samples"),
    }
    return pl.DataFrame([row], schema=tables.SUMMARY.schema)
