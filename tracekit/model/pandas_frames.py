"""Polars frames as pandas frames, without pyarrow; pandas is loaded when one is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["to_pandas"]


def to_pandas(frame: pl.DataFrame, attrs: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return a frame as a pandas frame.

    Integers with nulls become pandas' nullable integers of the same width, so that no time in ns
    loses digits as a float; booleans likewise. Enums and categories become categories, texts and
    lists objects, null is None in them and NaN among floats.

    Args:
        frame: Any frame of a diagnosis or a trace.
        attrs: Goes into the result's ``attrs``.
    """
    import pandas as pd

    made = pd.DataFrame({column.name: _column(column) for column in frame}, copy=False)
    made.attrs.update(attrs or {})
    return made


def _column(column: pl.Series) -> Any:
    import pandas as pd

    dtype = column.dtype
    if dtype.is_float():
        return column.to_numpy()
    if dtype.is_integer() or dtype == pl.Boolean:
        if not column.null_count():
            return column.to_numpy()
        name: Any = "boolean" if dtype == pl.Boolean else str(dtype)
        return pd.array(column.to_list(), dtype=name)
    if isinstance(dtype, pl.Enum):
        known = dtype.categories.to_list()
        return pd.Categorical(column.cast(pl.String).to_list(), categories=known, ordered=True)
    if dtype == pl.Categorical:
        return pd.Categorical(column.cast(pl.String).to_list())
    return pd.Series(column.to_list(), dtype=object)
