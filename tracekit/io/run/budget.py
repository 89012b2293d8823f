"""How much of a run fits into memory.

Frames are held in memory as columns, only those that the catalog names. What a row costs at the
peak of an analysis, joins and temporary columns included, was measured; rows are counted before
anything is read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.io.nsys.reader import ReportReader

__all__ = ["BYTES_PER_ROW", "Fit", "default_bytes", "fit", "needed_bytes"]

BYTES_PER_ROW = {
    "kernels": 100,
    "memcpy": 100,
    "memset": 100,
    "graph_trace": 100,
    "runtime": 20,
    "nvtx": 145,
    "gpu_metrics": 9,
    "memory_events": 60,
    "sync": 60,
    "strings": 80,
}
"""Peak anonymous memory that one row of a table adds, measured on generated runs."""
SPARING_FRAC = 0.82
"""Share of it that is needed when one table and one analysis is worked on at a time, not two."""
FIXED_BYTES = 190_000_000
"""Interpreter, libraries and compiled kernels."""
LEAST_BYTES = 64_000_000
"""What is left for rows even when the budget does not cover `FIXED_BYTES`."""
AT_ONCE = 2
"""Tables or analyses worked on at a time where memory allows: they share most of what they need,
and each takes memory of its own."""
_SAMPLES_FILL_FRAC = 1 / 3
"""Share of all that is needed from which on samples decide how much memory it takes."""
_PACED_BY = ("kernels", "runtime", "graph_trace", "nvtx")


def default_bytes() -> int:
    """Return half of the memory that is free now, limits of the control group respected."""
    free = _available()
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _number(Path(path))
        free = free if limit is None else min(free, limit)
    return free // 2


def _available() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def needed_bytes(readers: Sequence[ReportReader]) -> int:
    """Return the memory that a run's rows take at the peak, in bytes, `FIXED_BYTES` not counted."""
    return sum(
        count * BYTES_PER_ROW.get(table, 0)
        for reader in readers
        for table, count in reader.report.tables.items()
    )


@dataclass(frozen=True)
class Fit:
    """How a run is brought into a budget.

    Attributes:
        at_once: Tables or analyses to work on at a time.
        window_ns: The part of the run to read, half-open session time; None for all of it.
        by_device: Whether to read samples one GPU at a time.
    """

    at_once: int
    window_ns: tuple[int, int] | None = None
    by_device: bool = False


def fit(
    readers: Sequence[ReportReader],
    offsets_ns: Sequence[int],
    allowed_bytes: int,
    *,
    may_cut: bool = True,
) -> Fit:
    """Bring a run into a budget: one thing at a time if need be, then its longest beginning.

    Args:
        readers: The run's reports.
        offsets_ns: What will be subtracted from each report's times.
        allowed_bytes: The budget.
        may_cut: Whether part of the run may be left out.
    """
    needed = needed_bytes(readers)
    room = max(allowed_bytes - FIXED_BYTES, LEAST_BYTES)
    if needed <= room:
        return Fit(AT_ONCE)
    share = room / (SPARING_FRAC * needed)
    samples = sum(reader.report.tables.get("gpu_metrics", 0) for reader in readers)
    by_device = samples * BYTES_PER_ROW.get("gpu_metrics", 0) >= _SAMPLES_FILL_FRAC * needed
    if share >= 1 or not may_cut:
        return Fit(1, by_device=by_device)
    ends, starts = [], []
    for reader, offset in zip(readers, offsets_ns, strict=True):
        found = _time_of_share(reader, share)
        if found is not None:
            starts.append(found[0] - offset)
            ends.append(found[1] - offset)
    return Fit(1, (min(starts), min(ends)) if ends else None, by_device)


def _time_of_share(reader: ReportReader, share: float) -> tuple[int, int] | None:
    """First start of the longest table, and the start at which `share` of its rows are over."""
    tables = reader.report.tables
    paced = max(_PACED_BY, key=lambda t: tables.get(t, 0) * BYTES_PER_ROW[t])
    if not tables.get(paced):
        return None
    wanted, seen, first = max(1, int(share * tables[paced])), 0, None
    low = None
    for starts in reader.starts(paced):
        if starts.is_empty():
            continue
        low = int(str(starts.min())) if low is None else min(low, int(str(starts.min())))
        if seen + len(starts) > wanted:
            first = int(str(starts.sort()[max(0, wanted - seen - 1)]))
            break
        seen += len(starts)
        first = int(str(starts.max()))
    return None if low is None or first is None else (low, max(first, low + 1))
