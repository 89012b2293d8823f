"""What the frames of `idle_gaps` say about idle time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from tracekit.analyses.idle_gaps import copies, lost
from tracekit.analyses.idle_gaps.wording import (
    SPLIT,
    TRACED,
    advice,
    gain_of,
    gain_text,
    gpu_name,
    site_text,
    where,
)
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import duration, share

__all__ = ["verdict"]

Row = dict[str, Any]
STRETCHES_FOR_SURE = 20
NO_STEP_MARKS = 0.6
HARMLESS_FRAC = 0.05
SAME_FRAC = 0.005
"""Shares that differ by less are not distinguished in a title."""
UNKNOWN_FRAC = 0.25
LAUNCH_MATCH_FRAC = 0.9
_HOST = ("launching", "host work")
_KINDS: dict[str, tuple[str, ...]] = {
    "host": _HOST,
    "blocking sync": ("blocking sync",),
    "one-off": ("one-off",),
    "copies": ("copies",),
    "device": ("device",),
    "unknown": ("unknown",),
}
"""Kinds of findings and the families that they sum up: what one change would remove."""
_CHANGE = {"host": "graph", "blocking sync": "no_waits", "one-off": "once", "copies": "copy"}
_SLUG = {"blocking sync": "sync", "one-off": "one-off", "device": "event-waits"}


def verdict(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the findings of `idle_gaps`."""
    summary = frames["summary"].row(0, named=True)
    nothing = lost.nothing_recorded(frames, summary)
    if nothing is not None:
        return (nothing,)
    found = [*lost.endings(summary), *lost.incomplete(summary)]
    found += _idle(frames, summary, params, is_complete=not found)
    return (*found, *copies.exposed(frames, params))


def _idle(frames: Frames, summary: Row, params: Any, *, is_complete: bool) -> list[Finding]:
    """Findings on the GPU and steps that lose most."""
    keys = ["gpu", "step_group", "n_steps", "time_ns", "n_work"]
    totals = (
        frames["families"]
        .group_by(keys, maintain_order=True)
        .agg(pl.col("judged_ns").sum(), pl.col("idle_ns").sum())
    )
    totals = totals.filter(pl.col("time_ns") > 0).with_columns(
        (pl.col("judged_ns") / pl.col("time_ns")).alias("judged_frac"),
        (pl.col("idle_ns") / pl.col("time_ns")).alias("idle_frac"),
    )
    if totals.is_empty():
        return []
    frac = pl.col("judged_frac")
    level = pl.when(frac >= params.critical_frac).then(2).when(frac >= params.warn_frac).then(1)
    ranked = totals.with_columns(level.otherwise(0).alias("rank")).sort(
        ["rank", "judged_ns"], descending=True, maintain_order=True
    )
    worst = ranked.row(0, named=True)
    own = frames["families"].filter(
        pl.col("gpu").eq_missing(pl.lit(worst["gpu"], pl.Int16))
        & pl.col("step_group").eq_missing(pl.lit(worst["step_group"], pl.String))
    )
    by_kind = {
        kind: int(own.filter(pl.col("family").is_in(families))["judged_ns"].sum())
        for kind, families in _KINDS.items()
    }
    doubt = _doubt(frames, summary, worst, by_kind)
    if doubt is not None:
        return [doubt]
    if worst["judged_frac"] < params.warn_frac:
        # What could not be judged must not stand next to an all-clear.
        calm = _opaque(frames, worst) or _calm(frames, worst, params)
        return [calm] if is_complete else []
    return _causes(frames, summary, worst, by_kind, params)


def _doubt(frames: Frames, summary: Row, worst: Row, by_kind: dict[str, int]) -> Finding | None:
    """A finding that the cause of the idle time is unknown; None where it is known."""
    if worst["idle_frac"] < HARMLESS_FRAC:
        return None
    idle = f"{gpu_name(worst['gpu'])} is idle {share(worst['idle_frac'])} of {where(worst)}"
    matched = _launch_frac(frames, worst["gpu"])
    unknown = by_kind["unknown"] / max(worst["idle_ns"], 1)
    missing: tuple[Missing, ...] = ()
    if not summary["has_calls"]:
        why = "host calls were not recorded"
        missing = (Missing("CUDA calls of the host", ("runtime",)),)
    elif matched < LAUNCH_MATCH_FRAC:
        why = f"only {share(matched)} of the operations have a launching call in the recording"
    elif unknown > UNKNOWN_FRAC:
        why = (
            f"{share(unknown)} of that passes after the launch call has returned and without an"
            " event to wait for (another process, power state, serialisation)"
        )
    else:
        return None
    return Finding(
        id="idle_gaps/unknown",
        level=Level.UNKNOWN,
        title=f"{idle}, and why is unknown: {why}",
        metrics=_metrics(worst, None),
        missing=missing,
        evidence=_evidence(frames, worst),
    )


