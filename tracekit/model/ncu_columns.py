"""Which counters of Nsight Compute are kept, and under which names."""

from __future__ import annotations

__all__ = ["METRICS", "STALLS"]

STALLS = (
    "long_scoreboard",
    "short_scoreboard",
    "math_pipe_throttle",
    "lg_throttle",
    "mio_throttle",
    "gmma",
    "barrier",
    "wait",
)
"""Reasons for which a warp does not issue, as far as a reading of them is known."""

METRICS: dict[str, tuple[str, str]] = {
    "time_ns": ("gpu__time_duration.sum", "ns"),
    "dram_read_bytes": ("dram__bytes_read.sum", "bytes"),
    "l2_sectors": ("lts__t_sectors.sum", ""),
    "l2_hits": ("lts__t_sectors_lookup_hit.sum", ""),
    "l2_misses": ("lts__t_sectors_lookup_miss.sum", ""),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct", "%"),
    "l2_read_sectors": ("lts__t_sectors_op_read.sum", ""),
    "l2_read_hits": ("lts__t_sectors_op_read_lookup_hit.sum", ""),
    "l2_read_misses": ("lts__t_sectors_op_read_lookup_miss.sum", ""),
    "l2_tex_sectors": ("lts__t_sectors_srcunit_tex.sum", ""),
    "l2_tex_hits": ("lts__t_sectors_srcunit_tex_lookup_hit.sum", ""),
    "l2_tex_misses": ("lts__t_sectors_srcunit_tex_lookup_miss.sum", ""),
    "warps_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active", "%"),
    "most_warps_pct": ("sm__maximum_warps_per_active_cycle_pct", "%"),
    "tensor_pct": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%"),
    "alu_pct": ("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", "%"),
    "issue_active": ("smsp__issue_active.avg.per_cycle_active", ""),
    "warp_latency": ("smsp__average_warp_latency_per_inst_issued.ratio", ""),
    **{
        f"stall_{why}": (f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio", "")
        for why in STALLS
    },
}
"""Column of the catalog table ``ncu_kernels`` to the counter it holds and its unit."""
