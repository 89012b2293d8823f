"""What samples say about the windows of each group: sums, and how far windows are from them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import sweeps
from tracekit.numerics.jit import compiled
from tracekit.numerics.samples.window_sums import Spoken

__all__ = ["Pooled", "pooled"]

Int64: TypeAlias = NDArray[np.int64]
Int32: TypeAlias = NDArray[np.int32]
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
    if sweeps.worth(group.size):
        return Pooled(*_pooled_swept(group, n_groups, starts, ends, *said))
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
