"""What is known of one device, and of the host link."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from tracekit.errors import UsageError

__all__ = ["Cell", "Hardware", "pcie_gb_per_s"]

_TRANSFERS_GT_PER_S = {3: 8.0, 4: 16.0, 5: 32.0}


def pcie_gb_per_s(generation: int, lanes: int = 16) -> float:
    """Peak of a PCIe link in one direction.

    Args:
        generation: 3, 4 or 5.
        lanes: Width of the link.

    Returns:
        GB/s after 128b/130b line coding (63.02 for generation 5 x16).

    Raises:
        UsageError: For another generation.
    """
    if generation not in _TRANSFERS_GT_PER_S:
        msg = f"PCIe generation {generation} is not in the table"
        raise UsageError(msg, hint="3, 4 or 5")
    return _TRANSFERS_GT_PER_S[generation] * lanes * 128 / 130 / 8


class Cell(NamedTuple):
    """Where one figure comes from.

    Attributes:
        field: Name of the figure in :class:`Hardware`.
        source: Document or measurement.
        as_of: Date of the last comparison with it, ISO 8601.
    """

    field: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One device of the table.

    Attributes:
        key: Short name, unique in the table.
        pattern: Regular expression that finds the device's reported name.
        chip: Chip name as nsys reports it; shared by several products.
        memory_nominal_gb: Capacity as sold, in the unit of the label.
        dram_gb_per_s: Peak memory bandwidth, read and write together, GB/s.
        fp16_tflops: Dense FP16/BF16 tensor rate, 1e12 FLOP/s.
        fp8_tflops: Dense FP8 tensor rate, 1e12 FLOP/s.
        int8_tops: Dense INT8 tensor rate, 1e12 op/s.
        int4_tops: Dense INT4 tensor rate, 1e12 op/s.
        fp4_tflops: Dense FP4 tensor rate, 1e12 FLOP/s.
        l2_bytes: Second-level cache, bytes (labels say MB and mean MiB).
        sm_count: Streaming multiprocessors (compute units or tensor cores of other vendors).
        tdp_w: Board power limit, watts: a bound, not a measurement.
        link_both_gb_per_s: GPU-to-GPU link, both directions together, GB/s.
        pcie_gen: Generation of the x16 host link, where it is the only link.
        price_usd_per_hour: Rent of one device, US dollars an hour; only from a user's own file.
        unsupported: Names of rate fields that the device has no hardware for.
        unverified: Names of fields that were not checked against a primary source.
        cells: Source and date of each figure.
    """

    key: str
    pattern: str
    chip: str | None = None
    memory_nominal_gb: float
    dram_gb_per_s: float
    fp16_tflops: float
    fp8_tflops: float | None = None
    int8_tops: float | None = None
    int4_tops: float | None = None
    fp4_tflops: float | None = None
    l2_bytes: int | None = None
    sm_count: int | None = None
    tdp_w: float
    link_both_gb_per_s: float | None = None
    pcie_gen: int | None = None
    price_usd_per_hour: float | None = None
    unsupported: frozenset[str] = frozenset()
    unverified: frozenset[str] = frozenset()
    cells: tuple[Cell, ...]

    @property
    def source(self) -> str:
        """Every document that a figure of this row comes from, once each."""
        return "; ".join(dict.fromkeys(cell.source for cell in self.cells))

    @property
    def as_of(self) -> str:
        """Date of the oldest check of a figure of this row, ISO 8601."""
        return min(cell.as_of for cell in self.cells)

    @property
    def link_one_way_gb_per_s(self) -> float | None:
        """Peak of the GPU-to-GPU link in one direction, GB/s; what bus bandwidth compares with."""
        if self.link_both_gb_per_s is not None:
            return self.link_both_gb_per_s / 2
        return None if self.pcie_gen is None else pcie_gb_per_s(self.pcie_gen)

    def at_runtime(self, *, sm_count: int | None = None, l2_bytes: int | None = None) -> Hardware:
        """Return this row with what the device itself reported in place of the table's figures.

        Args:
            sm_count: ``TARGET_INFO_GPU.smCount``; ``None`` or 0 if absent.
            l2_bytes: ``TARGET_INFO_GPU.l2CacheSize`` in bytes; ``None`` or 0 if absent.

        Returns:
            A row in which the replaced fields count as verified.
        """
        reported = {"sm_count": sm_count or None, "l2_bytes": l2_bytes or None}
        known = {field for field, value in reported.items() if value is not None}
        return replace(
            self,
            sm_count=reported["sm_count"] or self.sm_count,
            l2_bytes=reported["l2_bytes"] or self.l2_bytes,
            unverified=self.unverified - known,
        )
