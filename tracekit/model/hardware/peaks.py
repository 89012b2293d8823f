"""Find a device in the table, and choose the bandwidth that shares of peak refer to."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.errors import UsageError
from tracekit.model.hardware.device import Hardware
from tracekit.model.hardware.table import HARDWARE

__all__ = ["PeakBandwidth", "find", "is_mig", "lookup", "peak_bandwidth"]

_GIB = 2**30
_RUNTIME_TOLERANCE = 0.10
_MIG = re.compile(r"\bMIG\b", re.IGNORECASE)
# Sold with other clocks, memory or power than the module of the same chip; not in the table.
_OTHER_VARIANT = re.compile(r"\bNVL\b|\bGH200\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PeakBandwidth:
    """A memory bandwidth to measure against.

    Attributes:
        gb_per_s: Read and write together, GB/s (equal to bytes per nanosecond).
        source: ``user`` (measured by the user), ``device`` (reported by the driver) or ``table``.
        verified: Whether the figure was checked; a user's own measurement counts as checked.
    """

    gb_per_s: float
    source: str
    verified: bool


def is_mig(name: str | None) -> bool:
    """Whether a reported GPU name is that of a MIG slice."""
    return name is not None and _MIG.search(name) is not None


def lookup(
    name: str | None,
    chip: str | None = None,
    *,
    sm_count: int | None = None,
    memory_bytes: int | None = None,
) -> Hardware | None:
    """Find a device in the table.

    Args:
        name: Reported GPU name, for example ``NVIDIA H200``; ``None`` if absent.
        chip: Reported chip name. Several products share one, so it only decides together with
            ``sm_count`` and ``memory_bytes``, and only if the name is not in the table.
        sm_count: Reported number of multiprocessors.
        memory_bytes: Reported memory, bytes.

    Returns:
        The row; ``None`` for a MIG slice, an unknown device or an ambiguous chip.
    """
    if is_mig(name):
        return None
    for row in HARDWARE:
        if name and re.search(row.pattern, name, re.IGNORECASE):
            return row
    if name and _OTHER_VARIANT.search(name):
        return None
    return _by_chip(chip, sm_count, memory_bytes)


def find(name: str, rows: Sequence[Hardware] = HARDWARE) -> Hardware:
    """Find a device that a person named.

    Args:
        name: Its key in the table in any case (``H200 SXM``), or a name as a driver reports it.
        rows: The table to look in.

    Returns:
        The row.

    Raises:
        UsageError: No row, or a MIG slice: peaks of the whole GPU do not apply to a part of it.
    """
    if is_mig(name):
        msg = f"{name!r} is a MIG slice, whose peaks are not known"
        raise UsageError(msg, hint="describe it in a file of your own: --hardware FILE")
    plain = " ".join(name.split()).casefold()
    for row in rows:
        if row.key.casefold() == plain:
            return row
    for row in rows:
        if re.search(row.pattern, name, re.IGNORECASE):
            return row
    msg = f"no GPU named {name!r} in the table"
    raise UsageError(
        msg, hint=f"there are: {', '.join(row.key for row in rows)}; or --hardware FILE"
    )


def _by_chip(chip: str | None, sm_count: int | None, memory_bytes: int | None) -> Hardware | None:
    """The one product with this chip, this many SMs and this much memory (within 3%)."""
    if not chip or not sm_count or not memory_bytes:
        return None
    found = [
        row
        for row in HARDWARE
        if row.chip == chip.upper()
        and row.sm_count == sm_count
        and math.isclose(memory_bytes / _GIB, row.memory_nominal_gb, rel_tol=0.03)
    ]
    return found[0] if len(found) == 1 else None


def peak_bandwidth(
    row: Hardware | None,
    *,
    achievable_gb_per_s: float | None = None,
    reported_bytes_per_s: float | None = None,
) -> PeakBandwidth | None:
    """Choose the memory bandwidth that shares of peak refer to.

    Preferred is what the user measured; then what the device reports, as long as it lies within
    10% of the table (some drivers report nonsense); then the table.

    Args:
        row: Result of :func:`lookup`.
        achievable_gb_per_s: A user's own measurement, GB/s; the only peak a MIG slice can have.
        reported_bytes_per_s: ``TARGET_INFO_GPU.memoryBandwidth``, bytes/s; ``None`` if absent.

    Returns:
        The peak and where it comes from; ``None`` if there is none, and then no share of peak
        may be printed.

    Raises:
        UsageError: If ``achievable_gb_per_s`` is not a positive finite number.
    """
    if achievable_gb_per_s is not None:
        if not (math.isfinite(achievable_gb_per_s) and achievable_gb_per_s > 0):
            msg = f"achievable bandwidth must be positive, not {achievable_gb_per_s} GB/s"
            raise UsageError(msg)
        return PeakBandwidth(achievable_gb_per_s, "user", verified=True)
    if row is None:
        return None
    if reported_bytes_per_s is not None:
        reported = reported_bytes_per_s / 1e9
        if abs(reported - row.dram_gb_per_s) <= _RUNTIME_TOLERANCE * row.dram_gb_per_s:
            return PeakBandwidth(reported, "device", verified=True)
    verified = "dram_gb_per_s" not in row.unverified
    return PeakBandwidth(row.dram_gb_per_s, "table", verified=verified)
