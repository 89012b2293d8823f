"""How stable a load was, from the records of its requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.errors import InputError

__all__ = ["Percentile", "Stability", "confidence", "percentile", "stability"]

_FEWEST = {95: 20, 99: 100}
_MOST_SLOPES = 2000
"""Records that the slope is taken over; more are thinned evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A percentile, and whether there were enough values for it.

    Attributes:
        value: Linear between order statistics (Hyndman and Fan, type 7).
        insufficient_n: Whether there were fewer than 20 values for P95, 100 for P99.
    """

    value: float
    insufficient_n: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Latency of a load over time.

    Attributes:
        n: Requests.
        mean_s: Mean latency.
        cv: Standard deviation over mean; None with one request.
        p50: Median.
        p95: 95th percentile.
        p99: 99th percentile.
        drift_ms_per_min: Theil-Sen slope of latency over time; None with fewer than two times.
        requests_per_s: Requests over the time from the first to the last; None likewise.
    """

    n: int
    mean_s: float
    cv: float | None
    p50: Percentile
    p95: Percentile
    p99: Percentile
    drift_ms_per_min: float | None
    requests_per_s: float | None


def percentile(values: npt.ArrayLike, of_100: int) -> Percentile:
    """Return a percentile of values; see :class:`Percentile`."""
    array = np.asarray(values, dtype=np.float64)
    return Percentile(
        value=float(np.percentile(array, of_100)),
        insufficient_n=len(array) < _FEWEST.get(of_100, 1),
    )


def confidence(n: int, n_high: int, coverage_frac: float, provenance: float) -> float:
    """Return ``min(coverage, n/n_high up to 1, provenance)``: 0.8 is high, 0.5 medium."""
    return min(coverage_frac, min(1.0, n / n_high), provenance)


def stability(time_s: npt.ArrayLike, latency_s: npt.ArrayLike) -> Stability:
    """Return how stable latency was.

    Args:
        time_s: float64[n], when each request began; any order.
        latency_s: float64[n]; NaN where a request failed.

    Raises:
        InputError: No request has a time and a latency, or a latency is negative.
    """
    time, latency = np.asarray(time_s, np.float64), np.asarray(latency_s, np.float64)
    known = np.isfinite(time) & np.isfinite(latency)
    time, latency = time[known], latency[known]
    if not len(latency):
        message = "no request has a time and a latency"
        raise InputError(message)
    if np.any(latency < 0):
        message = "a latency is negative"
        raise InputError(message)
    mean, span = float(latency.mean()), float(np.ptp(time))
    return Stability(
        n=len(latency),
        mean_s=mean,
        cv=float(latency.std(ddof=1)) / mean if len(latency) > 1 and mean else None,
        p50=percentile(latency, 50),
        p95=percentile(latency, 95),
        p99=percentile(latency, 99),
        drift_ms_per_min=_drift(time, latency),
        requests_per_s=len(latency) / span if span else None,
    )


def _drift(time: npt.NDArray[np.float64], latency: npt.NDArray[np.float64]) -> float | None:
    """Median of the slopes between all pairs of requests."""
    order = np.argsort(time, kind="stable")
    if len(order) > _MOST_SLOPES:
        order = order[np.linspace(0, len(order) - 1, _MOST_SLOPES).round().astype(np.int64)]
    t, v = time[order], latency[order]
    first, second = np.triu_indices(len(t), 1)
    apart = t[second] - t[first]
    if not np.any(apart > 0):
        return None
    slopes = (v[second] - v[first])[apart > 0] / apart[apart > 0]
    return float(np.median(slopes)) * 1e3 * 60
