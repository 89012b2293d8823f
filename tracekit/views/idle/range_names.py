"""Texts of ranges with their numbers left out, so that those of all steps and layers are one."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.trace import Trace, view
from tracekit.views.keys import row_numbers
from tracekit.views.nvtx.ranges import ranges

__all__ = ["RangeNames", "range_names"]

_NUMBER = re.compile(r"\d+")


class RangeNames(NamedTuple):
    """Names of ranges.

    Attributes:
        number: int32[ranges], place in `names` of each row of `ranges`.
        names: Texts with N in place of every number.
    """

    number: NDArray[np.int32]
    names: tuple[str, ...]

    def of(self, rows: pl.Series) -> NDArray[np.int32]:
        """Return the place in `names` for rows of `ranges`, -1 for null."""
        if not self.number.size:
            return np.full(len(rows), -1, np.int32)
        found = self.number.take(rows.fill_null(0).to_numpy())
        if rows.null_count():
            found[rows.is_null().to_numpy()] = -1
        return found


@view
def range_names(trace: Trace) -> RangeNames:
    """Return the names of all ranges."""
    texts = ranges(trace)["text"]
    code, distinct = row_numbers(texts.to_physical().to_frame())
    first = np.zeros(distinct.height, np.int64)
    first[code] = np.arange(code.size)
    named = [_NUMBER.sub("N", text or "") for text in texts[first].cast(pl.String)]
    names = sorted(set(named))
    place = {name: at for at, name in enumerate(names)}
    of = np.array([place[name] for name in named], np.int32)
    return RangeNames(of[code] if of.size else np.empty(0, np.int32), tuple(names))
