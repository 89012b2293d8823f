"""`Run`: the opened reports of one run, on one clock, and the part of it that is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from tracekit.io.ncu import NcuInput
from tracekit.io.nsys.reader import ReportReader
from tracekit.io.run.loader import DEVICE_TABLES, RunLoader
from tracekit.model.inputs import Alignment, MemoryPlan, Report
from tracekit.model.nvtx import RANGE_TYPES

__all__ = ["Run"]


@dataclass(frozen=True)
class Run:
    """The opened reports of one run.

    Attributes:
        readers: One per usable report, in the order given.
        ncu: Results of Nsight Compute, in the order given.
        unreadable: Inputs that could not be used: name to reason.
        alignment: How the clocks were brought together; empty where there is one clock.
        window_ns: Half-open session time that events must touch; None for all.
    """

    readers: tuple[ReportReader, ...]
    ncu: tuple[NcuInput, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    alignment: tuple[Alignment, ...] = ()
    window_ns: tuple[int, int] | None = None

    @property
    def reports(self) -> tuple[Report, ...]:
        """Descriptions of the input files, results of Nsight Compute last."""
        counted = (one.report(i) for i, one in enumerate(self.ncu, len(self.readers)))
        return (*(reader.report for reader in self.readers), *counted)

    @property
    def offsets_ns(self) -> tuple[int, ...]:
        """What to subtract from the times of each report."""
        return tuple(a.offset_ns for a in self.alignment) or (0,) * len(self.readers)

    def loader(self, memory: MemoryPlan) -> RunLoader:
        """Return what loads the frames of the run."""
        return RunLoader(
            self.readers, self.offsets_ns, self.window_ns, self.ncu, by_device=memory.by_device
        )

    def span_ns(self) -> tuple[int, int] | None:
        """Return the first start and last end of work and ranges, `window_ns` aside.

        Returns:
            Session times in ns; None where nothing was recorded.
        """
        found: list[tuple[int, int]] = []
        for reader, offset_ns in zip(self.readers, self.offsets_ns, strict=True):
            ranges = reader.load("nvtx").filter(pl.col("event_type").is_in(RANGE_TYPES))
            for frame in (*(reader.load(table) for table in DEVICE_TABLES), ranges):
                low, high = frame.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
                if low is not None and high is not None:
                    found.append((low - offset_ns, high - offset_ns))
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None