def _launch_frac(frames: Frames, gpu: int | None) -> float:
    rows = frames["gpus"].filter(pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16)))
    n = int(rows["n_work"].sum())
    return int(rows["n_with_launch"].sum()) / n if n else 1.0


def _opaque(frames: Frames, worst: Row) -> Finding | None:
    """A finding that most of the time is inside of graphs that nobody saw; None if it is not."""
    own = frames["gpus"].filter(pl.col("gpu").eq_missing(pl.lit(worst["gpu"], pl.Int16)))
    opaque = int(own["opaque_ns"].sum()) / max(int(own["span_ns"].sum()), 1)
    if opaque <= UNKNOWN_FRAC:
        return None
    return Finding(
        id="idle_gaps/opaque",
        level=Level.UNKNOWN,
        title=(
            f"{gpu_name(worst['gpu'])} is idle {share(worst['idle_frac'])} of {where(worst)}"
            f" between graphs; {share(opaque)} of the span is inside of graphs traced as a whole,"
            " and idle time there is unknown"
        ),
        metrics=(*_metrics(worst, None), Metric("opaque_frac", opaque, "1", doc="of the span")),
        missing=(Missing("kernels inside CUDA graphs", ("kernels",)),),
        evidence=_evidence(frames, worst),
    )


def _calm(frames: Frames, worst: Row, params: Any) -> Finding:
    name, idle = gpu_name(worst["gpu"]), worst["idle_frac"]
    title = f"{name} is idle {share(idle)} of {where(worst)}"
    if idle < HARMLESS_FRAC:
        title += ": it hardly waits for the host"
    else:
        title += (
            f", {share(worst['judged_frac'])} for causes that can be removed (the rest is the"
            " profiler, one-off work of a first step, or the least time between two operations)"
        )
    return Finding(
        id="idle_gaps/busy",
        level=Level.OK,
        title=title,
        metrics=_metrics(worst, None),
        confidence=_confidence(frames, worst),
        caveats=(TRACED,),
        scope=(("gpu", str(worst["gpu"])),),
        thresholds={"judged_frac": (params.warn_frac, params.critical_frac)},
        evidence=_evidence(frames, worst),
    )


def _causes(
    frames: Frames, summary: Row, worst: Row, by_kind: dict[str, int], params: Any
) -> list[Finding]:
    """The largest kind of cause with the level of all idle time; others by their own share."""
    order = sorted(by_kind, key=lambda kind: -by_kind[kind])
    found = []
    for place, kind in enumerate(order):
        frac = by_kind[kind] / worst["time_ns"]
        judged = worst["judged_frac"] if place == 0 else frac
        if judged < params.warn_frac:
            continue
        level = Level.CRITICAL if judged >= params.critical_frac else Level.WARN
        found.append(_cause(frames, summary, worst, kind, by_kind[kind], level, params))
    return found


def _cause(
    frames: Frames, summary: Row, worst: Row, kind: str, judged_ns: int, level: Level, params: Any
) -> Finding:
    gpu, group = worst["gpu"], worst["step_group"]
    sites = frames["sites"].filter(
        pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16))
        & pl.col("step_group").eq_missing(pl.lit(group, pl.String))
        & pl.col("family").is_in(_KINDS[kind])
    )
    if group is None:
        sites = frames["sites"].filter(
            pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16)) & pl.col("family").is_in(_KINDS[kind])
        )
    first = sites.row(0, named=True) if sites.height else None
    gain = gain_of(frames, gpu, group, _CHANGE.get(kind))
    found = Finding(
        id=f"idle_gaps/{_SLUG.get(kind, kind)}",
        level=level,
        title=_title(frames, worst, kind, judged_ns, first) + gain_text(gain),
        metrics=_metrics(worst, judged_ns) + _site_metrics(first),
        at_stake_ns=judged_ns,
        at_stake_frac=judged_ns / worst["time_ns"],
        at_stake_of="step time" if group is not None else "span",
        confidence=_confidence(frames, worst),
        advice=advice(kind) + (f" Most of it: {site_text(first)}." if first else ""),
        caveats=(TRACED, *(_host_caveats(summary) if kind == "host" else ())),
        scope=(("gpu", str(gpu)), *((("step group", group),) if group else ())),
        thresholds={"judged_frac": (params.warn_frac, params.critical_frac)},
        evidence=_evidence(frames, worst),
        gain=gain,
    )
    if first is None:
        return found
    return replace(found, t_range_ns=(first["first_start_ns"], first["first_end_ns"]))


def _host_caveats(summary: Row) -> Sequence[str]:
    """How a finding about host time can be wrong."""
    found = [SPLIT]
    if not summary["osrt"]:
        found.append(
            "Whether the thread was blocked in the operating system is unknown: its calls were not"
            " recorded (-t osrt)."
        )
    return found


