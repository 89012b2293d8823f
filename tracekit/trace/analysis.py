"""The contract of an analysis.

A package in ``tracekit/analyses`` is an analysis; its name is the analysis' name. It ends with
``ANALYSIS = Analysis(...)``: ``compute`` turns a trace into frames that conform to ``results``,
``verdict`` turns those frames (and nothing else) into findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import polars as pl

from tracekit.model.chart import Chart, Track
from tracekit.model.diagnosis import TimePart
from tracekit.model.finding import Finding
from tracekit.model.table import Table
from tracekit.trace.trace import Trace
from tracekit.trace.views import View

__all__ = ["Analysis", "Frames", "NoParams", "Param", "param", "parameters"]

Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Param:
    """One parameter of an analysis as options and docs show it."""

    name: str
    default: Any
    unit: str
    help: str


def param(default: Any, *, unit: str = "", help: str) -> Any:  # noqa: A002 - click's word
    """Declare a field of a params dataclass with its unit and help text."""
    return field(default=default, metadata={"unit": unit, "help": help})


def parameters(params: type) -> tuple[Param, ...]:
    """Return the parameters of a params dataclass."""
    return tuple(
        Param(f.name, f.default, f.metadata.get("unit", ""), f.metadata.get("help", ""))
        for f in fields(params)
    )


@dataclass(frozen=True)
class NoParams:
    """Parameters of an analysis that has none."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One diagnosis.

    Attributes:
        name: Module name.
        question: The question it answers, ending in "?".
        requires: Catalog tables without which it cannot say anything.
        views: Views that it calls.
        tables: Catalog tables that it reads itself and can do without.
        needs: What it needs beside tables, in words; "" for nothing.
        record: Command that records that, "" for the one that records its tables.
        results: Frames that `compute` returns, by name; the engine checks each.
        compute: Pure function of a narrowed trace and parameters. It is called even when
            required tables are missing only if `requires` is empty.
        verdict: Pure function of the frames and parameters.
        params: Frozen dataclass of parameters, every field made by `param`.
        chart: Pure function from the frames to what a report draws of them, None when there is
            nothing to draw.
        chart_views: Views of which `chart` alone needs the frame, under the name that it has among
            the frames given to `chart`. They are computed only where something is drawn.
        tracks: Pure function from the frames to tracks of the timeline.
        time_parts: Pure function from the frames to parts of the GPUs' communication time.
        source: Distribution that adds it, set when it is loaded; "" for tracekit's own.
    """

    name: str
    question: str
    requires: tuple[str, ...]
    views: tuple[View[Any], ...]
    tables: tuple[str, ...] = ()
    needs: str = ""
    record: str = ""
    results: tuple[Table, ...]
    compute: Callable[[Trace, Any], dict[str, pl.DataFrame]]
    verdict: Callable[[Frames, Any], Sequence[Finding]]
    params: type = NoParams
    chart: Callable[[Frames], Chart | None] | None = None
    chart_views: Mapping[str, View[pl.DataFrame]] = field(default_factory=dict)
    tracks: Callable[[Frames], Sequence[Track]] | None = None
    time_parts: Callable[[Frames], Sequence[TimePart]] | None = None
    source: str = ""

    @property
    def uses(self) -> tuple[str, ...]:
        """Catalog tables that it can do without, those of its views included; sorted."""
        views = (*self.views, *self.chart_views.values())
        every = frozenset(self.tables).union(*(v.uses for v in views))
        return tuple(sorted(every - set(self.requires)))
