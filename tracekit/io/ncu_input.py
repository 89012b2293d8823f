"""A raw page of Nsight Compute as one input of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tracekit.errors import NotAReportError
from tracekit.io.export import fingerprint, opened_text
from tracekit.io.ncu import NcuReport, is_raw_page, read_raw_csv
from tracekit.model.catalog import CATALOG
from tracekit.model.inputs import Report

__all__ = ["PRODUCT", "NcuInput", "open_ncu"]

PRODUCT = "NVIDIA Nsight Compute"
_ENTRY = CATALOG["ncu_kernels"]


@dataclass(frozen=True)
class NcuInput:
    """Results of Nsight Compute; of host and program it keeps nothing.

    Attributes:
        name: File name without folder.
        sha256: See `tracekit.io.export.fingerprint`.
        kernels: Frame of the catalog table ``ncu_kernels`` but for its report column.
        notes: For the provenance.
    """

    name: str
    sha256: str
    kernels: pl.DataFrame
    notes: tuple[str, ...]

    def report(self, index: int) -> Report:
        """Return what is said of this input at a position among the run's inputs."""
        tables = {"ncu_kernels": self.kernels.height} if self.kernels.height else {}
        return Report(
            index,
            self.name,
            self.sha256,
            PRODUCT,
            tables=tables,
            present=("ncu_kernels",),
            notes=list(self.notes),
        )

    def frame(self, index: int) -> pl.DataFrame:
        """Return the catalog table ``ncu_kernels`` of this input."""
        return _ENTRY.table.conform(self.kernels.with_columns(report=pl.lit(index, pl.UInt16)))


def open_ncu(path: Path) -> NcuInput | None:
    """Read an input if it is a raw page of Nsight Compute, whatever its suffix.

    Args:
        path: Any file; a page may be compressed with xz, gzip, zstd or bzip2.

    Returns:
        The results; None when the file is something else.

    Raises:
        InputError: It is a raw page, but a number in it cannot be read.
    """
    with opened_text(path) as text:
        if text is None or not is_raw_page(text):
            return None
        found = read_raw_csv(text)
    if found.kernels.is_empty():
        message = "a raw page of Nsight Compute without any kernel"
        raise NotAReportError(message, path=path, hint="profile it again: no kernel was matched")
    return NcuInput(path.name, fingerprint(path), _canonical(found), _notes(found))


def _canonical(found: NcuReport) -> pl.DataFrame:
    """Rename the columns that the catalog knows and drop the others."""
    have = found.kernels.columns
    names = {f.raw[0]: f.name for f in _ENTRY.fields if f.raw[0] in have}
    return found.kernels.select(pl.col(raw).alias(name) for raw, name in names.items())


def _notes(found: NcuReport) -> tuple[str, ...]:
    if not found.inaccessible:
        return ()
    n = len(found.inaccessible)
    shown = ", ".join(found.inaccessible[:5]) + (f" and {n - 5} more" if n > 5 else "")
    return (f"Nsight Compute could not collect {shown}",)
