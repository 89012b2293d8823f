"""Where the blocks of a cache lie in memory: strides, runs, scatter, slack and relocations.

Blocks of one group (one sequence, layer and kind) are ordered by their logical index; only
neighbours with consecutive indices form a pair. Everything returned is an exact count, so rows of
a coarser level come from pooled pairs and summed counts, never from a mean of ratios.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracekit.numerics.overfetch import count_granules, group_starts, sums

Int64: TypeAlias = NDArray[np.int64]
Float64: TypeAlias = NDArray[np.float64]

PAGE_BYTES = 2 << 20


@dataclass(frozen=True)
class Layout:
    """Exact counts for g groups of blocks.

    Attributes:
        group: int64[g], label, ascending.
        blocks: int64[g].
        duplicates: int64[g], rows dropped because a later row had the same group and index.
        pairs: int64[g], neighbours with consecutive indices.
        contiguous: int64[g], pairs without a gap.
        backward: int64[g], pairs with a negative stride.
        overlaps: int64[g], blocks that begin inside the block below them: a fault of the data.
        runs: int64[g], contiguous pieces in logical order.
        bytes: int64[g], size of all blocks.
        used_bytes: int64[g], bytes in use.
        span_bytes: int64[g], from the lowest to the highest address (summed over sequences).
        pages: int64[g], 2 MiB pages touched (summed over sequences).
        pages_min: int64[g], pages that the bytes would need (summed over sequences).
        stride_mean_abs_bytes: float64[g], nan without pairs.
        stride_med_abs_bytes: float64[g], nan without pairs.
    """

    group: Int64
    blocks: Int64
    duplicates: Int64
    pairs: Int64
    contiguous: Int64
    backward: Int64
    overlaps: Int64
    runs: Int64
    bytes: Int64
    used_bytes: Int64
    span_bytes: Int64
    pages: Int64
    pages_min: Int64
    stride_mean_abs_bytes: Float64
    stride_med_abs_bytes: Float64

    @property
    def contiguity_frac(self) -> Float64:
        """float64[g], share of pairs without a gap; 1 without pairs."""
        share = np.ones(self.pairs.size)
        np.divide(self.contiguous, self.pairs, out=share, where=self.pairs > 0)
        return share

    @property
    def fragmentation_frac(self) -> Float64:
        """float64[g], the fragmentation index F: share of pairs with a gap; 0 without pairs."""
        return 1 - self.contiguity_frac

    @property
    def run_mean_bytes(self) -> Float64:
        """float64[g], mean length of a contiguous run."""
        return self.bytes / self.runs

    @property
    def scatter_frac(self) -> Float64:
        """float64[g], share of the span that is not the group's."""
        return 1 - self.bytes / self.span_bytes

    @property
    def internal_frac(self) -> Float64:
        """float64[g], internal fragmentation: share of the blocks' bytes not in use."""
        return 1 - self.used_bytes / self.bytes

    @property
    def page_ratio(self) -> Float64:
        """float64[g], pages touched over pages needed; means little below 2 MiB."""
        return self.pages / self.pages_min


def layout(
    group: ArrayLike,
    index: ArrayLike,
    address: ArrayLike,
    size_bytes: ArrayLike,
    used_bytes: ArrayLike,
    pool: ArrayLike | None = None,
) -> Layout:
    """Measure the memory layout of block lists.

    Args:
        group: int64[n], label of (device, sequence, layer, kind): pairs form inside it only.
        index: int64[n], logical index of the block; of equal indices the last row counts.
        address: int64[n], bytes.
        size_bytes: int64[n], at least 1.
        used_bytes: int64[n].
        pool: int64[n], coarser label (layer, device) to report by, the same for all rows of a
            group; None reports by group.

    Returns:
        Counts for each reported label.
    """
    columns = (group if pool is None else pool, group, index, address, size_bytes, used_bytes)
    p, g, i, a, z, u = (np.asarray(column, np.int64) for column in columns)
    order = np.lexsort((i, g, p))
    p, g, i = p[order], g[order], i[order]
    last = np.ones(p.size, np.bool_)
    last[:-1] = (p[1:] != p[:-1]) | (g[1:] != g[:-1]) | (i[1:] != i[:-1])
    dropped = sums((~last).astype(np.int64), group_starts(p))
    order = order[last]
    a, z, u = a[order], z[order], u[order]
    return _measure(p[last], g[last], i[last], a, z, u, dropped)


