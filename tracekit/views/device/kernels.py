"""Kernel names, classified once per distinct name, and the kinds of device work."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import Classifier, KernelKind
from tracekit.model.ncu import SHAPE
from tracekit.trace import Trace, view
from tracekit.views.keys import row_numbers
from tracekit.views.strings import placeholder

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = [
    "COPY_KINDS",
    "KIND",
    "OPAQUE",
    "WORK_KIND",
    "Shapes",
    "kernel_names",
    "kernels",
    "shapes",
]

KIND = pl.Enum([k.value for k in KernelKind])
"""Dtype of every ``kind`` column."""
OPAQUE = "opaque graph"
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "UVM HtoD",
    12: "UVM DtoH",
    13: "UVM DtoD",
}
"""CUPTI's copy kinds."""
WORK_KIND = pl.Enum(
    sorted(
        {k.value for k in KernelKind}
        | {f"memcpy {name}" for name in (*COPY_KINDS.values(), "kind unknown")}
        | {"memset", OPAQUE}
    )
)
"""What a row of device work can be, in alphabetical order."""
_IDS = ["name_id", "mangled_id", "short_id"]


class _Named(NamedTuple):
    """The names of all kernels.

    Attributes:
        row: uint32[kernels], row of `table` of each row of the catalog frame.
        table: One row per distinct id triple, with its name and class.
    """

    row: NDArray[np.uint32]
    table: pl.DataFrame


@view
def _names_by_id(trace: Trace) -> _Named:
    row, ids = row_numbers(trace.frame("kernels").select(_IDS))
    strings = trace.frame("strings").select("id", "value")
    for column in _IDS:
        looked_up = strings.rename({"id": column, "value": column.replace("_id", "")})
        ids = ids.join(looked_up, on=column, how="left", maintain_order="left")
    classifier = Classifier(trace.settings.kernel_overrides)
    rows = []
    for name, mangled, short in ids.select("name", "mangled", "short").iter_rows():
        found = classifier.classify_parts(name, mangled, short)
        rows.append((found.kind.value, found.op, found.family, found.is_comm, found.fused))
    schema: dict[str, PolarsDataType] = {
        "kind": KIND,
        "op": pl.String,
        "family": pl.String,
        "is_comm": pl.Boolean,
        "fused": pl.Boolean,
    }
    classes = pl.DataFrame(rows, schema=schema, orient="row")
    shown = pl.coalesce("name", "mangled", "short", placeholder("name_id"))
    named = ids.with_columns(shown.alias("name")).drop("mangled").hstack(classes)
    key = (pl.col("name").rank("dense") - 1).cast(pl.UInt32).alias("name_key")
    return _Named(row, named.with_columns(key))


@view
def kernel_names(trace: Trace) -> pl.DataFrame:
    """Return one row per distinct kernel name.

    Returns:
        Frame of name_key UInt32 (rank of the name), name String (demangled, else mangled, else
        short), short String, kind Enum `KIND`, op String (null when the name does not state it),
        is_comm Boolean, fused Boolean, family String; sorted by name_key.
    """
    columns = ["name_key", "name", "short", "kind", "op", "is_comm", "fused", "family"]
    named = _names_by_id(trace).table.select(columns)
    return named.unique("name_key", keep="first", maintain_order=True).sort("name_key")


@view
def kernels(trace: Trace) -> pl.DataFrame:
    """Return what each kernel is.

    Returns:
        Frame of name_key UInt32 (see `kernel_names`) and kind `WORK_KIND`, a row a row of the
        catalog frame ``kernels``.
    """
    named = _names_by_id(trace)
    kind = pl.col("kind").cast(pl.String).cast(WORK_KIND)
    return named.table.select("name_key", kind)[named.row]


class Shapes(NamedTuple):
    """Grids and blocks of all kernels.

    Attributes:
        row: uint32[kernels], row of `table` of each row of the catalog frame.
        table: The distinct `SHAPE`, Int32 columns, sorted.
    """

    row: NDArray[np.uint32]
    table: pl.DataFrame

    def of(self, rows: pl.Series) -> pl.DataFrame:
        """Return the columns of `SHAPE` for rows of the catalog frame, nulls for a null row."""
        known = rows.is_not_null()
        own = pl.Series(self.row[rows.drop_nulls().to_numpy()]) if self.row.size else None
        at = pl.repeat(None, len(rows), dtype=pl.UInt32, eager=True)
        return self.table[at if own is None else at.scatter(known.arg_true(), own)]


@view
def shapes(trace: Trace) -> Shapes:
    """Return the launch shape of every kernel."""
    return Shapes(*row_numbers(trace.frame("kernels").select(SHAPE)))
