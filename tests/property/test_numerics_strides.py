"""Layouts and granules against sets of addresses and plain loops."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import strides

# (group, index, address, size): groups 0..3 of pools 0..1
BLOCKS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 40), st.integers(1, 12)),
    max_size=24,
)
SEGMENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 600), st.integers(0, 300)), max_size=15
)
UNIT = 1 << 18


def measure(rows: list[tuple[int, ...]], shift: int = 0) -> strides.Layout:
    g, i, a, z = np.array(rows, np.int64).reshape(-1, 4).T
    return strides.layout(g, i, a * UNIT + shift, z * UNIT, z * UNIT - 1, g % 2)


def latest(rows: list[tuple[int, ...]]) -> dict[int, dict[int, tuple[int, int]]]:
    lists: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for group, index, address, size in rows:
        lists[group][index] = (address * UNIT, size * UNIT)
    return lists


def by_hand(lists: list[dict[int, tuple[int, int]]]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(int)
    strides_seen = []
    for blocks in lists:
        found["runs"] += 1
        for index, (address, size) in blocks.items():
            found["blocks"] += 1
            found["bytes"] += size
            found["used_bytes"] += size - 1
            if index + 1 in blocks:
                stride = blocks[index + 1][0] - address
                strides_seen.append(abs(stride))
                found["pairs"] += 1
                found["contiguous"] += stride == size
                found["backward"] += stride < 0
                found["runs"] += stride != size
            elif index != max(blocks):
                found["runs"] += 1
        extents = blocks.values()
        found["span_bytes"] += max(a + z for a, z in extents) - min(a for a, _ in extents)
        touched = {p for a, z in extents for p in range(a >> 21, ((a + z - 1) >> 21) + 1)}
        found["pages"] += len(touched)
        found["pages_min"] += -(-sum(z for _, z in extents) >> 21)
    found["stride_mean_bytes"] = statistics.mean(strides_seen) if strides_seen else np.nan
    found["stride_median_bytes"] = statistics.median(strides_seen) if strides_seen else np.nan
    return found


@settings(deadline=None)
@given(BLOCKS)
def test_layout_by_pool(rows: list[tuple[int, ...]]) -> None:
    layout, lists = measure(rows), latest(rows)
    assert layout.group.tolist() == sorted({group % 2 for group in lists})
    assert layout.duplicates.sum() + layout.blocks.sum() == len(rows)
    for row, pool in enumerate(layout.group):
        expected = by_hand([blocks for group, blocks in lists.items() if group % 2 == pool])
        for name, value in expected.items():
            np.testing.assert_allclose(getattr(layout, name)[row], value, err_msg=name)


@settings(deadline=None)
@given(BLOCKS)
def test_overlaps_are_seen_iff_blocks_intersect(rows: list[tuple[int, ...]]) -> None:
    intersecting = set()
    for group, blocks in latest(rows).items():
        extents = sorted(blocks.values())
        for n, (address, _) in enumerate(extents):
            if any(a + z > address for a, z in extents[:n]):
                intersecting.add(group % 2)
    layout = measure(rows)
    assert set(layout.group[layout.overlaps > 0].tolist()) == intersecting


@settings(deadline=None)
@given(BLOCKS, st.integers(1, 1000))
def test_moving_everything_by_whole_pages_changes_nothing(
    rows: list[tuple[int, ...]], pages: int
) -> None:
    here, there = measure(rows), measure(rows, pages * strides.PAGE_BYTES)
    for name in vars(here):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name), err_msg=name)


@settings(deadline=None)
@given(SEGMENTS)
def test_granules_against_sets(segments: list[tuple[int, int, int]]) -> None:
    group, address, size = np.array(segments, np.int64).reshape(-1, 3).T
    found = strides.traffic(address, size, group)
    real = [segment for segment in segments if segment[2] > 0]
    assert found.group.tolist() == sorted({g for g, _, _ in real})
    for row, label in enumerate(found.group):
        mine = [(a, z) for g, a, z in real if g == label]
        assert found.bytes[row] == sum(z for _, z in mine)
        for granule in strides.GRANULES:
            each = [set(range(a // granule, (a + z - 1) // granule + 1)) for a, z in mine]
            assert found.touched[granule][row] == sum(map(len, each))
            assert found.distinct[granule][row] == len(set().union(*each))
            extra = found.overfetch_frac(granule)[row]
            aligned = all(a % granule == 0 and z % granule == 0 for a, z in mine)
            assert (extra == 0) == aligned
            assert extra >= 0
        for q in strides.ALIGNMENTS:
            assert found.misaligned[q][row] == sum(a % q != 0 for a, _ in mine)


@settings(deadline=None)
@given(SEGMENTS, st.integers(1, 64))
def test_requests_tile_their_segments(segments: list[tuple[int, int, int]], width: int) -> None:
    _, address, size = np.array(segments, np.int64).reshape(-1, 3).T
    expected = [
        (a + offset, min(width, z - offset), row)
        for row, (_, a, z) in enumerate(segments)
        for offset in range(0, z, width)
    ]
    pieces = strides.requests(address, size, width)
    assert list(zip(*(column.tolist() for column in pieces), strict=True)) == expected


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 2), st.integers(1, 9)),
        max_size=15,
    )
)
def test_relocations(rows: list[tuple[int, int, int, int]]) -> None:
    group, time, address, size = np.array(rows, np.int64).reshape(-1, 4).T
    found = strides.relocations(group, time, address, size)
    for row, label in enumerate(found.group):
        chain = sorted((r for r in rows if r[0] == label), key=lambda r: r[1])
        steps = list(itertools.pairwise(chain))
        assert found.moves[row] == sum(old[2] != new[2] for old, new in steps)
        assert found.copied_bytes[row] == sum(o[3] for o, n in steps if o[2] != n[2])
        assert found.new_bytes[row] == sum(max(0, n[3] - o[3]) for o, n in steps)
