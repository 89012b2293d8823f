"""The frames that only pictures need."""

from __future__ import annotations

import polars as pl

from tracekit.trace import Trace, View
from tracekit.views.overview.kv_map import kv_map
from tracekit.views.overview.timeline import timeline_samples, timeline_work

__all__ = ["PICTURES", "pictures"]

PICTURES: tuple[View[pl.DataFrame], ...] = (timeline_work, timeline_samples, kv_map)
"""The views that pictures are drawn from."""


def pictures(trace: Trace) -> dict[str, pl.DataFrame]:
    """Return what timelines and maps are drawn from.

    Returns:
        ``work`` and ``samples`` (see `tracekit.views.overview.timeline`), ``kv_map``
        (`tracekit.views.overview.kv_map`).
    """
    return dict(zip(("work", "samples", "kv_map"), map(trace.view, PICTURES), strict=True))
