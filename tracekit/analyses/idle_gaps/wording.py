"""Words of the findings of `idle_gaps`."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit.model.gain import Gain, gain_from
from tracekit.trace.analysis import Frames
from tracekit.wording.numbers import duration, share

__all__ = ["SPLIT", "TRACED", "advice", "gain_of", "gain_text", "gpu_name", "site_text", "where"]

Row = dict[str, Any]
TRACED = (
    "Recording makes each launch call slower, so shares of launching are upper bounds: confirm them"
    " with the step time of a run that is not recorded."
)
SPLIT = (
    "Launching and other host work are separated by a pause of 100 us between two launches: their"
    " sum is firm, the split is indicative."
)
_ADVICE = {
    "host": (
        "Launch the step as one CUDA graph, or compile it (torch.compile), so that the host makes"
        " one call instead of many; where the host works between launches, look at the ranges and"
        " calls listed."
    ),
    "blocking sync": (
        "Let the host launch on instead of waiting: read results back one step later, keep them on"
        " the device, or copy them to pinned memory and wait for an event when they are needed."
    ),
    "one-off": (
        "Allocate, load modules and build graphs once, before the first step: reuse buffers (the"
        " framework's caching allocator or cudaMallocAsync), and keep instantiated graphs."
    ),
    "copies": "Copy from and to pinned memory, so that the driver does not stage the data.",
    "device": (
        "Streams wait for events of other streams: launch what they wait for earlier, or remove"
        " waits that guard nothing."
    ),
}


def gpu_name(gpu: int | None) -> str:
    """Return what to call a GPU."""
    return "an unidentified GPU" if gpu is None else f"GPU {gpu}"


def where(row: Row) -> str:
    """Return the denominator of shares in words."""
    group = row["step_group"]
    return "the span" if group is None else f"'{group}' time"


def advice(kind: str) -> str:
    """Return what to do about idle time of a kind."""
    return _ADVICE.get(kind, "")


def gain_of(frames: Frames, gpu: int | None, group: str | None, what: str | None) -> Gain | None:
    """Return the predicted gain of a kind of change to the steps of a group; None without one."""
    if what is None:
        return None
    rows = frames["gains"].filter(
        pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16))
        & pl.col("step_group").eq_missing(pl.lit(group, pl.String))
        & (pl.col("what") == what)
    )
    if rows.is_empty():
        return None
    return gain_from(rows.row(0, named=True))


def gain_text(gain: Gain | None) -> str:
    """Return the fix and its predicted gain, for the end of a title; "" without one."""
    if gain is None:
        return ""
    lo, hi = duration(gain.lo_ns), duration(gain.hi_ns)
    least = "up to" if gain.lo_ns <= 0 else "" if lo == hi else f"{lo} to"
    per = " a step" if gain.n_steps else ""
    return f"; {gain.change}: {least} {hi}{per} less (predicted)".replace("  ", " ")


def site_text(site: Row) -> str:
    """Return where in the program a site is, in a few words."""
    place = f" in '{site['range']}'" if site["range"] else ""
    calls = ""
    if site["cause"] == "host_gap":
        after = "after" if site["after_wait"] else "between"
        before = site["call"] or "the start of the recording"
        joined = "" if site["next_call"] is None else f" and {site['next_call']}"
        calls = f" {after} {before}" if site["after_wait"] else f" {after} {before}{joined}"
    elif site["call"]:
        calls = f" in {site['call']}"
    median = duration(site["median_ns"])
    return f"{site['cause']}{calls}{place}: {site['n']} times, median {median}" + (
        f", {share(site['idle_frac'])} of idle time"
    )
