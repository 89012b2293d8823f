"""Numbers of equal rows against Polars' own ranking."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.views import keys
from tracekit.views.keys import counted, looked_up, row_numbers

near = st.one_of(st.none(), st.integers(-3, 3))
far = st.one_of(st.none(), st.integers(-(1 << 62), 1 << 62))


@settings(deadline=None)
@given(st.lists(st.tuples(near, near), max_size=30))
def test_equal_rows_share_a_number_in_ascending_order(rows: list) -> None:
    _check(pl.DataFrame(rows, schema={"a": pl.Int64, "b": pl.Int16}, orient="row"))


@settings(deadline=None)
@given(st.lists(st.tuples(far, near), max_size=30))
def test_keys_far_apart_are_numbered_alike(rows: list) -> None:
    _check(pl.DataFrame(rows, schema={"a": pl.Int64, "b": pl.Int16}, orient="row"))


@settings(deadline=None)
@given(st.lists(st.tuples(near, near), max_size=30), st.sets(st.tuples(near, near)), st.booleans())
def test_facts_are_those_that_a_join_finds(rows: list, known: set, is_large: bool) -> None:
    schema = {"a": pl.Int64, "b": pl.Int16}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    facts = pl.DataFrame(list(known), schema=schema, orient="row").with_row_index("fact")
    joined = frame.join(facts, on=["a", "b"], how="left", maintain_order="left")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_WORTH_NUMBERING", 1 if is_large else 100)
        assert looked_up(frame, facts, ["a", "b"]).equals(joined.select("fact"))


@settings(deadline=None)
@given(st.lists(near | far, max_size=30), st.booleans())
def test_values_are_counted_as_polars_counts_them(values: list, is_spread: bool) -> None:
    column = pl.Series("a", [v if is_spread or v is None else v % 7 for v in values], pl.Int64)
    expected = column.to_frame().group_by("a").len().sort("a", nulls_last=True)
    assert counted(column).equals(expected)


def _check(keys: pl.DataFrame) -> None:
    number, distinct = row_numbers(keys)
    assert distinct.schema == keys.schema
    assert distinct.equals(keys.unique().sort("a", "b", nulls_last=True))
    assert distinct[number].equals(keys)


@pytest.mark.parametrize("dtype", [pl.UInt16, pl.UInt32, pl.Int64])
def test_a_column_of_nulls_is_one_key(dtype: pl.DataType) -> None:
    number, distinct = row_numbers(pl.DataFrame({"a": [None, None]}, schema={"a": dtype}))
    assert (number.tolist(), distinct["a"].to_list()) == ([0, 0], [None])
