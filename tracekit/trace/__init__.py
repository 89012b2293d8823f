"""A trace and the views computed from it; what an analysis is (`tracekit.trace.analysis`)."""

from __future__ import annotations

from tracekit.trace.trace import Loader, Trace
from tracekit.trace.views import UndeclaredTableError, View, view

__all__ = ["Loader", "Trace", "UndeclaredTableError", "View", "view"]
