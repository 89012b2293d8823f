"""Integrals of step functions over windows as a machine-code sweep: the fast path of `sampling`."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import compiled

__all__ = ["integrals"]

Int64: TypeAlias = NDArray[np.int64]
_RO = "ro(int64[::1])"
_last_until = sweeps._last_until


@compiled()
def _integrals_in_order(
    start: Int64, end: Int64, value: NDArray[Any], s: Int64, e: Int64
) -> tuple[NDArray[Any], Int64]:
    """`integrals` of windows that follow each other: sums go along, nothing is kept by cell."""
    integral, known = np.zeros(s.size, value.dtype), np.zeros(s.size, np.int64)
    nothing = value.dtype.type(0)
    total, time, place = nothing, 0, -1
    whole, length = nothing, 0
    for i in range(s.size):
        if e[i] > s[i]:
            until, had = nothing, 0
            while place + 1 < start.size and start[place + 1] <= s[i]:
                place += 1
                part = value[place] * (end[place] - start[place])
                total += part
                time += end[place] - start[place]
                whole, length = total - part, time - (end[place] - start[place])
            if place >= 0:
                part_ns = min(s[i], end[place]) - start[place]
                until = whole + value[place] * part_ns
                had = length + part_ns
            while place + 1 < start.size and start[place + 1] <= e[i]:
                place += 1
                part = value[place] * (end[place] - start[place])
                total += part
                time += end[place] - start[place]
                whole, length = total - part, time - (end[place] - start[place])
            if place >= 0:
                part_ns = min(e[i], end[place]) - start[place]
                integral[i] = whole + value[place] * part_ns - until
                known[i] = length + part_ns - had
    return integral, known


@compiled(
    f"Tuple((int64[::1], int64[::1]))({_RO}, {_RO}, {_RO}, {_RO}, {_RO})",
    f"Tuple((float64[::1], int64[::1]))({_RO}, {_RO}, ro(float64[::1]), {_RO}, {_RO})",
)
def integrals(
    start: Int64, end: Int64, value: NDArray[Any], s: Int64, e: Int64
) -> tuple[NDArray[Any], Int64]:
    """Integral of a step function over each window, and how much of the window has a value.

    Args:
        start: int64[n], ns, starts of disjoint cells, ascending.
        end: int64[n], ns, their ends.
        value: int64[n] or float64[n], value in each cell.
        s: int64[m], ns, starts of windows.
        e: int64[m], ns, their ends.

    Returns:
        ``(integral, covered)``, both [m], in value times ns and in ns; 0 for empty windows.
    """
    in_order = True
    for i in range(s.size):
        in_order &= e[i] >= s[i] and (i == 0 or s[i] >= e[i - 1])
    if in_order:
        return _integrals_in_order(start, end, value, s, e)
    whole, length = np.empty_like(value), np.empty(start.size, np.int64)
    nothing = value.dtype.type(0)
    total, time = nothing, 0
    for i in range(start.size):
        part = value[i] * (end[i] - start[i])
        total += part
        time += end[i] - start[i]
        # What stood before a cell is the sum up to it less its own part: sums of floats come out
        # as NumPy's do.
        whole[i], length[i] = total - part, time - (end[i] - start[i])
    integral, known = np.zeros(s.size, value.dtype), np.zeros(s.size, np.int64)
    place = 0
    for i in range(s.size):
        if e[i] > s[i] and start.size:
            place = _last_until(start, s[i], max(place, 0))
            until, had = nothing, 0
            if place >= 0:
                part_ns = min(s[i], end[place]) - start[place]
                until = whole[place] + value[place] * part_ns
                had = length[place] + part_ns
            last = _last_until(start, e[i], max(place, 0))
            if last >= 0:
                part_ns = min(e[i], end[last]) - start[last]
                integral[i] = whole[last] + value[last] * part_ns - until
                known[i] = length[last] + part_ns - had
    return integral, known
