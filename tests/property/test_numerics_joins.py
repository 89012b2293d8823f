"""Both ways of matching against a dictionary of first rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import joins

KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 9)), max_size=30)


@settings(deadline=None)
@given(KEYS, KEYS, st.sampled_from([1, 2**58]))
def test_match(a: list[tuple[int, int]], b: list[tuple[int, int]], spread: int) -> None:
    first: dict[tuple[int, int], int] = {}
    for row, key in enumerate(b):
        first.setdefault(key, row)
    expected = [first.get(key, -1) if key[1] >= 0 else -1 for key in a]
    (pa, ia), (pb, ib) = (np.array(rows, np.int64).reshape(-1, 2).T for rows in (a, b))
    assert joins.match((pa, ia * spread), (pb, ib * spread)).tolist() == expected
