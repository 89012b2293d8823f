"""torch: state emitted again when a recording starts, and the caching allocator's own snapshot.

The snapshot is requested with ``TRACEKIT_ALLOCATOR=1``, because keeping the allocator's history
costs memory. It is read from torch itself at the end of the process and written to the sidecar as
``ALLOC source=torch_segment`` (what torch took from the driver), ``source=torch_block`` (what
tensors hold of it; ``requested`` is what they requested) and, with its time, every recorded
``ALLOC`` and ``FREE``. Nothing is pickled, and no snapshot of anybody else is read.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from .emitter import emitter, note
from .grammar import row
from .patching import after, guarded
from .sidecar import VARIABLE, Sidecar

__all__ = ["attach_allocator", "attach_profiler", "snapshot"]

PROFILER = "torch.cuda.profiler"
CUDA = "torch.cuda"
_MEMORY = "torch.cuda.memory"
_MOST_EVENTS = 200_000
_FEATURE = "torch allocator snapshot"
_EVENTS = {
    "alloc": ("ALLOC", "torch_block"),
    "free_completed": ("FREE", "torch_block"),
    "segment_alloc": ("ALLOC", "torch_segment"),
    "segment_map": ("ALLOC", "torch_segment"),
    "segment_free": ("FREE", "torch_segment"),
    "segment_unmap": ("FREE", "torch_segment"),
}


def attach_profiler(module: ModuleType) -> None:
    """Emit standing state when the program starts a capture range.

    Args:
        module: ``torch.cuda.profiler``.
    """
    after(module, "start", "state at the start of a capture", _capture_started)


def attach_allocator(module: ModuleType) -> None:
    """Keep the allocator's history and write it at exit, if requested.

    Args:
        module: ``torch.cuda``.
    """
    if os.environ.get("TRACEKIT_ALLOCATOR") != "1":
        return
    if not os.environ.get(VARIABLE):
        note("TRACEKIT_ALLOCATOR needs TRACEKIT_SIDECAR=FILE for its output")
        return
    queue = guarded(_FEATURE, module._lazy_call)
    queue(guarded(_FEATURE, _begin_history))
    atexit.register(guarded(_FEATURE, _write))


def _capture_started(_result: Any, _args: Any, _kwargs: Any) -> None:
    emitter.tell_again()


_recording = False


def _begin_history() -> None:
    """Runs when the program initialises CUDA, which this module never does."""
    global _recording
    sys.modules[_MEMORY]._record_memory_history(
        enabled="all", context=None, stacks="python", max_entries=_MOST_EVENTS
    )
    _recording = True


def snapshot(state: dict[str, Any], sidecar: Sidecar) -> None:
    """Write a snapshot's segments, blocks and history.

    Args:
        state: What ``torch.cuda.memory._snapshot()`` returns.
        sidecar: Where to.
    """
    now_ns = time.monotonic_ns()
    utc_offset_ns = now_ns - time.time_ns()
    for device, trace in enumerate(state.get("device_traces", ())):
        for entry in trace:
            event, source = _EVENTS.get(entry["action"], (None, ""))
            if event is None or "time_us" not in entry:
                continue
            values = {"source": source, "addr": entry["addr"], "bytes": entry["size"]}
            values.update(stream=entry.get("stream"), device=device)
            sidecar.append(event, row(event, values), int(entry["time_us"]) * 1000 + utc_offset_ns)
    for segment in state["segments"]:
        where = {"stream": segment.get("stream"), "device": segment.get("device"), "again": 1}
        values = {"source": "torch_segment", "addr": segment["address"]}
        values["bytes"] = segment["total_size"]
        sidecar.append("ALLOC", row("ALLOC", {**values, **where}), now_ns)
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                values = {"source": "torch_block", "addr": block.get("address", address)}
                values.update(bytes=block["size"], requested=block.get("requested_size"))
                sidecar.append("ALLOC", row("ALLOC", {**values, **where}), now_ns)
            address += block["size"]


def _write() -> None:
    memory: Any = sys.modules.get(_MEMORY)
    path = os.environ.get(VARIABLE)
    if memory is None or not path or not _recording:
        return
    target = Path(path)
    sidecar = Sidecar(target.with_name(f"{target.stem}.allocator{target.suffix or '.jsonl'}"))
    snapshot(memory._snapshot(), sidecar)
    sidecar.drain()
