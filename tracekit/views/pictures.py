"""The frames that only pictures need."""

from __future__ import annotations

import polars as pl

from tracekit.model.trace import Trace
from tracekit.views.kv_map import kv_map
from tracekit.views.timeline import timeline_samples, timeline_work

__all__ = ["pictures"]


def pictures(trace: Trace) -> dict[str, pl.DataFrame]:
    """Return what timelines and maps are drawn from.

    Returns:
        ``work`` and ``samples`` (see `tracekit.views.timeline`), ``kv_map``
        (`tracekit.views.kv_map`).
    """
    return {
        "work": trace.view(timeline_work),
        "samples": trace.view(timeline_samples),
        "kv_map": trace.view(kv_map),
    }
