"""Sums over groups of windows in two sweeps against NumPy's, and against what they mean."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics.samples import window_sums
from tracekit.numerics.samples.window_sums import Spoken

N_GROUPS = 4
windows = st.lists(
    st.tuples(
        st.integers(-1, N_GROUPS - 2),
        st.integers(0, 30),
        st.integers(0, 9),
        st.integers(0, 3),
        st.integers(0, 50),
        st.integers(0, 9),
        st.booleans(),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(windows)
def test_windows_are_pooled_by_group(found: list) -> None:
    table = np.array(found, np.int64).reshape(len(found), 7)
    group, start, length, cells, integral, covered, short = (
        np.ascontiguousarray(column) for column in table.T
    )
    narrow = cells.astype(np.int32)
    said = Spoken(narrow, narrow // 2, integral * 1.0, covered, short.astype(np.bool_))
    rows = group.astype(np.int32), N_GROUPS, start, start + length
    slow = window_sums.pooled(*rows, said)
    swept = window_sums._pooled_swept(*rows, *said)
    assert [a.tolist() for a in swept] == [a.tolist() for a in slow]
    by_group = [np.flatnonzero(group == own) for own in range(N_GROUPS)]
    assert slow.order.tolist() == np.concatenate(by_group).tolist()
    assert slow.length_ns.tolist() == length[slow.order].tolist()
    assert slow.sums[window_sums.COVERED].tolist() == [covered[own].sum() for own in by_group]
    assert slow.first.tolist() == [own[0] if own.size else -1 for own in by_group]
