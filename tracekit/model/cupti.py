"""Numbers that CUPTI records, by name."""

from __future__ import annotations

__all__ = ["STREAM_WAIT_EVENT"]

STREAM_WAIT_EVENT = 2
"""``syncType`` of a stream that waits for an event (CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_...)."""
