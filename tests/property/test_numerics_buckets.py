"""Rows moved by kind, against a sort that compares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics import jit, numbering


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(-2, 2))),
    presorted=st.sampled_from([None, 1, 3]),
)
def test_rows_are_ordered_by_kind_and_keys(rows, presorted):
    if presorted:
        rows = sorted(rows, key=lambda row: row[-presorted:])
    kinds, first, second = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    order = numbering.ordered(kinds.astype(np.uint32), [first, second])
    expected = sorted(range(len(rows)), key=lambda i: rows[i])  # stable
    assert expected == list(range(len(rows)) if order is None else order)


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5), st.integers(-9, 9))),
    in_order=st.booleans(),
    compiled=st.booleans(),
)
def test_by_kind_sorts_by_kind_and_time(rows, in_order, compiled):
    if in_order:
        rows = sorted(rows, key=lambda row: row[1])
    kinds, times, values = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    expected = sorted(rows, key=lambda row: row[:2])  # stable
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "WORTH_COMPILING", 0 if compiled else 1 << 60)
        count, moved, carried = numbering.by_kind(kinds.astype(np.uint32), times, values, 6)
    assert count.tolist() == [sum(row[0] == kind for row in rows) for kind in range(6)]
    assert moved.tolist() == [row[1] for row in expected]
    assert carried.tolist() == [row[2] for row in expected]