def _measure(p: Int64, g: Int64, i: Int64, a: Int64, z: Int64, u: Int64, dropped: Int64) -> Layout:
    first = group_starts(p)
    lists = np.flatnonzero(np.diff(g, prepend=g[:1] - 1) | np.diff(p, prepend=p[:1] - 1))
    joined = np.zeros(p.size, np.bool_)
    joined[1:] = True
    joined[lists] = False
    paired = joined & (np.diff(i, prepend=i[:1]) == 1)
    stride = np.diff(a, prepend=a[:1])
    touching = paired & (stride == np.concatenate((z[:1], z[:-1])))

    def count(rows: NDArray[np.bool_]) -> Int64:
        return sums(rows.astype(np.int64), first)

    by_list = group_starts(p[lists])
    span, pages, pages_min, overlaps = (sums(x, by_list) for x in _extents(lists, a, z))
    mean, median = _stride_statistics(np.abs(stride[paired]), p[paired], p[first])
    return Layout(
        group=p[first],
        blocks=np.diff(first, append=p.size),
        duplicates=dropped,
        pairs=count(paired),
        contiguous=count(touching),
        backward=count(paired & (stride < 0)),
        overlaps=overlaps,
        runs=count(~touching),
        bytes=sums(z, first),
        used_bytes=sums(u, first),
        span_bytes=span,
        pages=pages,
        pages_min=pages_min,
        stride_mean_abs_bytes=mean,
        stride_med_abs_bytes=median,
    )


def _extents(lists: Int64, a: Int64, z: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Of each block list: span in bytes, pages, least pages, overlapping neighbours."""
    if lists.size == 0:
        return (lists,) * 4
    number = np.repeat(np.arange(lists.size), np.diff(lists, append=a.size))
    order = np.lexsort((a, number))
    a, z = np.ascontiguousarray(a[order]), np.ascontiguousarray(z[order])
    span = np.maximum.reduceat(a + z, lists) - a[lists]
    _, pages = count_granules(a, z, lists, PAGE_BYTES)
    begins_inside = np.zeros(a.size, np.int64)
    begins_inside[1:] = (a[1:] < (a + z)[:-1]) & (number[1:] == number[:-1])
    return span, pages, -(-sums(z, lists) // PAGE_BYTES), sums(begins_inside, lists)


def _stride_statistics(stride: Int64, label: Int64, labels: Int64) -> tuple[Float64, Float64]:
    """Mean and median of the strides of each label (both columns sorted by label)."""
    mean, median = np.full(labels.size, np.nan), np.full(labels.size, np.nan)
    ordered = stride[np.lexsort((stride, label))]
    first = group_starts(label)
    count = np.diff(first, append=label.size)
    known = np.isin(labels, label)
    mean[known] = sums(ordered, first) / count
    median[known] = (ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2
    return mean, median


def external_frac(free_bytes: ArrayLike) -> float:
    """External fragmentation: the share of free memory outside the largest free extent.

    Args:
        free_bytes: int64[n], sizes of the free extents of a pool.

    Returns:
        0..1; 0 without free memory.
    """
    free = np.asarray(free_bytes, np.int64)
    return float(1 - free.max() / free.sum()) if free.sum() > 0 else 0.0


@dataclass(frozen=True)
class Relocations:
    """What moving caches copied, for g chains.

    Attributes:
        group: int64[g], label, ascending.
        moves: int64[g], changes of address.
        copied_bytes: int64[g], size before each move, summed.
        new_bytes: int64[g], growth in size, summed.
    """

    group: Int64
    moves: Int64
    copied_bytes: Int64
    new_bytes: Int64

    @property
    def write_amplification(self) -> Float64:
        """float64[g], bytes copied over bytes added; nan where nothing was added."""
        ratio = np.full(self.group.size, np.nan)
        np.divide(self.copied_bytes, self.new_bytes, out=ratio, where=self.new_bytes > 0)
        return ratio


def relocations(
    group: ArrayLike, time_ns: ArrayLike, address: ArrayLike, size_bytes: ArrayLike
) -> Relocations:
    """Follow the address of each cache through time.

    Args:
        group: int64[n], label of (sequence, layer, kind).
        time_ns: int64[n], ns; rows of equal time keep their order.
        address: int64[n], bytes.
        size_bytes: int64[n].

    Returns:
        Counts for each label.
    """
    columns = (group, time_ns, address, size_bytes)
    g, t, a, z = (np.asarray(column, np.int64) for column in columns)
    order = np.lexsort((t, g))
    g, a, z = g[order], a[order], z[order]
    first = group_starts(g)
    chained = np.ones(g.size, np.bool_)
    chained[first] = False
    before = np.concatenate((z[:1], z[:-1]))
    moved = chained & (np.diff(a, prepend=a[:1]) != 0)
    return Relocations(
        group=g[first],
        moves=sums(moved.astype(np.int64), first),
        copied_bytes=sums(np.where(moved, before, 0), first),
        new_bytes=sums(np.where(chained, np.maximum(z - before, 0), 0), first),
    )
