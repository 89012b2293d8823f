"""From load, latency and DRAM activity to the request rate that an objective allows."""

from __future__ import annotations

from tracekit.sizing.slo.capacity import Limit, SloFit, fit_slo
from tracekit.sizing.slo.levels import Level, Samples, levels_of
from tracekit.sizing.slo.queueing import QueueFit, fit_queue

__all__ = ["Level", "Limit", "QueueFit", "Samples", "SloFit", "fit_queue", "fit_slo", "levels_of"]
