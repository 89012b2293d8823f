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
        stride_mean_bytes: float64[g], nan without pairs.
        stride_median_bytes: float64[g], nan without pairs.
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
    stride_mean_bytes: Float64
    stride_median_bytes: Float64

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
        stride_mean_bytes=mean,
        stride_median_bytes=median,
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


GRANULES = (32, 64, 128)
ALIGNMENTS = (16, 32, 128)
REQUEST_BYTES = 128


@dataclass(frozen=True)
class Traffic:
    """Exact counts for g groups of segments; add groups by adding counts, never ratios.

    Attributes:
        group: int64[g], label, ascending.
        segments: int64[g], segments of at least one byte.
        bytes: int64[g], bytes requested.
        misaligned: q -> int64[g], segments whose address is no multiple of q bytes.
        touched: g -> int64[g], granules of g bytes touched, counted for each segment.
        distinct: g -> int64[g], distinct granules of g bytes touched by the group.
    """

    group: Int64
    segments: Int64
    bytes: Int64
    misaligned: dict[int, Int64]
    touched: dict[int, Int64]
    distinct: dict[int, Int64]

    def misaligned_frac(self, alignment_bytes: int) -> Float64:
        """float64[g], share of segments off the alignment (16, 32 or 128 B), 0..1."""
        return self.misaligned[alignment_bytes] / self.segments

    def overfetch_frac(self, granule_bytes: int) -> Float64:
        """float64[g], extra bytes over bytes requested (32, 64 or 128 B granules), >= 0."""
        return granule_bytes * self.touched[granule_bytes] / self.bytes - 1

    def distinct_overfetch_frac(self, granule_bytes: int) -> Float64:
        """float64[g], the same with each granule of the group counted once.

        Negative where segments overlap.
        """
        return granule_bytes * self.distinct[granule_bytes] / self.bytes - 1


def traffic(address: ArrayLike, size_bytes: ArrayLike, group: ArrayLike) -> Traffic:
    """Count granules and misaligned segments by group.

    Args:
        address: int64[n], bytes.
        size_bytes: int64[n]; segments of no bytes are ignored.
        group: int64[n], any label.

    Returns:
        Counts for each label that has a segment.
    """
    x, n, g = (np.asarray(column, np.int64) for column in (address, size_bytes, group))
    keep = n > 0
    order = np.lexsort((x[keep], g[keep]))
    x, n, g = (np.ascontiguousarray(column[keep][order]) for column in (x, n, g))
    first = group_starts(g)
    touched, distinct = {}, {}
    for granule in GRANULES:
        touched[granule], distinct[granule] = count_granules(x, n, first, granule)
    return Traffic(
        group=g[first],
        segments=np.diff(first, append=g.size),
        bytes=sums(n, first),
        misaligned={q: sums((x % q != 0).astype(np.int64), first) for q in ALIGNMENTS},
        touched=touched,
        distinct=distinct,
    )


def rows_of_blocks(
    address: ArrayLike, rows: ArrayLike, pitch_bytes: ArrayLike
) -> tuple[Int64, Int64]:
    """Addresses of equally spaced rows inside blocks.

    Args:
        address: int64[n], bytes, first row of each block.
        rows: int64[n] or number, rows of each block.
        pitch_bytes: int64[n] or number, distance of two rows.

    Returns:
        ``(address, block)``, int64[sum(rows)] each: address of every row, and its block's row.
    """
    base = np.asarray(address, np.int64)
    count = np.broadcast_to(np.asarray(rows, np.int64), base.shape)
    pitch = np.broadcast_to(np.asarray(pitch_bytes, np.int64), base.shape)
    block = np.repeat(np.arange(base.size), count)
    within = np.arange(block.size) - np.repeat(np.cumsum(count) - count, count)
    return base[block] + within * pitch[block], block


def requests(
    address: ArrayLike, size_bytes: ArrayLike, request_bytes: int = REQUEST_BYTES
) -> tuple[Int64, Int64, Int64]:
    """Cut segments into requests, the last of each as long as what remains.

    Args:
        address: int64[n], bytes.
        size_bytes: int64[n].
        request_bytes: Longest piece.

    Returns:
        ``(address, size_bytes, segment)``, int64 each: the pieces and the row that each is of.
    """
    size = np.asarray(size_bytes, np.int64)
    start, segment = rows_of_blocks(address, -(-size // request_bytes), request_bytes)
    end = (np.asarray(address, np.int64) + size)[segment]
    return start, np.minimum(end - start, request_bytes), segment


def group_starts(sorted_groups: Int64) -> Int64:
    """Row at which each run of equal labels begins."""
    if sorted_groups.size == 0:
        return np.zeros(0, np.int64)
    return np.concatenate(([0], np.flatnonzero(np.diff(sorted_groups)) + 1)).astype(np.int64)


def sums(values: Int64, first: Int64) -> Int64:
    """Sum of each run of rows; ``first`` as of `group_starts`."""
    if first.size == 0:
        return np.zeros(0, np.int64)
    total: Int64 = np.add.reduceat(values, first)
    return total


def count_granules(
    address: Int64, size_bytes: Int64, first: Int64, granule_bytes: int
) -> tuple[Int64, Int64]:
    """Granules touched by each run of segments.

    Args:
        address: int64[n], bytes, ascending within a run.
        size_bytes: int64[n], at least 1.
        first: int64[g], row at which each run begins.
        granule_bytes: Size of a granule.

    Returns:
        ``(touched, distinct)``, int64[g] each: counted for each segment, and once for the run.
    """
    begin = address // granule_bytes
    end = (address + size_bytes - 1) // granule_bytes + 1
    fresh = np.maximum(begin, _reached_before(begin, end, first))
    return sums(end - begin, first), sums(np.maximum(end - fresh, 0), first)


def _reached_before(begin: Int64, end: Int64, first: Int64) -> Int64:
    """Largest end of the rows before each row of a run; its own begin for the first."""
    reached = np.empty_like(end)
    reached[1:] = end[:-1]
    reached[first] = begin[first]
    falls = np.flatnonzero(end[1:] < reached[1:]) + 1
    # Where a segment ends before the one that begins earlier, those behind have to look further.
    for run in np.unique(np.searchsorted(first, falls, side="right") - 1).tolist():
        stop = first[run + 1] if run + 1 < first.size else end.size
        own = reached[first[run] : stop]
        np.maximum.accumulate(own, out=own)
    return reached
