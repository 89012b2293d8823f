"""Stack sweeps against a search of all ranges for every point."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import stacks

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 2)), max_size=20)
POINTS = st.lists(st.tuples(st.integers(-1, 31), st.integers(0, 3)), max_size=20)

KERNELS = (stacks._nest, stacks._innermost, stacks._inherited)


@pytest.fixture(params=["machine code", "plain Python"], scope="module", autouse=True)
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every property holds for what Numba makes of the kernels and for what they say."""
    before = [kernel._dispatcher for kernel in KERNELS]
    for kernel in KERNELS:
        kernel._dispatcher = kernel.python
        if request.param == "machine code":
            kernel._dispatcher = None
            kernel.build()
    yield
    for kernel, dispatcher in zip(KERNELS, before, strict=True):
        kernel._dispatcher = dispatcher


def columns(rows: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return list(np.array(rows, np.int64).reshape(-1, width).T)


def key(ranges: list[tuple[int, int, int]], row: int) -> tuple[int, int, int]:
    """Sorts outer before inner."""
    start, end, _ = ranges[row]
    return start, -end, row


def last_open(ranges: list[tuple[int, int, int]], among: list[int], time: int, group: int) -> int:
    open_rows = [r for r in among if ranges[r][2] == group and ranges[r][0] <= time < ranges[r][1]]
    return max(open_rows, key=lambda r: key(ranges, r), default=-1)


@settings(deadline=None)
@given(RANGES, POINTS)
def test_innermost(ranges: list[tuple[int, int, int]], points: list[tuple[int, int]]) -> None:
    everything = list(range(len(ranges)))
    expected = [last_open(ranges, everything, time, group) for time, group in points]
    found = stacks.innermost(*columns(ranges, 3), *columns(points, 2))
    assert found.tolist() == expected
    some = list(range(0, len(points), 2))
    starts, ends, groups = columns(ranges, 3)
    times, labels = columns(points, 2)
    # Labels 3, 2, 1, 0 of groups 0, 1, 2 and none.
    found = stacks.innermost(
        starts, ends, groups, times, 3 - labels, n_groups=3, group_of=[-1, 2, 1, 0], points=some
    )
    assert found[some].tolist() == expected[::2]
    assert (found[1::2] == -1).all()


@settings(deadline=None)
@given(RANGES)
def test_outer_ranges_come_first_and_those_of_the_same_times_are_found(
    ranges: list[tuple[int, int, int]],
) -> None:
    starts, ends, _ = columns(ranges, 3)
    order = stacks.outer_first(starts, ends)
    assert order.tolist() == sorted(range(len(ranges)), key=lambda row: key(ranges, row))
    times = [ranges[row][:2] for row in order]
    twins = [row for row, own in zip(order, times, strict=True) if times.count(own) > 1]
    assert stacks.alike(starts, ends, order).tolist() == twins
    s, e = (np.ascontiguousarray(c) for c in (starts, ends))
    for by_end in (False, True):
        swept = stacks._neighbours_swept(s, e, order, by_end)
        assert swept.tolist() == stacks._neighbours(s, e, order, by_end=by_end).tolist()


@settings(deadline=None)
@given(RANGES)
def test_nest(ranges: list[tuple[int, int, int]]) -> None:
    parents = []
    for row, (start, _, group) in enumerate(ranges):
        earlier = [r for r in range(len(ranges)) if key(ranges, r) < key(ranges, row)]
        parents.append(last_open(ranges, earlier, start, group))
    parent, depth = stacks.nest(*columns(ranges, 3))
    assert parent.tolist() == parents
    for row, above in enumerate(parents):
        assert depth[row] == (depth[above] + 1 if above >= 0 else 0)


@settings(deadline=None)
@given(
    RANGES.flatmap(
        lambda rows: st.tuples(
            st.just(rows),
            *(
                st.lists(st.integers(-1, 3), min_size=len(rows), max_size=len(rows))
                for _ in range(2)
            ),
        )
    )
)
def test_inherited(drawn: tuple[list[tuple[int, int, int]], list[int], list[int]]) -> None:
    ranges, outer, near = drawn
    parent, _ = stacks.nest(*columns(ranges, 3))
    expected: list[tuple[int, int]] = []
    for row in range(len(ranges)):
        chain = [row]
        while parent[chain[-1]] >= 0:
            chain.append(parent[chain[-1]])
        outermost = next((outer[r] for r in reversed(chain) if outer[r] >= 0), -1)
        expected.append((outermost, next((near[r] for r in chain if near[r] >= 0), -1)))
    found = stacks.inherited(*columns(ranges, 3), 3, outer, near)
    assert list(zip(*(values.tolist() for values in found), strict=True)) == expected


@settings(deadline=None)
@given(RANGES, POINTS)
def test_numbered_groups_need_no_table(
    ranges: list[tuple[int, int, int]], points: list[tuple[int, int]]
) -> None:
    points = [(time, group if group < 3 else -1) for time, group in points]
    found = stacks.innermost(*columns(ranges, 3), *columns(points, 2), n_groups=3)
    assert found.tolist() == stacks.innermost(*columns(ranges, 3), *columns(points, 2)).tolist()
    for plain, numbered in zip(
        stacks.nest(*columns(ranges, 3)), stacks.nest(*columns(ranges, 3), n_groups=3), strict=True
    ):
        assert plain.tolist() == numbered.tolist()
