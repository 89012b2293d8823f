"""Rates of links from counters that only grow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracekit.errors import InputError

__all__ = ["counter_rates", "drop_frac"]

_KIB = 1024


def counter_rates(time_s: npt.ArrayLike, counter_kib: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the rate between the samples of a counter of KiB, bytes/s.

    NVML's NVLink throughput fields (138 to 141) count KiB since the driver was loaded.

    Args:
        time_s: float64[n], rising.
        counter_kib: float64[n]; NaN where a sample failed.

    Returns:
        float64[n-1]; NaN over a failed sample, and where the counter fell: it started anew.

    Raises:
        InputError: Fewer than two samples, or times that do not rise.
    """
    time, counter = np.asarray(time_s, np.float64), np.asarray(counter_kib, np.float64)
    if len(time) < 2:
        message = "link counter: fewer than two samples"
        raise InputError(message)
    steps = np.diff(time)
    if not np.all(steps > 0):
        message = "link counter: times do not rise"
        raise InputError(message)
    gained = np.diff(counter)
    return np.where(gained >= 0, gained * _KIB / steps, np.nan)


def drop_frac(achieved_bytes_per_s: float, peak_bytes_per_s: float) -> float:
    """Return the share of a link's peak that is not reached, 0..1 (negative above the peak)."""
    return 1 - achieved_bytes_per_s / peak_bytes_per_s
