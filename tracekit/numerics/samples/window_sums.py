"""Sums of samples per window: of those inside it, or else of those that reach into it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import accelerated, compiled
from tracekit.numerics.samples import sampling

__all__ = ["Pooled", "Spoken", "pooled", "spoken"]

Int64: TypeAlias = NDArray[np.int64]
Int32: TypeAlias = NDArray[np.int32]
_last_until = sweeps._last_until


class Spoken(NamedTuple):
    """Sums over the cells that count for each of m windows.

    Attributes:
        cells: int32[m], cells fully inside; where there is none, those that share time with it.
        valid_cells: int32[m], the valid ones of these.
        integral: float64[m], sum of value times ns of valid cells, cut to the window where no cell
            is inside.
        covered_ns: int64[m], time of valid cells, cut likewise.
        subsample: bool[m], whether no cell is inside.
    """

    cells: Int32
    valid_cells: Int32
    integral: NDArray[np.float64]
    covered_ns: Int64
    subsample: NDArray[np.bool_]


def spoken(samples: sampling.Cells, valid: ArrayLike, starts: ArrayLike, ends: ArrayLike) -> Spoken:
    """Return sums over the cells that count for each window.

    Args:
        samples: All cells of one metric; values int64.
        valid: bool[n], which of them may be believed.
        starts: int64[m], ns.
        ends: int64[m], ns.

    Returns:
        The sums, exact as long as they stay below 2^53.
    """
    s, e = (np.ascontiguousarray(t, np.int64) for t in (starts, ends))
    mask = np.ascontiguousarray(valid, np.bool_)
    value = np.ascontiguousarray(samples.value, np.int64)
    return _searched(samples._replace(value=value), mask, s, e)


@compiled(
    "Tuple((int32[::1], int32[::1], float64[::1], int64[::1], boolean[::1]))"
    "(ro(int64[::1]), ro(int64[::1]), ro(int64[::1]), ro(boolean[::1]),"
    " ro(int64[::1]), ro(int64[::1]))"
)
def _swept(
    start: Int64, end: Int64, value: Int64, valid: NDArray[np.bool_], s: Int64, e: Int64
) -> tuple[Int32, Int32, NDArray[np.float64], Int64, NDArray[np.bool_]]:
    n_valid, time = np.zeros(start.size + 1, np.int64), np.zeros(start.size + 1, np.int64)
    total = np.zeros(start.size + 1, np.int64)
    for i in range(start.size):
        length = end[i] - start[i] if valid[i] else 0
        n_valid[i + 1] = n_valid[i] + (1 if valid[i] else 0)
        time[i + 1] = time[i] + length
        total[i + 1] = total[i] + value[i] * length
    cells, counted = np.empty(s.size, np.int32), np.empty(s.size, np.int32)
    integral, covered = np.empty(s.size, np.float64), np.empty(s.size, np.int64)
    subsample = np.empty(s.size, np.bool_)
    begun, ended = 0, 0
    for i in range(s.size):
        begun = _last_until(start, s[i] - 1, max(begun, 0))
        # Most windows are shorter than a cell: one look shows that none is inside.
        subsample[i] = begun + 1 >= end.size or end[begun + 1] > e[i]
        if not subsample[i]:
            last = _last_until(end, e[i], begun + 1)
            cells[i] = last - begun
            counted[i] = n_valid[last + 1] - n_valid[begun + 1]
            integral[i] = total[last + 1] - total[begun + 1]
            covered[i] = time[last + 1] - time[begun + 1]
            continue
        ended = _last_until(end, s[i], max(ended, 0))
        n, seen, weighed = 0, 0, 0
        k = ended + 1
        while k < start.size and start[k] < e[i]:
            if valid[k]:
                n += 1
                shared = max(min(end[k], e[i]) - max(start[k], s[i]), 0)
                seen += shared
                weighed += value[k] * shared
            k += 1
        cells[i] = k - ended - 1
        counted[i], covered[i], integral[i] = n, seen, weighed
    return cells, counted, integral, covered, subsample


def _searched_swept(
    samples: sampling.Cells, valid: NDArray[np.bool_], s: Int64, e: Int64
) -> Spoken:
    begin, end = (np.ascontiguousarray(t, np.int64) for t in (samples.start, samples.end))
    value = np.ascontiguousarray(samples.value, np.int64)
    return Spoken(*_swept(begin, end, value, valid, s, e))


@accelerated(_searched_swept)
def _searched(samples: sampling.Cells, valid: NDArray[np.bool_], s: Int64, e: Int64) -> Spoken:
    found = sampling.cells_of(samples, s, e)
    short = found.inside == 0
    rows = np.flatnonzero(short)
    first = np.where(short, found.first_over, found.first_inside)
    count = np.where(short, found.over, found.inside)
    length = np.where(valid, samples.end - samples.start, 0)
    integral = _between(samples.value.astype(np.int64) * length, first, count).astype(np.float64)
    covered = _between(length, first, count)
    over = sampling.over_windows(samples.keep(valid), s[rows], e[rows])
    integral[rows], covered[rows] = over.integral, over.covered_ns
    n_valid = _between(valid.astype(np.int64), first, count)
    return Spoken(count.astype(np.int32), n_valid.astype(np.int32), integral, covered, short)


def _between(values: Int64, first: Int64, count: Int64) -> Int64:
    """Sum of `count` values from `first` on."""
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(values)))
    between: Int64 = sums[first + count] - sums[first]
    return between


Float64: TypeAlias = NDArray[np.float64]

N, TIME, CELLS, VALID, COVERED, N_COVERED, N_SUBSAMPLE = range(7)
"""Rows of `Pooled.sums`."""
_N_SUMS = 7


class Pooled(NamedTuple):
    """Sums over the windows of each of g groups.

    Attributes:
        sums: int64[7, g]: how many windows, their ns, their cells, the valid ones of these, the ns
            that those cover, for how many windows they cover any, how many hold no whole cell.
        integral: float64[g], sum of value times covered ns.
        first: int64[g], first window, -1 for none.
        order: int32[k], the windows of all groups, group by group, each in their order.
        length_ns: int64[k], ns, in that order.
        square: float64[k], squared deviation of a window's integral from what the mean of its
            group gives for the time covered; in that order.
    """

    sums: Int64
    integral: Float64
    first: Int64
    order: Int32
    length_ns: Int64
    square: Float64


@compiled(
    "Tuple((int64[:, ::1], float64[::1], int64[::1], int32[::1], int64[::1], float64[::1]))"
    "(ro(int32[::1]), int64, ro(int64[::1]), ro(int64[::1]), ro(int32[::1]), ro(int32[::1]),"
    " ro(float64[::1]), ro(int64[::1]), ro(boolean[::1]))"
)
def _pooled_swept(
    group: Int32,
    n_groups: int,
    s: Int64,
    e: Int64,
    cells: Int32,
    valid: Int32,
    integral: Float64,
    covered: Int64,
    subsample: NDArray[np.bool_],
) -> tuple[Int64, Float64, Int64, Int32, Int64, Float64]:
    """`pooled` in two passes: sum, then fill."""
    sums, total = np.zeros((_N_SUMS, n_groups), np.int64), np.zeros(n_groups)
    first = np.full(n_groups, -1, np.int64)
    for i in range(group.size):
        own = group[i]
        if own >= 0:
            if first[own] < 0:
                first[own] = i
            sums[N, own] += 1
            sums[TIME, own] += e[i] - s[i]
            sums[CELLS, own] += cells[i]
            sums[VALID, own] += valid[i]
            sums[COVERED, own] += covered[i]
            sums[N_COVERED, own] += covered[i] > 0
            sums[N_SUBSAMPLE, own] += subsample[i]
            total[own] += integral[i]
    free, mean, n = np.zeros(n_groups, np.int64), np.zeros(n_groups), 0
    for own in range(n_groups):
        free[own] = n
        n += sums[N, own]
        if sums[COVERED, own] > 0:
            mean[own] = total[own] / sums[COVERED, own]
    order, length, square = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n)
    for i in range(group.size):
        own = group[i]
        if own >= 0:
            at = free[own]
            deviation = integral[i] - mean[own] * covered[i]
            order[at], length[at], square[at] = i, e[i] - s[i], deviation * deviation
            free[own] = at + 1
    return sums, total, first, order, length, square


def _pooled_of(group: Int32, n_groups: int, starts: Int64, ends: Int64, said: Spoken) -> Pooled:
    return Pooled(*_pooled_swept(group, n_groups, starts, ends, *said))


@accelerated(_pooled_of)
def pooled(group: Int32, n_groups: int, starts: Int64, ends: Int64, said: Spoken) -> Pooled:
    """Pool windows by group.

    Args:
        group: int32[m], group of each window, negative for none.
        n_groups: Number of groups.
        starts: int64[m], ns.
        ends: int64[m], ns.
        said: What samples say of each window.

    Returns:
        The sums.
    """
    order = np.argsort(group, kind="stable")[np.count_nonzero(group < 0) :]
    own = group[order]
    length = (ends - starts)[order]
    cells, valid, integral, covered, subsample = (column[order] for column in said)
    ones, some = np.ones(order.size, np.int64), covered > 0
    sums = np.zeros((_N_SUMS, n_groups), np.int64)
    for row, values in zip(
        sums, (ones, length, cells, valid, covered, some, subsample), strict=True
    ):
        np.add.at(row, own, values)
    total, first = np.zeros(n_groups), np.full(n_groups, -1, np.int64)
    np.add.at(total, own, integral)
    first[own[::-1]] = order[::-1]
    mean = np.divide(total, sums[COVERED], out=np.zeros(n_groups), where=sums[COVERED] > 0)
    square = (integral - mean[own] * covered) ** 2
    return Pooled(sums, total, first, order.astype(np.int32), length, square)
