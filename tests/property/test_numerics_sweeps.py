"""Sweeps against the NumPy forms that serve small inputs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import excess as spreading
from tracekit.numerics import intervals, jit, sweeps
from tracekit.numerics.samples import sampling, window_sums

rows = st.lists(st.tuples(st.integers(-20, 60), st.integers(-2, 15)), max_size=30)
values = st.one_of(
    st.lists(st.integers(-9, 9), min_size=30, max_size=30),
    st.lists(st.floats(-9, 9), min_size=30, max_size=30),
)


def _arrays(found: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([s for s, _ in found], np.int64)
    return start, start + np.array([length for _, length in found], np.int64)


@settings(deadline=None)
@given(rows)
def test_unions_are_those_of_numpy(found: list[tuple[int, int]]) -> None:
    s, e = _arrays(found)
    swept, slow = intervals._union_swept(s, e), intervals.union(s, e)
    assert [a.tolist() for a in swept] == [a.tolist() for a in slow]


@settings(deadline=None)
@given(rows, rows)
def test_covered_time_is_that_of_numpy(found: list[tuple[int, int]], of: list) -> None:
    (s, e), union = _arrays(found), intervals.union(*_arrays(of))
    expected = intervals.overlap_ns(s, e, *union)
    assert sweeps.covered(s, e, *union).tolist() == expected.tolist()


@settings(deadline=None)
@given(rows, rows)
def test_shared_time_is_that_of_numpy(found: list[tuple[int, int]], of: list) -> None:
    one, other = intervals.union(*_arrays(found)), intervals.union(*_arrays(of))
    expected = intervals.intersect(*one, *other)
    assert [a.tolist() for a in sweeps.crossed(*one, *other)] == [a.tolist() for a in expected]
    # The complement of a union may begin and end with an empty member.
    if one[0].size:
        gaps = (np.append(one[0][:1], one[1]), np.append(one[0], one[1][-1:]))
        expected = intervals.intersect(*other, *gaps)
        assert [a.tolist() for a in sweeps.crossed(*other, *gaps)] == [a.tolist() for a in expected]


@settings(deadline=None)
@given(rows, rows, values)
def test_integrals_of_a_union_are_those_of_numpy_to_the_last_digit(
    found: list[tuple[int, int]], of: list, value: list
) -> None:
    windows, cells = intervals.union(*_arrays(found)), intervals.union(*_arrays(of))
    samples = sampling.Cells(*cells, np.array(value)[: cells[0].size], 1)
    integral, covered = sampling._integrals_swept(samples, *windows)
    ones = np.ones(cells[0].size, np.int64)
    slow = sampling._integral_between(samples, samples.value, *windows)
    assert integral.tolist() == slow.tolist()
    assert covered.tolist() == sampling._integral_between(samples, ones, *windows).tolist()


@settings(deadline=None)
@given(rows, rows, values)
def test_integrals_are_those_of_numpy_to_the_last_digit(
    found: list[tuple[int, int]], of: list, value: list
) -> None:
    (s, e), cells = _arrays(found), intervals.union(*_arrays(of))
    samples = sampling.Cells(*cells, np.array(value)[: cells[0].size], 1)
    integral, covered = sampling._integrals_swept(samples, s, e)
    ones = np.ones(cells[0].size, np.int64)
    assert integral.tolist() == sampling._integral_between(samples, samples.value, s, e).tolist()
    assert covered.tolist() == sampling._integral_between(samples, ones, s, e).tolist()


@settings(deadline=None)
@given(rows, st.lists(st.integers(0, 3), min_size=30, max_size=30))
def test_latest_ends_before_are_those_of_numpy(found: list, lanes: list[int]) -> None:
    _, e = _arrays(found)
    lane = np.array(lanes[: e.size], np.int32)
    expected = intervals.reached_before(e, lane, 4)
    assert sweeps.reached_before(e, lane, 4).tolist() == expected.tolist()


@settings(deadline=None)
@given(rows, rows)
def test_cells_of_windows_are_those_of_numpy(found: list, of: list) -> None:
    (s, e), cells = _arrays(found), intervals.union(*_arrays(of))
    samples = sampling.Cells(*cells, np.zeros(cells[0].size, np.int64), 1)
    swept = sampling.CellsOf(*sweeps.cells_of(*cells, s, e))
    slow = sampling.cells_of(samples, s, e)
    _, inside = sampling.inside_windows(samples, s, e)
    assert swept.inside.tolist() == slow.inside.tolist() == inside.tolist()
    assert swept.over.tolist() == slow.over.tolist()
    some = swept.inside > 0
    assert swept.first_inside[some].tolist() == slow.first_inside[some].tolist()
    some = swept.over > 0
    assert swept.first_over[some].tolist() == slow.first_over[some].tolist()


@settings(deadline=None)
@given(rows, rows, values)
def test_excess_is_spread_as_by_numpy(found: list, of: list, excess: list) -> None:
    s, e = _arrays(found)
    ks, ke = (column[np.greater(*_arrays(of)[::-1])] for column in _arrays(of))
    at, lost = intervals.steps(s, e, np.abs(np.array(excess[: s.size], np.float64)))
    level = np.stack((lost, intervals.steps(s, e, np.ones(s.size, np.int64))[1].astype(float)))
    assert (
        spreading._swept(ks, ke, at, level).tolist()
        == spreading._spread(ks, ke, at, level).tolist()
    )


def test_large_inputs_are_swept() -> None:
    rng = np.random.default_rng(0)
    s = rng.integers(0, 10_000_000, jit.WORTH_COMPILING)
    union = intervals.union(s, s + 20)
    part = intervals.union(s[: s.size // 2], s[: s.size // 2] + 20)
    assert intervals.overlap_ns(*part, *union).sum() == intervals.total_ns(*part)
    cells = sampling.Cells(*union, np.full(union[0].size, 3), 20)
    assert sampling.over_windows(cells, *part).mean.tolist() == [3.0] * part[0].size


@settings(deadline=None)
@given(rows, rows, values, st.lists(st.booleans(), min_size=30, max_size=30))
def test_what_cells_say_is_what_numpy_finds(
    found: list[tuple[int, int]], of: list, value: list, believed: list[bool]
) -> None:
    (s, e), cells = _arrays(found), intervals.union(*_arrays(of))
    n = cells[0].size
    value, valid = np.array(value[:n]).astype(np.int64), np.array(believed[:n], np.bool_)
    samples = sampling.Cells(*cells, value, 1)
    swept = window_sums._swept(*cells, value, valid, s, e)
    slow = window_sums._searched(samples, valid, s, e)
    assert [a.tolist() for a in swept] == [a.tolist() for a in slow]
