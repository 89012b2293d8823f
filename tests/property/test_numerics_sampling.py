"""Sampled means against a value for every single nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics.samples import sampling

SPAN = 80
TIMES = st.lists(st.integers(10, 60), min_size=2, max_size=12, unique=True).map(sorted)
WINDOWS = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)), max_size=6)
EDGES = st.sampled_from(["leading", "trailing"])


def cell_by_hand(times: list[int], i: int, edge: str) -> tuple[int, int]:
    period = int(np.median(np.diff(times)))
    other = i + 1 if edge == "leading" else i - 1
    reach = abs(times[other] - times[i]) if 0 <= other < len(times) else period
    reach = period if reach > 3 * period else reach
    return (times[i], times[i] + reach) if edge == "leading" else (times[i] - reach, times[i])


@settings(deadline=None)
@given(TIMES, EDGES, WINDOWS, st.data())
def test_means(
    times: list[int], edge: sampling.Edge, windows: list[tuple[int, int]], data: st.DataObject
) -> None:
    n = len(times)
    values = data.draw(st.lists(st.floats(-50, 150), min_size=n, max_size=n))
    valid = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    line = np.full(3 * SPAN, np.nan)
    for i in range(n):
        start, end = cell_by_hand(times, i, edge)
        if valid[i]:
            line[start + SPAN : end + SPAN] = values[i]
    samples = sampling.cells(times, values, edge).keep(valid)
    starts, ends = np.array(windows, np.int64).reshape(-1, 2).T
    means = sampling.over_windows(samples, starts, ends)
    for k, (start, end) in enumerate(windows):
        inside = line[start + SPAN : end + SPAN]
        known = inside[~np.isnan(inside)]
        assert means.covered_ns[k] == known.size
        np.testing.assert_allclose(means.integral[k], known.sum(), rtol=1e-9, atol=1e-6)
        if known.size and known.size >= 0.5 * inside.size:
            np.testing.assert_allclose(means.mean[k], known.mean(), rtol=1e-9, atol=1e-6)
        else:
            assert np.isnan(means.mean[k])


@settings(deadline=None)
@given(TIMES, EDGES, WINDOWS)
def test_cells_inside(
    times: list[int], edge: sampling.Edge, windows: list[tuple[int, int]]
) -> None:
    samples = sampling.cells(times, np.arange(len(times)), edge)
    starts, ends = np.array(windows, np.int64).reshape(-1, 2).T
    means, count = sampling.inside_windows(samples, starts, ends)
    for k, (start, end) in enumerate(windows):
        inside = (samples.start >= start) & (samples.end <= end) & (start <= end)
        assert count[k] == inside.sum()
        length = (samples.end - samples.start)[inside]
        assert means.covered_ns[k] == length.sum()
        assert means.integral[k] == (samples.value[inside] * length).sum()
