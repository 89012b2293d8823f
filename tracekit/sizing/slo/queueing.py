"""Latency under load: ``L = L0 + c·ρ/(1-ρ)`` with ``ρ = q/μ``, fitted without extrapolating.

Source: the waiting time of a single queue (M/M/1 and M/G/1 differ in c only). For a given μ the
problem is linear in (L0, c), both not negative; μ is searched above the largest observed rate.
Residuals are relative to the level's latency, because the scatter of latencies grows with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["QueueFit", "fit_queue"]

_DRAWS = 2000
_GRID = 400
_NEAREST, _FARTHEST = 1e-4, 9.0
"""Capacities searched, as a share of the largest rate above it."""
_LEAST_RISE = 0.05
"""Latency that grows by less over all levels places no capacity."""
_GOLDEN = (5**0.5 - 1) / 2
_ROUNDS = 120
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFit:
    """A fitted queue.

    Attributes:
        capacity_qps: Rate at which the queue never empties (μ); None where latency did not rise
            enough to place it.
        capacity_low_qps: Lower end of its 95 % interval (residual bootstrap).
        capacity_high_qps: Upper end.
        base_s: Latency without load (L0).
        scale_s: Growth of the latency (c).
        residual_frac: Root mean square of the relative residuals.
        draws: Shape (draws, 3): μ, L0 and c of each bootstrap draw.
    """

    capacity_qps: float | None
    capacity_low_qps: float | None
    capacity_high_qps: float | None
    base_s: float
    scale_s: float
    residual_frac: float
    draws: Floats

    def rate_at(self, latency_s: float) -> float | None:
        """Return the rate at which the curve reaches `latency_s`; None if it cannot be placed."""
        if self.capacity_qps is None:
            return None
        return float(_rate(latency_s, self.capacity_qps, self.base_s, self.scale_s))

    def interval_at(self, latency_s: float) -> tuple[float, float]:
        """Return the 95 % interval of :meth:`rate_at`."""
        rates = _rate(latency_s, *self.draws.T)
        low, high = (float(v) for v in np.percentile(rates, (2.5, 97.5)))
        rate = self.rate_at(latency_s)
        # Draws lie on the grid of the search, the point estimate between its points.
        return (low, high) if rate is None else (min(low, rate), max(high, rate))

    def latency_at(self, qps: float) -> float | None:
        """Return the curve's latency at a rate below the capacity, seconds."""
        if self.capacity_qps is None or qps >= self.capacity_qps:
            return None
        rho = qps / self.capacity_qps
        return self.base_s + self.scale_s * rho / (1 - rho)


def _rate(
    latency: float, mu: float | Floats, base: float | Floats, scale: float | Floats
) -> Floats:
    """``μx/(1+x)`` with ``x = (L-L0)/c``; 0 where the base alone is above."""
    room = np.maximum(0.0, latency - np.asarray(base))
    with np.errstate(divide="ignore", invalid="ignore"):
        x = room / np.asarray(scale)
        rate = np.asarray(mu) * np.where(np.isinf(x), 1.0, x / (1 + x))
    return np.where(room == 0, 0.0, rate)


def fit_queue(qps: npt.ArrayLike, latency_s: npt.ArrayLike) -> QueueFit:
    """Return the queue that fits levels of load best.

    Args:
        qps: float64[n], positive and distinct, n >= 4.
        latency_s: float64[n], positive.
    """
    q, latency = np.asarray(qps, dtype=np.float64), np.asarray(latency_s, dtype=np.float64)
    grid = q.max() * (1 + np.geomspace(_NEAREST, _FARTHEST, _GRID))
    errors, _, _ = _solve(q, latency[None, :], grid)
    best = int(np.argmin(errors[0]))
    mu = _refined(q, latency, grid, best)
    _, base, scale = (float(part[0, 0]) for part in _solve(q, latency[None, :], np.array([mu])))
    fitted = base + scale * (q / mu) / (1 - q / mu)
    residuals = latency / fitted - 1
    rises = fitted.max() > fitted.min() * (1 + _LEAST_RISE)
    placed = rises and best < len(grid) - 1
    draws = _bootstrap(q, fitted, residuals, grid)
    low, high = (float(v) for v in np.percentile(draws[:, 0], (2.5, 97.5)))
    low, high = min(low, mu), max(high, mu)
    return QueueFit(
        capacity_qps=mu if placed else None,
        capacity_low_qps=low if placed else None,
        # An interval that reaches the edge of the search has no upper end.
        capacity_high_qps=high if placed and high < grid[-2] else None,
        base_s=base,
        scale_s=scale,
        residual_frac=float(np.sqrt(np.mean(residuals**2))),
        draws=draws,
    )


