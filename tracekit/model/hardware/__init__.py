"""Peak rates of accelerators: the one table that "percent of peak" is measured against.

The figures stand in ``devices.toml``, each with its source and date. They are dense (a datasheet's
sparsity figures are halved) and decimal: GB = 1e9 bytes, tera = 1e12. ``None`` means *not known
here*, never zero; what a device cannot do at all stands in ``unsupported``. A device that is not in
the table has no peak, and neither has a MIG slice: the peak of the whole GPU would make every share
of it too small.
"""

from __future__ import annotations

from tracekit.model.hardware.device import Cell, Hardware, pcie_gb_per_s
from tracekit.model.hardware.peaks import PeakBandwidth, find, is_mig, lookup, peak_bandwidth
from tracekit.model.hardware.table import HARDWARE, merged, parse_devices

__all__ = [
    "HARDWARE",
    "Cell",
    "Hardware",
    "PeakBandwidth",
    "find",
    "is_mig",
    "lookup",
    "merged",
    "parse_devices",
    "pcie_gb_per_s",
    "peak_bandwidth",
]
