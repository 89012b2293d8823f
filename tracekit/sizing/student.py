"""Quantiles of Student's t distribution, for intervals of a few measurements."""

from __future__ import annotations

import math

__all__ = ["t_quantile"]

_STEPS = 200


def t_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution.

    Args:
        probability: Between 0.5 and 1, both exclusive.
        degrees: Degrees of freedom, at least 1.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4 (the
    distribution for whole degrees of freedom), inverted by bisection.
    """
    low, high = 0.0, 1.0
    while _cdf(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def _cdf(t: float, degrees: int) -> float:
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    term, total = 1.0, 0.0
    if degrees % 2:
        term = cosine
        for k in range(1, degrees - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        return 0.5 + (theta + sine * total) / math.pi
    for k in range(0, degrees - 1, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    return 0.5 + sine * total / 2
