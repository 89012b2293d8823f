"""Numbers that CUPTI records, by name."""

from __future__ import annotations

__all__ = ["PEER_TO_PEER", "STREAM_WAIT_EVENT"]

PEER_TO_PEER = 10
"""``copyKind`` of a copy between devices (CUPTI_ACTIVITY_MEMCPY_KIND_PTOP)."""

STREAM_WAIT_EVENT = 2
"""``syncType`` of a stream that waits for an event (CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_...)."""
