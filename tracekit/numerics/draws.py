"""Medians of many resamples of the same values, drawn once for all samples that agree in order."""

from __future__ import annotations

import functools
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import compiled

__all__ = ["DRAWS", "median_draws"]

Float64: TypeAlias = NDArray[np.float64]
Int64: TypeAlias = NDArray[np.int64]
_State: TypeAlias = tuple[int, int, int, int]

DRAWS = 2000
"""Resamples."""
_CELLS_AT_ONCE = 1 << 21
_DRAWN_PER_STEP = 10
_REMEMBERED = 64


def median_draws(values: Float64, rng: np.random.Generator) -> Float64:
    """Medians of resamples of some values.

    Args:
        values: float64[n].
        rng: Draws 2000 x n indices.

    Returns:
        float64[2000]; nan without values or where one is nan.
    """
    if values.size == 0:
        return np.full(DRAWS, np.nan)
    order = np.argsort(values).astype(np.min_scalar_type(values.size))
    low, high, after = _places(_state(rng), order.tobytes(), order.dtype.str)
    _set_state(rng, after)
    if np.isnan(values).any():
        return np.full(DRAWS, np.nan)
    lower, higher = values[order[low]], values[order[high]]
    medians: Float64 = lower if values.size % 2 else (lower + higher) / 2
    return medians


def _state(rng: np.random.Generator) -> _State:
    whole = rng.bit_generator.state
    inner = whole["state"]
    return inner["state"], inner["inc"], whole["has_uint32"], whole["uinteger"]


def _set_state(rng: np.random.Generator, state: _State) -> None:
    known = {"state": state[0], "inc": state[1]}
    held = {"has_uint32": state[2], "uinteger": state[3]}
    rng.bit_generator.state = {"bit_generator": "PCG64", "state": known, **held}


@functools.lru_cache(_REMEMBERED)
def _places(state: _State, order: bytes, dtype: str) -> tuple[Int64, Int64, _State]:
    """Places, among the values in ascending order, of both middle ones of each resample.

    They follow from the state of the generator and the order of the values alone. Every first
    baseline meets the generator in one state, and thinned samples are all of one size and in
    order: the same places come up again and again.

    Args:
        state: Of the generator.
        order: n integers: rows in ascending order of their values.
        dtype: Type of these integers.

    Returns:
        ``(low, high, state)``: int64[2000] twice, and the state of the generator afterwards.
    """
    rng = np.random.default_rng(0)
    _set_state(rng, state)
    rows = np.frombuffer(order, dtype).astype(np.int64)
    low, high = np.empty(DRAWS, np.int64), np.empty(DRAWS, np.int64)
    at_once = max(1, _CELLS_AT_ONCE // rows.size)
    for begin in range(0, DRAWS, at_once):
        own = slice(begin, min(begin + at_once, DRAWS))
        # Slices yield the same indices as one matrix, and uint32 the same as int64.
        drawn = rng.integers(0, rows.size, (own.stop - begin, rows.size), dtype=np.uint32)
        if sweeps.worth(drawn.size // _DRAWN_PER_STEP):
            _counted_middles(rows, drawn, low[own], high[own])
        else:
            low[own], high[own] = _sorted_middles(rows, drawn)
    return low, high, _state(rng)


def _sorted_middles(order: Int64, drawn: NDArray[np.uint32]) -> tuple[Int64, Int64]:
    # Floats are what NumPy sorts fastest.
    place = np.empty(order.size)
    place[order] = np.arange(order.size)
    ordered = np.sort(place[drawn], axis=1)
    low, high = ordered[:, (order.size - 1) // 2], ordered[:, order.size // 2]
    return low.astype(np.int64), high.astype(np.int64)


@compiled("void(ro(int64[::1]), ro(uint32[:, ::1]), int64[::1], int64[::1])")
def _counted_middles(order: Int64, drawn: NDArray[np.uint32], low: Int64, high: Int64) -> None:
    """Middle places by counting how often each value was drawn, instead of sorting."""
    n = drawn.shape[1]
    times = np.empty(n, np.int32)
    for row in range(drawn.shape[0]):
        times[:] = 0
        for column in range(n):
            times[drawn[row, column]] += 1
        place, until = 0, times[order[0]]
        while 2 * until < n:
            place += 1
            until += times[order[place]]
        low[row] = place
        if 2 * until == n:
            place += 1
            while times[order[place]] == 0:
                place += 1
        high[row] = place
