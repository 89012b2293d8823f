"""Medians of bootstrap draws in one go: the machine-code twin of drawing indices with NumPy.

The draws are those of `numpy.random.Generator.integers`, digit for digit, without a matrix of them:
the generator's own steps are taken here, and it is left where NumPy would have left it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.jit import compiled

__all__ = ["median_draws"]

Float64: TypeAlias = NDArray[np.float64]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt64: TypeAlias = NDArray[np.uint64]
_LOW = (1 << 64) - 1
_LOW_HALF, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
# The multiplier of PCG64 in two words, and the shift that picks the rotation.
_FACTOR_HIGH, _FACTOR_LOW = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
_ROTATION, _WORD = np.uint64(58), np.uint64(63)
_ONE, _NONE = np.uint64(1), np.uint64(0)


def median_draws(values: Float64, rng: np.random.Generator, n_draws: int) -> Float64:
    """Median of each of some resamples with replacement.

    Args:
        values: float64[n], no nan, at least two.
        rng: A generator of `PCG64`, as `numpy.random.default_rng` returns; it moves on as by
            ``rng.integers(0, n, (n_draws, n))``.
        n_draws: Number of resamples.

    Returns:
        float64[n_draws].

    Source: PCG XSL RR 128/64, after O'Neill (2014); bounded integers after Lemire (2019).
    """
    order = np.argsort(values)
    known = rng.bit_generator.state
    of, add = known["state"]["state"], known["state"]["inc"]
    state = np.array([of >> 64, of & _LOW, known["has_uint32"], known["uinteger"]], np.uint64)
    inc = np.array([add >> 64, add & _LOW], np.uint64)
    medians = _medians(values[order], order, state, inc, n_draws)
    high, low, has, kept = state.tolist()
    pcg = {"state": (high << 64) | low, "inc": add}
    rng.bit_generator.state = dict(known) | {"state": pcg, "has_uint32": has, "uinteger": kept}
    return medians


@compiled()
def _step(high: np.uint64, low: np.uint64, inc: UInt64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """The next state, and the 64 bits that it gives."""
    # The upper word of the product of the lower words, by halves.
    a, b = low & _LOW_HALF, low >> _HALF
    c, d = _FACTOR_LOW & _LOW_HALF, _FACTOR_LOW >> _HALF
    cross = b * c + ((a * c) >> _HALF)
    over = b * d + (cross >> _HALF) + ((a * d + (cross & _LOW_HALF)) >> _HALF)
    high = high * _FACTOR_LOW + low * _FACTOR_HIGH + over + inc[0]
    low = low * _FACTOR_LOW + inc[1]
    if low < inc[1]:
        high += _ONE
    mixed, turn = high ^ low, high >> _ROTATION
    return high, low, (mixed >> turn) | (mixed << ((_WORD - turn + _ONE) & _WORD))


@compiled()
def _count(times: Int32, state: UInt64, inc: UInt64) -> None:
    """Draw as many indices as there are counts, and count them; the state moves on."""
    # In variables instead of the array they stay in registers.
    high, low, has, kept = state[0], state[1], state[2], state[3]
    n = np.uint64(times.size)
    least = (_LOW_HALF - n + _ONE) % n
    drawn = 0
    while drawn < times.size:
        half = kept
        if has == _NONE:
            high, low, word = _step(high, low, inc)
            half, kept = word & _LOW_HALF, word >> _HALF
        has = _ONE - has
        scaled = half * n
        if (scaled & _LOW_HALF) >= least:
            times[scaled >> _HALF] += 1
            drawn += 1
    state[0], state[1], state[2], state[3] = high, low, has, kept


@compiled("float64[::1](float64[::1], int64[::1], uint64[::1], uint64[::1], int64)")
def _medians(ascending: Float64, order: Int64, state: UInt64, inc: UInt64, n_draws: int) -> Float64:
    """Medians by counting how often each value was drawn, instead of sorting."""
    n = ascending.size
    medians = np.empty(n_draws)
    times = np.empty(n, np.int32)
    for row in range(n_draws):
        times[:] = 0
        _count(times, state, inc)
        low, below = 0, times[order[0]]
        while 2 * below < n:
            low += 1
            below += times[order[low]]
        high = low
        if 2 * below == n:
            high = low + 1
            while times[order[high]] == 0:
                high += 1
        medians[row] = ascending[low] if n % 2 else (ascending[low] + ascending[high]) / 2
    return medians
