"""Columns looked up by a few distinct values."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.io.lookup import looked_up

NEAR, FAR = st.integers(-3, 3), st.sampled_from([-(2**31), 0, 5, 2**31 - 1])


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.one_of(NEAR, FAR, st.none()), st.one_of(NEAR, st.none()))),
    depends=st.sampled_from(["both", "first", "second", "neither"]),
)
def test_looked_up_is_the_function_of_every_row(rows, depends):
    def value(a: int | None, b: int | None) -> int | None:
        if depends == "neither":
            return None
        x = 0 if depends == "second" else hash(a) % 5
        y = 0 if depends == "first" else hash(b) % 3
        return None if x + y == 4 else x + 10 * y

    of = [pl.Series([row[i] for row in rows], dtype=t) for i, t in enumerate((pl.Int32, pl.Int64))]
    found = looked_up("x", of, value)
    assert (found.name, found.dtype) == ("x", pl.Int16)
    assert found.to_list() == [value(*row) for row in rows]


@pytest.mark.parametrize(("dtype", "most"), [(pl.UInt32, 2**32 - 1), (pl.Int32, 2**31 - 1)])
def test_the_largest_value_beside_null(dtype, most):
    column = pl.Series([most, None, most - 1], dtype=dtype)
    found = looked_up("x", [column], lambda v: None if v is None else most - v)
    assert found.to_list() == [0, None, 1]
