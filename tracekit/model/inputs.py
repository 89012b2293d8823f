"""What a run consists of: its input files, its physical GPUs, and how their clocks agree."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

__all__ = ["Alignment", "Gpu", "MemoryPlan", "Report"]


@dataclass(frozen=True)
class Gpu:
    """One physical GPU.

    Attributes:
        index: Position in `Trace.gpus`, the ``gpu`` column of every frame.
        name: Marketing name, "" when unknown.
        chip: Chip name, "" when unknown.
        l2_bytes: L2 size in bytes, None when unknown.
        memory_bytes: Device memory in bytes, None when unknown.
        bandwidth_bytes_per_s: Peak DRAM bandwidth as the report states it, None when unknown.
        clock_hz: Maximum clock in Hz, None when unknown.
        sm_count: Streaming multiprocessors, None when unknown.
        used: Whether any device activity ran on it; only a `Diagnosis` knows, not a `Trace`.
    """

    index: int
    name: str = ""
    chip: str = ""
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    bandwidth_bytes_per_s: int | None = None
    clock_hz: int | None = None
    sm_count: int | None = None
    used: bool = False


@dataclass(frozen=True)
class Report:
    """One input file.

    Attributes:
        index: The ``report`` column of every frame.
        name: File name without folder.
        sha256: Hash of the file's bytes as given (compressed if it was).
        product: Product and version that wrote it, "" when unknown.
        schema_version: Export schema version, None when the file states none.
        nsys_version: Version as integers, None when unknown.
        graph_trace: "graph", "node" or "" as the capture options say.
        metric_hz: Sampling frequency requested, None when none was.
        has_blobs: Whether payload blobs were exported; None when the file does not say.
        utc_epoch_ns: Wall-clock start, None when unknown.
        duration_ns: Capture length, None when unknown.
        tables: Canonical tables present with at least one row: name to row count.
        present: Canonical tables present at all, also empty.
        notes: Provenance notes of the reader.
        unread: Tables of device work that the catalog lacks: table of the file to row count.
        dropped: Invalid rows per canonical table: table to {reason: count}.
    """

    index: int
    name: str
    sha256: str
    product: str = ""
    schema_version: str | None = None
    nsys_version: tuple[int, ...] | None = None
    graph_trace: str = ""
    metric_hz: int | None = None
    has_blobs: bool | None = None
    utc_epoch_ns: int | None = None
    duration_ns: int | None = None
    tables: Mapping[str, int] = field(default_factory=dict)
    present: Collection[str] = ()
    notes: list[str] = field(default_factory=list)
    unread: Mapping[str, int] = field(default_factory=dict)
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def has_timeline(self) -> bool:
        """Whether it says when something ran; results of Nsight Compute do not."""
        return "ncu_kernels" not in self.present


@dataclass(frozen=True)
class Alignment:
    """How one report's clock was brought to that of report 0.

    Attributes:
        report: Index of the report.
        offset_ns: Shift that was subtracted, in all.
        mad_ns: Median absolute deviation of matched collective ends; None without any.
        n: Matched collectives.
        method: "one session", "collectives", "utc" or "none".
    """

    report: int
    offset_ns: int
    mad_ns: float | None
    n: int
    method: str

    @property
    def aligned(self) -> bool:
        """Whether claims across reports may be made."""
        return self.method in {"one session", "collectives"}


@dataclass(frozen=True)
class MemoryPlan:
    """How a run is brought into its memory budget.

    Attributes:
        at_once: Tables or analyses to work on at a time.
        cut_ns: The part of the run that is read because all of it does not fit, half-open session
            time; None for all of it.
        by_device: Whether samples are read one GPU at a time.
        allowed_bytes: The budget; None without one.
    """

    at_once: int = 1
    cut_ns: tuple[int, int] | None = None
    by_device: bool = False
    allowed_bytes: int | None = None
