"""The contract of an analysis.

A package in ``tracekit/analyses`` is an analysis; its name is the analysis' name. It ends with
``ANALYSIS = Analysis(...)``: ``compute`` turns a trace into frames that conform to ``results``,
``verdict`` turns those frames (and nothing else) into findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any, cast

import polars as pl

from tracekit.model.chart import Chart, Track
from tracekit.model.diagnosis import TimePart
from tracekit.model.finding import Finding
from tracekit.model.table import Table
from tracekit.trace.dependencies import reached_from
from tracekit.trace.params import NoParams, Param, param, parameters
from tracekit.trace.trace import Trace
from tracekit.trace.views import View

__all__ = ["Analysis", "Frames", "NoParams", "Param", "param", "parameters"]

Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One diagnosis.

    Attributes:
        name: Module name.
        question: The question it answers, ending in "?".
        requires: Catalog tables without which it cannot say anything.
        needs: What it needs in addition to tables, in words; "" for nothing.
        record: Command that records that, "" for the one that records its tables.
        results: Frames that `compute` returns, by name; the engine checks each.
        compute: Pure function of a narrowed trace and parameters. It is called even when
            required tables are missing only if `requires` is empty. Which views it calls and which
            tables it reads is derived from its code, see `tracekit.trace.dependencies`.
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

    @cached_property
    def _reached(self) -> tuple[tuple[View[Any], ...], frozenset[str]]:
        return reached_from(cast("FunctionType", self.compute), View)

    @property
    def views(self) -> tuple[View[Any], ...]:
        """Views that `compute` calls."""
        return self._reached[0]

    @property
    def tables(self) -> frozenset[str]:
        """Catalog tables that `compute` reads itself."""
        return self._reached[1]

    @property
    def uses(self) -> tuple[str, ...]:
        """Catalog tables that it can do without, those of its views included; sorted."""
        views = (*self.views, *self.chart_views.values())
        every = self.tables.union(*(v.uses for v in views))
        return tuple(sorted(every - set(self.requires)))
