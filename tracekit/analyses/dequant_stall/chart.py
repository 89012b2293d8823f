"""What `dequant_stall` has to show: shares of step groups, and the chains of single steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tracekit.model.chart import MOST_ROWS, Axis, Bar, Chart, Key, Panel, Role, Rows
from tracekit.trace.analysis import Frames
from tracekit.wording.names import short_name
from tracekit.wording.numbers import duration, share

__all__ = ["chart"]

_NAME = 60
_HIDDEN = 0.35
"""Shade of dequantisation that other work hides."""


def chart(frames: Frames) -> Chart | None:
    """Return exposed dequantisation by group of steps, and its chains step by step."""
    panels = tuple(
        p for p in (_groups(frames["groups"]), _chains(frames["periods"])) if p is not None
    )
    if not panels:
        return None
    return Chart(
        "Dequantisation by step",
        "Dequantisation counts as exposed where no other work on the GPU hides it. Between the "
        "chains of a step, the consumers and all other work run.",
        panels,
        (
            Key("exposed dequantisation", Role.DEQUANTISATION),
            Key("hidden behind other work", Role.DEQUANTISATION, _HIDDEN),
            Key("until the consumer starts", Role.WAIT),
        ),
    )


def _groups(groups: pl.DataFrame) -> Panel | None:
    """Exposed share of the step time of each group, the largest first."""
    rows = groups.filter(pl.col("share_frac") > 0).head(MOST_ROWS)
    if rows.is_empty():
        return None
    columns = rows.select("group", "share_frac", "exposed_ns", "step_ns")
    bars = tuple(
        Bar(
            at,
            0,
            frac,
            Role.DEQUANTISATION,
            f"{group}: {duration(exposed)} of {duration(whole)}",
            share(frac),
        )
        for at, (group, frac, exposed, whole) in enumerate(columns.iter_rows())
    )
    return Panel(
        "Exposed dequantisation by group of steps",
        Axis("exposed dequantisation over GPU step time", "1", low=0),
        Rows(tuple(rows["group"])),
        bars,
    )


def _chains(periods: pl.DataFrame) -> Panel | None:
    """Chains of dequantisation kernels on a time axis, one row a step."""
    if periods.is_empty():
        return None
    key = "step" if periods["step"].is_not_null().any() else "stream"
    steps = periods.drop_nulls(key).partition_by("gpu", key, maintain_order=True)[:MOST_ROWS]
    if not steps:
        return None
    bars = tuple(
        bar
        for at, own in enumerate(steps)
        for row in own.iter_rows(named=True)
        for bar in _chain(at, int(own["start_ns"].to_numpy().min()), row)
    )
    return Panel(
        "Chains of dequantisation kernels of each step",
        Axis("time since the first dequantisation of the step", "ns", low=0),
        Rows(tuple(str(own[key][0]) for own in steps), key),
        bars,
    )


def _chain(at: int, origin: int, row: Mapping[str, Any]) -> Iterator[Bar]:
    """One chain: its exposed part, the rest of its kernels, then grey until its consumer starts."""
    start, end, busy, exposed = (row[c] for c in ("start_ns", "end_ns", "dequant_ns", "exposed_ns"))
    layer = "" if row["layer"] is None else f"layer {row['layer']}: "
    tip = (
        f"{layer}{row['n_kernels']} x {short_name(row['kernel'], _NAME)}, {duration(busy)}, "
        f"{duration(exposed)} exposed; then {duration(max(0, end - start - busy))} until "
        f"{short_name(row['consumer'], _NAME)}"
    )
    first = start - origin
    if exposed:
        yield Bar(at, first, first + exposed, Role.DEQUANTISATION, tip)
    if busy > exposed:
        yield Bar(at, first + exposed, first + busy, Role.DEQUANTISATION, tip, shade=_HIDDEN)
    if end - start > busy:
        yield Bar(at, first + busy, end - origin, Role.WAIT, tip)
