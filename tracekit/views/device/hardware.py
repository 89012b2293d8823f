"""What the hardware table and the user say of a GPU of a trace."""

from __future__ import annotations

from tracekit.model.hardware import Hardware, lookup, peak_bandwidth
from tracekit.model.inputs import Gpu
from tracekit.trace import Trace

__all__ = ["achievable_frac", "gpu_hardware", "peak_bytes_per_s"]


def gpu_hardware(gpu: Gpu) -> Hardware | None:
    """Return the table row of a GPU of the trace, None when it is not in the table."""
    return lookup(
        gpu.name or None, gpu.chip or None, sm_count=gpu.sm_count, memory_bytes=gpu.memory_bytes
    )


def peak_bytes_per_s(trace: Trace, gpu: Gpu) -> float | None:
    """Return the peak memory bandwidth of a GPU in bytes/s, None when it is not known."""
    row = lookup(gpu.name, gpu.chip, sm_count=gpu.sm_count, memory_bytes=gpu.memory_bytes)
    given = trace.settings
    named = (given.hardware_achievable_gbps, given.hardware_peak_gbps)
    peak = peak_bandwidth(
        row,
        achievable_gb_per_s=next((rate for rate in named if rate is not None), None),
        reported_bytes_per_s=gpu.bandwidth_bytes_per_s,
    )
    return None if peak is None else peak.gb_per_s * 1e9


def achievable_frac(trace: Trace, gpu: Gpu) -> float:
    """Return what the user measured as achievable DRAM bandwidth, as a share of the peak; else 1.

    Args:
        trace: Has the settings.
        gpu: One of its GPUs.
    """
    achievable = trace.settings.hardware_achievable_gbps
    peak = trace.settings.hardware_peak_gbps
    if peak is None:
        reported = gpu.bandwidth_bytes_per_s
        found = peak_bandwidth(gpu_hardware(gpu), reported_bytes_per_s=reported)
        peak = None if found is None else found.gb_per_s
    if achievable is None or peak is None:
        return 1.0
    return min(1.0, float(achievable) / float(peak))
