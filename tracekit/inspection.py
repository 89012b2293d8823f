"""What a report holds and what can be judged from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tracekit import analyses
from tracekit.engine import with_use
from tracekit.errors import InputError
from tracekit.model.inputs import Gpu, Report
from tracekit.opening import OpenOptions, open_trace
from tracekit.views.device.activity import activity_span

__all__ = ["Inspection", "inspect"]


@dataclass(frozen=True)
class Inspection:
    """What a report holds, for ``tracekit info``.

    Attributes:
        report: The file.
        gpus: Physical GPUs.
        rows: Canonical table to row count, present tables only.
        span_ns: First and last moment of device activity; None without any.
        metrics: Sampled counters, sorted; empty when none were recorded.
        missing: Analysis to the required tables that hold no row.
    """

    report: Report
    gpus: tuple[Gpu, ...]
    rows: Mapping[str, int]
    span_ns: tuple[int, int] | None
    metrics: tuple[str, ...]
    missing: Mapping[str, tuple[str, ...]]


def inspect(
    path: str | os.PathLike[str],
    *,
    options: OpenOptions = OpenOptions(),  # noqa: B008 - frozen
) -> Inspection:
    """Return what a report holds.

    Args:
        path: One report.
        options: How it is opened.

    Raises:
        InputError: It cannot be used.
    """
    with open_trace(path, options=options) as trace:
        if len(trace.reports) != 1:
            message = "info takes one report"
            raise InputError(message, path=Path(path), hint="give one file of the folder")
        metrics = trace.frame("metric_names").get_column("name").drop_nulls().unique().sort()
        missing = {
            n: tuple(t for t in analyses.load(n).requires if not trace.has(t))
            for n in analyses.names()
        }
        report = trace.reports[0]
        return Inspection(
            report,
            with_use(trace),
            report.tables,
            trace.view(activity_span),
            tuple(metrics),
            missing,
        )
