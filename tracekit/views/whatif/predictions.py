"""What changes are predicted to bring, by step group and GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from tracekit.model.gain import Gain
from tracekit.numerics.idle import whatif
from tracekit.trace import Trace, view
from tracekit.views.idle.copies import copy_sites
from tracekit.views.idle.timelines import timelines
from tracekit.views.whatif.consumers import consumer_losses
from tracekit.views.whatif.step_facts import step_facts
from tracekit.wording.numbers import rate

__all__ = ["COPY", "FUSE", "GRAPH", "NO_WAITS", "ONCE", "Prediction", "predictions"]

GRAPH, NO_WAITS, ONCE, COPY, FUSE = "graph", "no_waits", "once", "copy", "fuse"
"""Changes: one CUDA graph a step; no waits of the host; allocations and the like only once; copies
pinned or at the same time as computation; no separate dequantisation."""
_UNTESTED = 0.5
_NO_STEPS = "no steps are marked: the gain is that of the whole capture"
_GRAPH_TEXT = "launch the step as one CUDA graph (or compile it)"
_ASSUMED = {
    GRAPH: (
        "shapes and addresses stay the same from step to step",
        "the host reads nothing back inside the step",
        "the host work between launches does not have to be repeated at each replay",
        "device gaps of 0.1 us (between graph nodes) to 1.3 us (between streamed kernels) remain",
    ),
    NO_WAITS: (
        "the host does not need the values that it waits for before it launches on",
        "nothing is gained where the host is the longer chain",
    ),
    ONCE: ("buffers, modules and graphs of one step can be used again by the next",),
    FUSE: ("the fused kernel is not slower than the matrix product alone",),
}


class Prediction(NamedTuple):
    """One predicted gain.

    Attributes:
        timeline: Which of `timelines`.
        what: `GRAPH`, `NO_WAITS`, `ONCE`, `COPY` or `FUSE`.
        gain: The gain.
        after_ns: Predicted time of a step after the change, shortest and longest, ns.
    """

    timeline: int
    what: str
    gain: Gain
    after_ns: tuple[float, float]


@view
def predictions(trace: Trace) -> tuple[Prediction, ...]:
    """Return the gains worth ranking, the largest first."""
    lines, found = timelines(trace), []
    for facts in step_facts(trace).iter_rows(named=True):
        gpu = lines[facts["timeline"]].gpu
        for what, change, after, extra in _changes(trace, facts):
            found.append(_prediction(facts, gpu, what, change, after, extra))
    worth = [p for p in found if p.gain.worth_ranking]
    return tuple(sorted(worth, key=lambda p: (-p.gain.total_hi_ns, p.timeline, p.what)))


_Change = tuple[str, str, tuple[float, float], Mapping[str, Any]]


def _changes(trace: Trace, facts: Mapping[str, Any]) -> Iterator[_Change]:
    span, busy = facts["span_ns"], facts["busy_ns"]
    period = span + (facts["between_ns"] or 0.0)
    after = whatif.graphed(
        *(span, busy, facts["n_work"]),
        idle=facts["idle_ns"],
        remains=facts["remains_ns"],
        may_remain=facts["after_wait_ns"],
    )
    if facts["n_steps"]:
        yield GRAPH, _GRAPH_TEXT, after, {}
    host = facts["host_ns"]
    if host is not None and facts["sync_ns"] > 0:
        after = whatif.without_waits(period, busy, host)
        yield NO_WAITS, "let the host launch on instead of waiting", after, {"of_ns": period}
    if host is not None and facts["one_off_ns"] > 0:
        after = whatif.not_allocating(period, busy, host, facts["held_ns"], facts["one_off_ns"])
        yield ONCE, "allocate, load and build before the first step", after, {"of_ns": period}
    yield from _copies(trace, facts)
    if facts["dequant_ns"] > 0:
        gaps, slower = consumer_losses(trace).get((facts["timeline"], facts["group"]), (0.0, 0.0))
        after = whatif.without_dequant(span, facts["dequant_ns"], gaps, slower)
        extra = {"removes_busy_ns": facts["dequant_ns"] + slower}
        yield FUSE, "dequantise inside the matrix product", after, extra


def _copies(trace: Trace, facts: Mapping[str, Any]) -> Iterator[_Change]:
    """Faster and hidden copies; the largest site of a group decides what to do."""
    n = max(facts["n_steps"], 1)
    group = pl.lit(None) if not facts["n_steps"] else pl.lit(facts["group"])
    own = copy_sites(trace).filter(
        (pl.col("timeline") == facts["timeline"]) & (pl.col("exposed_ns") > 0)
    )
    if facts["n_steps"]:
        own = own.filter(pl.col("step_group") == group)
    if own.is_empty():
        return
    site = own.row(0, named=True)
    span, busy = facts["span_ns"], facts["busy_ns"]
    exposed, copy = site["exposed_ns"] / n, site["time_ns"] / n
    extra: dict[str, Any] = {"removes_busy_ns": exposed}
    waits = site["n_host_waited"] * 2 > site["n"]
    if site["memory"] == "pageable" and site["link_gb_per_s"] and not site["small"]:
        lo, hi = whatif.pinned(span, exposed, site["bytes"] / n, site["link_gb_per_s"])
        fast = site["bytes"] / n / site["link_gb_per_s"]
        hidden, _ = whatif.hidden_copy(lo, busy - exposed + fast, fast, fast, host_waits=waits)
        host = facts["host_ns"] or 0.0
        extra["assumptions"] = (
            "the host memory is pinned once, not in every step",
            f"the link reaches 70% to 100% of {rate(site['link_gb_per_s'] * 1e9)}",
            "the upper end also needs the copy on its own stream, one step ahead",
        )
        yield (
            COPY,
            "pin the host memory, then overlap the copy",
            (max(hidden, min(host, lo)), hi),
            extra,
        )
    else:
        after = whatif.hidden_copy(span, busy, copy, exposed, host_waits=waits)
        extra["assumptions"] = (
            "a second buffer is free, and nothing inside the step needs the data",
            "copy and computation do not slow each other down",
        )
        yield COPY, "run the copy at the same time as the computation", after, extra


def _prediction(
    facts: Mapping[str, Any],
    gpu: int | None,
    what: str,
    change: str,
    after: tuple[float, float],
    extra: Mapping[str, Any],
) -> Prediction:
    of_ns = extra.get("of_ns", facts["span_ns"])
    assumed = extra.get("assumptions", _ASSUMED.get(what, ()))
    marked = facts["n_steps"] > 0
    gain = Gain(
        change=change,
        lo_ns=of_ns - after[1],
        hi_ns=of_ns - after[0],
        of_ns=of_ns,
        n_steps=facts["n_steps"],
        step_group=facts["group"] if marked else "",
        gpu=gpu,
        busy_ns=facts["busy_ns"],
        removes_busy_ns=extra.get("removes_busy_ns", 0.0),
        assumptions=(*assumed, *(() if marked else (_NO_STEPS,))),
        confidence=_UNTESTED,
    )
    return Prediction(facts["timeline"], what, gain, after)
