"""Isotonic regression: the non-decreasing curve that lies closest to noisy levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["crossing", "isotonic"]


def isotonic(values: Sequence[float], weights: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the non-decreasing sequence with the least weighted squared distance to `values`.

    Args:
        values: In the order of the regressor.
        weights: Positive, one a value.

    Returns:
        float64, as long as `values`; its weighted mean is that of `values`.

    Source: pool adjacent violators (Ayer et al., 1955).
    """
    means: list[float] = []
    masses: list[float] = []
    lengths: list[int] = []
    for value, weight in zip(values, weights, strict=True):
        mean, mass, length = float(value), float(weight), 1
        while means and means[-1] >= mean:
            last, other, n = means.pop(), masses.pop(), lengths.pop()
            mean = (last * other + mean * mass) / (other + mass)
            mass, length = mass + other, length + n
        means.append(mean)
        masses.append(mass)
        lengths.append(length)
    return np.repeat(np.array(means, dtype=np.float64), lengths)


def crossing(x: Sequence[float], curve: npt.NDArray[np.float64], target: float) -> float | None:
    """Return where a non-decreasing curve reaches `target`, linear between its points.

    Args:
        x: Increasing.
        curve: Non-decreasing, one a point of `x`.
        target: Height.

    Returns:
        The last x at which the curve is not above `target`; the first x where it starts above;
        None where it never gets above: beyond the last point nothing is known.
    """
    above = np.flatnonzero(curve > target)
    if not len(above):
        return None
    first = int(above[0])
    if first == 0:
        return float(x[0])
    rise = float(curve[first] - curve[first - 1])
    part = (target - float(curve[first - 1])) / rise
    return float(x[first - 1] + part * (x[first] - x[first - 1]))