def _solve(q: Floats, latencies: Floats, grid: Floats) -> tuple[Floats, Floats, Floats]:
    """Relative squared error, L0 and c, each of shape (draws, capacities).

    Non-negative least squares in two unknowns: the free solution where both are positive, else the
    better of the two with one unknown at zero.
    """
    x = q[None, :] / grid[:, None]
    x = x / (1 - x)
    w = 1 / latencies
    s0, s1, s2 = (w**2).sum(1)[:, None], w**2 @ x.T, w**2 @ (x.T**2)
    y0, y1 = w.sum(1)[:, None], w @ x.T
    determinant = s0 * s2 - s1**2
    with np.errstate(divide="ignore", invalid="ignore"):
        base = (y0 * s2 - y1 * s1) / determinant
        scale = (y1 * s0 - y0 * s1) / determinant
        only_base, only_scale = np.broadcast_to(y0 / s0, s1.shape), y1 / s2
    n = len(q)

    def error(a: Floats, b: Floats) -> Floats:
        squares = a**2 * s0 + 2 * a * b * s1 + b**2 * s2
        return np.asarray(np.maximum(0.0, n - 2 * (a * y0 + b * y1) + squares))

    zero = np.zeros_like(s1)
    flat = error(only_base, zero) <= error(zero, only_scale)
    free = (base >= 0) & (scale >= 0) & np.isfinite(base)
    base = np.where(free, base, np.where(flat, only_base, zero))
    scale = np.where(free, scale, np.where(flat, zero, only_scale))
    return error(base, scale), base, scale


def _refined(q: Floats, latency: Floats, grid: Floats, best: int) -> float:
    """The capacity of the least error between the grid's neighbours: golden-section search."""
    top = q.max()
    low = float(np.log(grid[max(0, best - 1)] / top - 1))
    high = float(np.log(grid[min(len(grid) - 1, best + 1)] / top - 1))

    def error(place: float) -> float:
        mu = top * (1 + np.exp(place))
        _, base, scale = (float(v[0, 0]) for v in _solve(q, latency[None, :], np.array([mu])))
        x = q / mu / (1 - q / mu)
        # Summed anew: the expanded square of _solve loses digits near zero.
        return float((((base + scale * x) / latency - 1) ** 2).sum())

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = error(left), error(right)
    for _ in range(_ROUNDS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = error(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = error(right)
    return float(top * (1 + np.exp((low + high) / 2)))


def _bootstrap(q: Floats, fitted: Floats, residuals: Floats, grid: Floats) -> Floats:
    """μ, L0 and c of fits to the curve with its residuals drawn anew."""
    n = len(q)
    inflated = (residuals - residuals.mean()) * np.sqrt(n / max(1, n - 3))
    drawn = np.random.default_rng(0).choice(inflated, size=(_DRAWS, n))
    latencies = np.maximum(fitted[None, :] * (1 + drawn), fitted.min() * 1e-3)
    errors, base, scale = _solve(q, latencies, grid)
    best = errors.argmin(axis=1)
    rows = np.arange(_DRAWS)
    return np.stack([grid[best], base[rows, best], scale[rows, best]], axis=1)
