"""tracekit: why an LLM run on NVIDIA GPUs is slower than it should be, from its profile.

The public names load what they need when they are first used; ``docs/api.md`` shows each at work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.comparison import compare
    from tracekit.engine import analyze
    from tracekit.errors import (
        DamagedReportError,
        DuplicateReportError,
        EmptyWindowError,
        InputError,
        NotAReportError,
        TracekitError,
        UsageError,
    )
    from tracekit.inspection import inspect
    from tracekit.model.diagnosis import Diagnosis
    from tracekit.model.finding import Confidence, Evidence, Finding, Level, Metric, Missing
    from tracekit.model.table import Column, Table
    from tracekit.opening import OpenOptions, open_trace
    from tracekit.report.rendering import render
    from tracekit.trace import Trace, view
    from tracekit.trace.analysis import Analysis
    from tracekit.trace.params import Settings, param

__all__ = [
    "Analysis",
    "Column",
    "Confidence",
    "DamagedReportError",
    "Diagnosis",
    "DuplicateReportError",
    "EmptyWindowError",
    "Evidence",
    "Finding",
    "InputError",
    "Level",
    "Metric",
    "Missing",
    "NotAReportError",
    "OpenOptions",
    "Settings",
    "Table",
    "Trace",
    "TracekitError",
    "UsageError",
    "__version__",
    "analyze",
    "compare",
    "inspect",
    "open_trace",
    "param",
    "render",
    "view",
]

__version__ = "0.1.0"

_HOMES = {
    "tracekit.comparison": ("compare",),
    "tracekit.engine": ("analyze",),
    "tracekit.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "tracekit.inspection": ("inspect",),
    "tracekit.model.diagnosis": ("Diagnosis",),
    "tracekit.model.finding": ("Confidence", "Evidence", "Finding", "Level", "Metric", "Missing"),
    "tracekit.model.table": ("Column", "Table"),
    "tracekit.opening": ("OpenOptions", "open_trace"),
    "tracekit.report.rendering": ("render",),
    "tracekit.trace": ("Trace", "view"),
    "tracekit.trace.analysis": ("Analysis",),
    "tracekit.trace.params": ("Settings", "param"),
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    """Return the public names, those that are not loaded yet included."""
    return sorted({*globals(), *__all__})
