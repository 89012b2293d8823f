"""Pure cells in one pass against one union a subject."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics.samples.pure_cells import pure_cells

rows = st.lists(
    st.tuples(st.integers(-20, 200), st.integers(-2, 60), st.integers(-1, 2)), max_size=30
).map(sorted)
borders = st.lists(st.integers(-10, 250), max_size=25).map(sorted)


@settings(deadline=None)
@given(rows, borders)
def test_both_forms_agree(found: list, edges: list) -> None:
    table = np.array(found, np.int64).reshape(len(found), 3)
    s, e = np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, :2].sum(axis=1))
    subject = np.ascontiguousarray(table[:, 2]).astype(np.int32)
    cells = (np.array(edges[:-1], np.int64), np.array(edges[1:], np.int64))
    fast, plain = (form(s, e, subject, 3, cells) for form in (pure_cells.fast, pure_cells.plain))
    assert [f.tolist() for f in fast] == [f.tolist() for f in plain]


@pytest.mark.parametrize(("covered", "pure"), [(100, [0]), (90, [0]), (89, [])])
def test_ninety_percent_is_enough(covered: int, pure: list) -> None:
    one = (np.array([0]), np.array([covered]), np.zeros(1, np.int32))
    _, cells = pure_cells(*one, 1, (np.array([0]), np.array([100])))
    assert cells.tolist() == pure


def test_rows_of_one_subject_count_once_where_they_overlap() -> None:
    s, e = np.array([0, 10, 40]), np.array([60, 50, 80])
    _, cells = pure_cells(s, e, np.zeros(3, np.int32), 1, (np.array([0]), np.array([100])))
    assert cells.size == 0


def test_more_pure_cells_than_cells_are_all_found() -> None:
    s, e, subject = np.zeros(3, np.int64), np.full(3, 200), np.arange(3, dtype=np.int32)
    found = pure_cells.fast(s, e, subject, 3, (np.array([0, 100]), np.array([100, 200])))
    assert [f.tolist() for f in found] == [[0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]]
