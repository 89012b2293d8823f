"""The order of device work against Polars' sort by five columns."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.views.device.activity import SOURCE, in_order

rows = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from(SOURCE.categories.to_list()),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(rows)
def test_order_is_that_of_a_sort(found: list[tuple[int | None, int, int, str]]) -> None:
    schema = {"gpu": pl.Int16, "start_ns": pl.Int64, "end_ns": pl.Int64, "source": SOURCE}
    work = pl.DataFrame(found, schema=schema, orient="row").sort("source", maintain_order=True)
    work = work.with_columns(pl.int_range(pl.len()).over("source").alias("row"))
    expected = work.sort("gpu", "start_ns", "end_ns", "source", "row")
    order, columns = in_order(*(work[name] for name in ("gpu", "start_ns", "end_ns")))
    assert work[pl.Series(order)].equals(expected)
    assert pl.DataFrame(columns).equals(expected.select(*columns))
