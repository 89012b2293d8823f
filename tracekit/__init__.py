"""tracekit: why an LLM run on NVIDIA GPUs is slower than it should be, from its profile.

The public names load what they need when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.comparison import compare
    from tracekit.engine import analyze
    from tracekit.inspection import inspect
    from tracekit.opening import open_trace

__all__ = ["__version__", "analyze", "compare", "inspect", "open_trace"]

__version__ = "0.1.0"

_HOMES = {
    "analyze": "tracekit.engine",
    "compare": "tracekit.comparison",
    "inspect": "tracekit.inspection",
    "open_trace": "tracekit.opening",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)
