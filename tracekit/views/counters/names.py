"""Exact names of the sampled counters that views look at, unit in brackets included."""

from __future__ import annotations

__all__ = [
    "DRAM",
    "GR_ACTIVE",
    "HIT_RATES",
    "LINK_RX",
    "LINK_TX",
    "MAIN_PART",
    "OCCUPANCY",
    "OTHERS",
    "SMS_ACTIVE",
    "TENSOR",
]

GR_ACTIVE = "GR Active [Throughput %]"
"""Counter of the share of time with any work."""
DRAM = (
    ("DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]"),
    ("DRAM Bandwidth [Throughput %]",),
)
"""Counters that add up to all DRAM traffic, best first."""
HIT_RATES = (
    "L2 Sector Hit Rate from L1 [Ratio %]",
    "L2 Hit Rate from L1 [Ratio %]",
    "L2 Sector Hit Rate [Ratio %]",
    "L2 Hit Rate [Ratio %]",
)
"""Counters of the share of L2 look-ups that hit, best first."""
OCCUPANCY = ("SM Warps Active [Throughput %]", "Compute Warps in Flight [Throughput %]")
"""Counters of resident warps as a share of the most that fit, best first."""
SMS_ACTIVE = ("SMs Active [Throughput %]",)
"""Counter of the share of multiprocessors with work."""
TENSOR = "Tensor Active [Throughput %]"
"""Counter of the share of time with work in tensor cores."""
OTHERS = (*HIT_RATES, *OCCUPANCY, *SMS_ACTIVE, TENSOR)
"""Counters of no traffic."""
_LINK_PARTS = (
    "Requests Protocol Data",
    "Requests User Data",
    "Responses Protocol Data",
    "Responses User Data",
)
MAIN_PART = _LINK_PARTS.index("Requests User Data")
"""Place among `LINK_RX` and `LINK_TX` of the counter that carries most."""
LINK_RX = tuple(f"NVLink RX {part} [Throughput %]" for part in _LINK_PARTS)
"""Counters that add up to what a GPU receives over NVLink."""
LINK_TX = tuple(f"NVLink TX {part} [Throughput %]" for part in _LINK_PARTS)
"""Counters that add up to what a GPU sends over NVLink."""
