"""Causes of idle time by what would remove them."""

from __future__ import annotations

__all__ = ["FAMILIES", "FLOOR", "family"]

FAMILIES: dict[str, tuple[str, ...]] = {
    "launching": ("launch_rate", "launch_latency", "graph_launch"),
    "host work": ("host_gap", "host_blocked"),
    "blocking sync": ("sync",),
    "copies": ("copy_staging",),
    "one-off": ("module_load", "allocation", "graph_build"),
    "device": ("dispatch", "graph_internal", "event_wait"),
    "artefact": ("profiler",),
    "unknown": ("unknown", "queued_late"),
}
"""Family of causes to its causes."""
FLOOR = ("dispatch", "graph_internal")
"""What is left between operations that follow each other at once."""
_OF = {cause: name for name, causes in FAMILIES.items() for cause in causes}


def family(cause: str) -> str:
    """Return the family of a cause."""
    return _OF[cause]
