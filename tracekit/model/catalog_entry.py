"""What an entry of the catalog is: its columns, where they stand, how it gets recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from tracekit.model.table import Column, Table

__all__ = ["REPORT", "CatalogTable", "Field", "Recording"]

GPU_METRICS_PLURAL_SINCE = (2024, 5)
"""First nsys version that spells ``--gpu-metrics-devices``."""


@dataclass(frozen=True)
class Recording:
    """How a table gets recorded.

    Attributes:
        trace: Value for ``nsys profile -t``, or "".
        flag: Further option of ``nsys profile``, in the newest spelling, or "".
        old_flag: The same option before `GPU_METRICS_PLURAL_SINCE`, if it differs.
        export: Option of ``nsys export``, or "".
    """

    trace: str = ""
    flag: str = ""
    old_flag: str = ""
    export: str = ""

    def spelled(self, version: tuple[int, ...] | None) -> str:
        """Return `flag` as the given nsys version (None: newest) spells it."""
        old = version is not None and version[:2] < GPU_METRICS_PLURAL_SINCE
        return self.old_flag if old and self.old_flag else self.flag

    def words(self, version: tuple[int, ...] | None = None) -> str:
        """Return the options as one would type them."""
        parts = [f"-t {self.trace}" if self.trace else "", self.spelled(version)]
        parts += [f"(nsys export) {self.export}"] if self.export else []
        return " ".join(p for p in parts if p)


@dataclass(frozen=True)
class Field(Column):
    """A column of a catalog table and the raw columns it may come from, best first."""

    raw: tuple[str, ...] = ()


@dataclass(frozen=True)
class CatalogTable:
    """One canonical table.

    Attributes:
        name: Canonical name.
        sources: nsys table names, newest first; ``_V2``, ``_V3`` suffixes are tried too.
        fields: Columns read from the file.
        derived: Columns that the reader adds (report, gpu, pid, ...).
        recording: How it gets recorded.
        doc: What one row is.
        interval: Whether rows have ``start_ns`` and ``end_ns`` and get validity checks.
    """

    name: str
    sources: tuple[str, ...]
    fields: tuple[Field, ...]
    derived: tuple[Column, ...]
    recording: Recording
    doc: str
    interval: bool = False
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        """Build the `Table` of all canonical columns."""
        columns = (REPORT, *self.derived, *self.fields)
        visible = tuple(c for c in columns if not c.name.startswith("_"))
        object.__setattr__(self, "table", Table(self.name, visible, self.doc))


REPORT = Column("report", pl.UInt16, "", "index of the input file")
