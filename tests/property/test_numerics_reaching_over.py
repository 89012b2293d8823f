"""Rows that last over all that follows in their queue: one pass against a pass a queue."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics.rows.overlapping import reaching_over

rows = st.lists(
    st.tuples(st.integers(-20, 60), st.integers(-2, 40), st.integers(0, 2)), max_size=25
).map(sorted)


@settings(deadline=None)
@given(rows)
def test_both_forms_agree(found: list) -> None:
    table = np.array(found, np.int64).reshape(len(found), 3)
    s, length, queue = (np.ascontiguousarray(c) for c in table.T)
    columns = s, s + length, queue.astype(np.uint32), 3
    assert tuple(reaching_over.fast(*columns)) == reaching_over.plain(*columns)


def test_a_neighbour_may_be_overlapped_and_no_further_row() -> None:
    s, queue = np.array([0, 10, 20, 30]), np.zeros(4, np.uint32)
    assert reaching_over(s, np.array([20, 30, 40, 50]), queue, 1) == (0, 0)
    assert reaching_over(s, np.array([35, 30, 40, 50]), queue, 1) == (1, 25)
