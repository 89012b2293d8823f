"""The distinct names of host calls."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tracekit.model.kernels import ApiKind, api_base_name, api_kind
from tracekit.trace import Trace, view
from tracekit.views.keys import counted
from tracekit.views.strings import resolved

__all__ = ["CallNames", "call_names"]


class CallNames(NamedTuple):
    """The names of host calls.

    Attributes:
        name_id: int64[k], distinct ids.
        name: Names, as recorded; "" for an id without a string.
    """

    name_id: list[int]
    name: list[str]

    def ids(self, kind: ApiKind) -> list[int]:
        """Return the ids of the calls of a kind."""
        return [i for i, n in zip(self.name_id, self.name, strict=True) if api_kind(n) == kind]

    def ids_of(self, names: frozenset[str]) -> list[int]:
        """Return the ids of the calls of some base names."""
        both = zip(self.name_id, self.name, strict=True)
        return [i for i, n in both if api_base_name(n) in names]


@view
def call_names(trace: Trace) -> CallNames:
    """Return the distinct names of host calls."""
    ids = counted(trace.frame("runtime")["name_id"])["name_id"].drop_nulls()
    named = pl.DataFrame([ids, ids.alias("of")]).with_columns(pl.lit(None, pl.String).alias("name"))
    named = resolved(named, trace.frame("strings"), "name", "name_id")
    return CallNames(named["of"].to_list(), named["name"].fill_null("").to_list())
