"""What the frames of `idle_gaps` say about copies that nothing hides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tracekit.analyses.idle_gaps.wording import gain_of, gain_text, gpu_name, where
from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import count, duration, share, significant, size

__all__ = ["exposed"]

Row = dict[str, Any]
COPIES_FOR_SURE = 20
NO_STEP_MARKS = 0.6
AT_THE_LINK_FRAC = 0.7
MANY = 16
"""So many small copies a step are better made as one."""
_COLUMNS = (
    *("step_group", "range", "direction", "memory", "n", "per_step", "median_bytes", "bytes"),
    *("exposed_ns", "exposed_frac", "hidden_frac", "gb_per_s", "link_frac", "call", "call_ns"),
    *("waiter", "waits_by"),
)


def exposed(frames: Frames, params: Any) -> Sequence[Finding]:
    """Return the finding on the GPU and steps that lose most to copies; none without copies."""
    rows = frames["copies"].filter(pl.col("exposed_frac").is_not_null())
    if rows.is_empty():
        return ()
    keys = ["gpu", "step_group"]
    totals = rows.group_by(keys, maintain_order=True).agg(
        pl.col("exposed_ns").sum(), pl.col("exposed_frac").sum(), pl.col("n").sum()
    )
    worst = totals.sort("exposed_frac", descending=True, maintain_order=True).row(0, named=True)
    own = rows.filter(
        pl.col("gpu").eq_missing(pl.lit(worst["gpu"], pl.Int16))
        & pl.col("step_group").eq_missing(pl.lit(worst["step_group"], pl.String))
    )
    site = own.row(0, named=True)
    frac = worst["exposed_frac"]
    level = (
        Level.CRITICAL
        if frac >= params.critical_copy_frac
        else Level.WARN
        if frac >= params.warn_copy_frac
        else Level.OK
    )
    return (_finding(frames, worst, site, level, params),)


def _finding(frames: Frames, worst: Row, site: Row, level: Level, params: Any) -> Finding:
    gpu, group, frac = worst["gpu"], worst["step_group"], worst["exposed_frac"]
    gain = gain_of(frames, gpu, group, "copy") if level is not Level.OK else None
    if level is Level.OK:
        title = f"copies that nothing hides take {share(frac)} of {where(worst)} on {gpu_name(gpu)}"
    else:
        title = (
            f"{_what(site)} take {share(frac)} of {where(worst)} on {gpu_name(gpu)},"
            f" hidden by nothing{_speed(site)}{_inside(site)}{gain_text(gain)}"
        )
    return Finding(
        id="idle_gaps/copies",
        level=level,
        title=title,
        metrics=_metrics(worst, site),
        at_stake_ns=worst["exposed_ns"],
        at_stake_frac=frac,
        at_stake_of="step time" if group is not None else "span",
        confidence=Confidence(
            n=worst["n"],
            n_hi=COPIES_FOR_SURE,
            provenance=1.0 if group is not None else NO_STEP_MARKS,
            why="times, sizes and kinds of memory are recorded exactly",
        ),
        advice=_advice(site) if level is not Level.OK else "",
        caveats=(
            "Pageable copies are staged by the driver: their rate is that of the host's memory.",
        )
        if site["memory"] == "pageable"
        else (),
        scope=(("gpu", str(gpu)), *((("step group", group),) if group else ())),
        t_range_ns=(site["longest_start_ns"], site["longest_end_ns"]),
        thresholds={"exposed_frac": (params.warn_copy_frac, params.critical_copy_frac)},
        evidence=(
            Evidence("copies", {"gpu": gpu}, _COLUMNS, "Copies, most exposed time first"),
            Evidence("gains", {"gpu": gpu}, (), "Predicted gains"),
        ),
        gain=gain,
    )


def _what(site: Row) -> str:
    """What is copied, how large and how often."""
    memory = "" if site["memory"] in ("unknown", "device") else f"{site['memory']} "
    often = f" ({count(site['n'])})"
    if site["per_step"] is not None:
        often = f", {_times(site['per_step'])} a step,"
    return f"{memory}{site['direction']} copies of {size(site['median_bytes'])}{often}"


def _times(per_step: float) -> str:
    return f"{per_step:.0f}" if per_step == int(per_step) else significant(per_step)


def _speed(site: Row) -> str:
    if site["small"]:
        return ", each too small for its rate to matter"
    if site["link_frac"] is None:
        return f" ({significant(site['gb_per_s'])} GB/s)"
    return f" ({significant(site['gb_per_s'])} GB/s, {share(site['link_frac'])} of the link)"


def _inside(site: Row) -> str:
    """Whether the host waits in the call."""
    if not site["call"] or 2 * site["n_host_waited"] < site["n"]:
        return ""
    return f"; the host is inside {site['call']} for {duration(site['call_ns'])}"


def _metrics(worst: Row, site: Row) -> tuple[Metric, ...]:
    return (
        Metric("exposed_frac", worst["exposed_frac"], "1", n=worst["n"], doc="of all copies"),
        Metric("exposed_ns", worst["exposed_ns"], "ns", n=worst["n"]),
        Metric("site_exposed_ns", site["exposed_ns"], "ns", n=site["n"], doc="of the largest site"),
        Metric("copy_bytes", site["median_bytes"], "bytes", n=site["n"], doc="median"),
        Metric("copies_per_step", site["per_step"], "", doc="of this kind"),
        Metric("rate_gb_per_s", site["gb_per_s"], "GB/s"),
        Metric("link_frac", site["link_frac"], "1", doc="share of the link's peak"),
        Metric("hidden_frac", site["hidden_frac"], "1", doc="of the copies' time"),
        Metric("call_ns", site["call_ns"], "ns", doc=f"host inside {site['call'] or '-'}"),
    )


def _advice(site: Row) -> str:
    parts = []
    if site["direction"].startswith("UVM"):
        return (
            "Unified memory migrates pages at each touch: prefetch them (cudaMemPrefetchAsync)"
            " ahead of use, advise their place, or use device memory."
        )
    if site["small"] and (site["per_step"] or site["n"]) >= MANY:
        parts.append("Gather the many small copies into one, or batch them (cudaMemcpyBatchAsync).")
    if site["memory"] == "pageable":
        parts.append(
            "Use pinned memory (pin_memory=True, cudaHostAlloc) and an asynchronous copy"
            " (non_blocking=True)."
        )
    if (site["link_frac"] or 0) >= AT_THE_LINK_FRAC:
        parts.append("The copy runs at the link's limit: only fewer bytes or hiding it help.")
    if site["waits_by"] == "event":
        parts.append("The computation waits by event: start the copy earlier.")
    parts.append("Run it on its own stream at the same time as computation, one step ahead.")
    return " ".join(parts)
