"""The link between a GPU and host memory."""

from __future__ import annotations

import re

from tracekit.model.hardware.device import pcie_gb_per_s

__all__ = ["host_link_gb_per_s"]

_GENERATION = (
    (r"^(?:GH100|GB10\d|GB20\d)$", 5),
    (r"^(?:GA10\d|AD10\d)$", 4),
    (r"^(?:TU10\d|GV100)$", 3),
)
_COHERENT = re.compile(r"\bG[HB]\d00\b")
"""Superchips reach host memory over NVLink-C2C."""


def host_link_gb_per_s(chip: str | None, name: str | None) -> float | None:
    """Return the peak of the link to host memory in one direction, x16 lanes assumed.

    Args:
        chip: Reported chip name, for example ``GH100``; None if absent.
        name: Reported GPU name.

    Returns:
        GB/s; None for an unknown chip or a superchip.

    Source: PCI Express base specification, 128b/130b coding.
    """
    if name and _COHERENT.search(name):
        return None
    for pattern, generation in _GENERATION:
        if chip and re.search(pattern, chip.upper()):
            return pcie_gb_per_s(generation)
    return None
