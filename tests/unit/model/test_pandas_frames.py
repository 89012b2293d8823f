"""Frames reach pandas with every digit, without pyarrow."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.model.pandas_frames import to_pandas
from tracekit.model.table import Column, Table

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.none() | INT64))
def test_integers_keep_every_digit(values):
    made = to_pandas(pl.DataFrame({"t_ns": pl.Series(values, dtype=pl.Int64)}))["t_ns"]
    assert [None if v is pd.NA else int(v) for v in made] == values
    assert str(made.dtype) == ("Int64" if None in values else "int64")


@pytest.mark.parametrize(
    ("dtype", "values", "name"),
    [
        (pl.UInt16, [1, None], "UInt16"),
        (pl.UInt32, [1, 2], "uint32"),
        (pl.Float64, [0.5, 1.0], "float64"),
        (pl.Boolean, [True, None], "boolean"),
        (pl.Boolean, [True, False], "bool"),
        (pl.String, ["a", None], "object"),
        (pl.Enum(["b", "a"]), ["a", None], "category"),
        (pl.Categorical, ["a", "b"], "category"),
        (pl.List(pl.Int64), [[1], []], "object"),
    ],
)
def test_each_dtype_has_its_counterpart(dtype, values, name):
    made = to_pandas(pl.DataFrame({"a": pl.Series(values, dtype=dtype)}))["a"]
    assert str(made.dtype) == name
    assert [None if v is pd.NA or v != v else v for v in made] == values


def test_null_among_floats_is_nan():
    made = to_pandas(pl.DataFrame({"a": pl.Series([0.5, None], dtype=pl.Float64)}))["a"]
    assert made.isna().to_list() == [False, True]


def test_an_enum_keeps_its_order():
    levels = pl.Enum(["ok", "warn", "critical"])
    made = to_pandas(pl.DataFrame({"a": pl.Series(["critical", "ok"], dtype=levels)}))["a"]
    assert made.max() == "critical"


def test_a_frame_without_rows_keeps_its_columns():
    table = Table("t", (Column("a_ns", pl.Int64, "ns", "a time"), Column("name", pl.String)))
    made = table.to_pandas(table.empty())
    assert (list(made.columns), len(made)) == (["a_ns", "name"], 0)
    assert made.attrs == {"units": {"a_ns": "ns"}, "docs": {"a_ns": "a time"}}
