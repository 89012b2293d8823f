"""How many memory granules a set of segments touches, against the bytes that it asked for.

A GPU moves memory in 32 B sectors and 128 B lines. A segment that is not aligned at both ends
touches more granules than its bytes need: neighbouring segments may share the extra granule, so
the plain count bounds the L1-to-L2 traffic and the count of distinct granules bounds DRAM traffic
from below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64: TypeAlias = NDArray[np.int64]
Float64: TypeAlias = NDArray[np.float64]

GRANULES = (32, 64, 128)
ALIGNMENTS = (16, 32, 128)
REQUEST_BYTES = 128


@dataclass(frozen=True)
class Traffic:
    """Exact counts for g groups of segments; add groups by adding counts, never ratios.

    Attributes:
        group: int64[g], label, ascending.
        segments: int64[g], segments of at least one byte.
        bytes: int64[g], bytes asked for.
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
        """float64[g], extra bytes over bytes asked for (32, 64 or 128 B granules), >= 0."""
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
