"""The next row of a queue, found in one sweep, against a sort by queue."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics.rows import overlapping

IS_WANTED = np.array([True, False, False])
IS_LINK = np.array([True, True, False])
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=25)


@settings(deadline=None)
@given(rows)
def test_what_follows_in_a_queue(found: list) -> None:
    queue = np.array([q for q, _ in found], np.uint32)
    kind = np.array([k for _, k in found], np.uint8)
    swept = overlapping._followed_swept(queue, kind, IS_WANTED, IS_LINK, 3)
    sorted_ = overlapping.followed(queue, kind, IS_WANTED, IS_LINK, 3)
    assert [a.tolist() for a in swept] == [a.tolist() for a in sorted_]
    for row, then in zip(*(a.tolist() for a in swept), strict=True):
        behind = (i for i in range(row + 1, len(found)) if found[i][0] == found[row][0])
        assert then == next((i for i in behind if IS_LINK[found[i][1]]), -1)