def _title(frames: Frames, worst: Row, kind: str, judged_ns: int, first: Row | None) -> str:
    """Cause and size; the fix follows."""
    n, frac = worst["n_steps"], judged_ns / worst["time_ns"]
    part = "" if worst["idle_frac"] - frac < SAME_FRAC else f", {share(frac)} for this"
    each = f" ({duration(judged_ns / n)} a step, {worst['n_work']:.0f} operations)" if n else ""
    size = f"{gpu_name(worst['gpu'])} is idle {share(worst['idle_frac'])} of {where(worst)}"
    size += part + each
    call = first["call"] if first and first["call"] else ""
    if kind == "host":
        launching, working = (_family_ns(frames, worst, name) for name in _HOST)
        if launching >= working:
            return f"the host launches more slowly than {gpu_name(worst['gpu'])} runs: " + size
        place = f", most often {_between(first)}" if first else ""
        return f"the host works while {gpu_name(worst['gpu'])} waits{place}: {size}"
    if kind == "blocking sync":
        return f"the host waits in {call or 'a synchronisation'}: {size}"
    if kind == "one-off":
        return f"{call or 'allocations, loads or builds'} in every step: {size}"
    if kind == "copies":
        return f"copies through pageable memory: {size}"
    if kind == "device":
        return f"streams wait for events of others: {size}"
    return f"idle for an unknown cause: {size}"


def _between(site: Row) -> str:
    """The calls around host work."""
    if site["cause"] != "host_gap" or not site["call"]:
        return f"in '{site['range']}'" if site["range"] else "outside any range"
    if site["after_wait"]:
        return f"after {site['call']}"
    return f"between {site['call']} and {site['next_call']}"


def _family_ns(frames: Frames, worst: Row, family: str) -> int:
    rows = frames["families"].filter(
        pl.col("gpu").eq_missing(pl.lit(worst["gpu"], pl.Int16))
        & pl.col("step_group").eq_missing(pl.lit(worst["step_group"], pl.String))
        & (pl.col("family") == family)
    )
    return int(rows["judged_ns"].sum())


def _metrics(worst: Row, judged_ns: int | None) -> tuple[Metric, ...]:
    n = worst["n_steps"] or None
    own: tuple[Metric, ...] = ()
    if judged_ns is not None:
        doc = "this cause"
        own = (
            Metric("cause_frac", judged_ns / worst["time_ns"], "1", doc=doc),
            Metric("cause_ns", judged_ns, "ns", n=n, doc=doc),
        )
    return (
        Metric("idle_frac", worst["idle_frac"], "1", n=n, doc="nothing runs"),
        Metric("judged_frac", worst["judged_frac"], "1", doc="removable causes"),
        *own,
        Metric("idle_ns", worst["idle_ns"], "ns"),
        Metric("time_ns", worst["time_ns"], "ns", n=n, doc="steps and between"),
    )


def _site_metrics(site: Row | None) -> tuple[Metric, ...]:
    if site is None:
        return ()
    found = [
        Metric("site_ns", site["total_ns"], "ns", n=site["n"], doc="largest site"),
        Metric("site_median_ns", site["median_ns"], "ns", doc="largest site"),
        Metric("site_in_call_ns", site["in_call_ns"], "ns", doc="in the launch call"),
    ]
    if site["off_cpu_frac"] is not None:
        doc = "thread on no processor"
        found.append(Metric("off_cpu_frac", site["off_cpu_frac"], "1", doc=doc))
    return tuple(found)


def _confidence(frames: Frames, worst: Row) -> Confidence:
    n = int(
        frames["sites"].filter(pl.col("gpu").eq_missing(pl.lit(worst["gpu"], pl.Int16)))["n"].sum()
    )
    marked = worst["step_group"] is not None
    why = "intervals are measured exactly; which cause they have follows fixed rules"
    return Confidence(
        coverage=_launch_frac(frames, worst["gpu"]),
        n=n,
        n_hi=STRETCHES_FOR_SURE,
        provenance=1.0 if marked else NO_STEP_MARKS,
        why=why if marked else f"no steps are marked; {why}",
    )


_SITE_COLUMNS = (
    *("step_group", "range", "cause", "call", "next_call", "n", "median_ns", "total_ns"),
    *("per_step_ns", "idle_frac", "ended_by"),
)


def _evidence(frames: Frames, worst: Row) -> tuple[Evidence, ...]:
    gpu = {"gpu": worst["gpu"]}
    summary = frames["summary"].row(0, named=True)
    columns = (*_SITE_COLUMNS, *(("host_evidence",) if summary["sampled"] else ()))
    return (
        Evidence("families", gpu, (), "Idle time by kind of cause"),
        Evidence("sites", gpu, columns, "Where it arises"),
        Evidence("causes", gpu, (), "Idle time by cause"),
        Evidence("gains", gpu, (), "Predicted gains"),
    )
