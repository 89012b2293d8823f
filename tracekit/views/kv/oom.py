"""Out-of-memory messages that found their way into a trace."""

from __future__ import annotations

import re
from typing import NamedTuple

import polars as pl

from tracekit.trace import Trace, view
from tracekit.views.nvtx.ranges import marks
from tracekit.wording.numbers import size

__all__ = ["OutOfMemory", "oom_messages", "parse_oom"]

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB|TiB)"
_ASKED = rf"out of memory\. Tried to allocate {_SIZE}"
_OLD = {
    "total_bytes": rf"{_SIZE} total capacity",
    "allocated_bytes": rf"{_SIZE} already allocated",
    "free_bytes": rf"{_SIZE} free",
    "reserved_bytes": rf"{_SIZE} reserved in total by PyTorch",
}
_NEW = {
    "total_bytes": rf"total capacity of {_SIZE}",
    "allocated_bytes": rf"memory {_SIZE} is allocated by PyTorch",
    "free_bytes": rf"of which {_SIZE} is free",
    "unallocated_bytes": rf"{_SIZE} is reserved by PyTorch but unallocated",
    "private_bytes": rf"with {_SIZE} allocated in private pools",
}


class OutOfMemory(NamedTuple):
    """One message; None where it does not state a number.

    Attributes:
        requested_bytes: Size of the failed allocation.
        total_bytes: Memory of the device.
        free_bytes: Free for the driver.
        allocated_bytes: In use by tensors.
        unallocated_bytes: Reserved by PyTorch without a tensor in it.
        private_bytes: In private pools of graphs.
    """

    requested_bytes: int
    total_bytes: int | None
    free_bytes: int | None
    allocated_bytes: int | None
    unallocated_bytes: int | None
    private_bytes: int | None

    @property
    def possible_fragmentation(self) -> bool | None:
        """Whether memory that PyTorch holds unused could have served the request.

        None when the message does not say. A large share of unused memory alone is no sign: it
        must reach the size of the failed allocation, together with what the driver could still
        give.
        """
        if self.unallocated_bytes is None:
            return None
        within_reach = self.unallocated_bytes + (self.free_bytes or 0)
        return self.unallocated_bytes > 0 and within_reach >= self.requested_bytes

    @property
    def unallocated_frac(self) -> float | None:
        """Unused reserved memory as a share of the device's, 0..1."""
        if self.unallocated_bytes is None or not self.total_bytes:
            return None
        return self.unallocated_bytes / self.total_bytes

    def verdict(self) -> str:
        """Return what the numbers say, in words."""
        if self.unallocated_bytes is None:
            return "fragmentation not stated by the message"
        unused, asked = size(self.unallocated_bytes), size(self.requested_bytes)
        if self.possible_fragmentation:
            return f"possible fragmentation ({unused} reserved but unallocated, {asked} requested)"
        return f"not fragmentation ({unused} < {asked})"


def parse_oom(text: str) -> OutOfMemory | None:
    """Read an out-of-memory message.

    Args:
        text: Text that may contain one.

    Returns:
        Its numbers; None when it holds no such message.
    """
    asked = re.search(_ASKED, text, re.IGNORECASE)
    if asked is None:
        return None
    old = "reserved in total by PyTorch" in text
    patterns = _OLD if old else _NEW
    found = {name: _bytes(re.search(pattern, text)) for name, pattern in patterns.items()}
    reserved, allocated = found.get("reserved_bytes"), found["allocated_bytes"]
    unallocated = found.get("unallocated_bytes")
    if reserved is not None and allocated is not None:
        unallocated = reserved - allocated
    return OutOfMemory(
        requested_bytes=_bytes(asked) or 0,
        total_bytes=found["total_bytes"],
        free_bytes=found["free_bytes"],
        allocated_bytes=allocated,
        unallocated_bytes=unallocated,
        private_bytes=found.get("private_bytes"),
    )


def _bytes(match: re.Match[str] | None) -> int | None:
    return None if match is None else round(float(match[1]) * _UNITS[match[2]])


_WORDS = "(?i)out of memory"
_SCHEMA = {
    "t_ns": pl.Int64,
    "requested_bytes": pl.Int64,
    "unallocated_bytes": pl.Int64,
    "free_bytes": pl.Int64,
    "possible": pl.Boolean,
    "verdict": pl.String,
}


@view
def oom_messages(trace: Trace) -> pl.DataFrame:
    """Return PyTorch's out-of-memory messages among NVTX marks and the profiler's own messages.

    Returns:
        Frame of t_ns, requested_bytes, unallocated_bytes (reserved by PyTorch but unused),
        free_bytes, possible (whether fragmentation is possible, null when not stated) and
        verdict (the same in words), by time.
    """
    texts = pl.concat(
        [marks(trace).select("t_ns", "text"), trace.frame("diagnostics").select("t_ns", "text")]
    )
    rows = []
    for t_ns, text in texts.filter(pl.col("text").str.contains(_WORDS)).iter_rows():
        oom = parse_oom(text)
        if oom is not None:
            sizes = (oom.requested_bytes, oom.unallocated_bytes, oom.free_bytes)
            rows.append((t_ns, *sizes, oom.possible_fragmentation, oom.verdict()))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").unique().sort(pl.all())
