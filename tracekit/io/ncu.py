"""Nsight Compute results: the raw page as CSV, whatever else stands around it.

``ncu --csv --page raw`` prints a header, a row of units and a row a kernel, between banners of its
own (``==PROF==``) and whatever the program prints. Numbers carry thousands separators and scaled
units; everything comes out in base units (ns, bytes, bytes/s, Hz; shares stay percent).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import polars as pl

from tracekit.errors import InputError, NotAReportError
from tracekit.io.export import fingerprint, opened_text
from tracekit.model.catalog import CATALOG
from tracekit.model.inputs import Report

__all__ = [
    "PRODUCT",
    "NcuInput",
    "NcuReport",
    "is_raw_page",
    "number",
    "open_ncu",
    "read_raw_csv",
    "to_base",
]

HEADER_WITHIN_LINES = 100_000
"""Lines of the program's own output that may stand above the page."""
_ABSENT = frozenset({"", "n/a", "no data", "nan", "-"})
_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][+-]?\d+)?")
_SHAPE = re.compile(r"\(?(\d+),\s*(\d+),\s*(\d+)\)?")
_RANGE = re.compile(r'"(<default domain>|[^":]*):([^"]*?)(?::none){3,}[^"]*"')
_LAYER = re.compile(r"(?i)\blayer[ =:]*(\d{1,9})\b")
_METRIC = re.compile(r"\b[a-z0-9]+__[a-z0-9_.]+\b")
_UNREADABLE = re.compile(r"not (accessible|available|found|supported)|could not|failed to", re.I)
_TIMES = {"s": 1e9, "second": 1e9, "ms": 1e6, "msecond": 1e6, "us": 1e3, "usecond": 1e3}
_TIMES |= {"ns": 1.0, "nsecond": 1.0}
_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NAMES = {"ID": "id", "Process ID": "pid", "Kernel Name": "name", "Context": "context"}
_NAMES |= {"Stream": "stream", "Device": "device", "CC": "compute_capability"}
_INTEGERS = ("id", "pid", "context", "stream", "device")


@dataclass(frozen=True)
class NcuReport:
    """One file.

    Attributes:
        kernels: One row a profiled kernel: id, pid, context, stream, device Int64, name,
            compute_capability and range String (innermost NVTX range, null without), layer Int32
            (of the innermost range that names one), grid_x .. block_z Int32, then every metric as
            Float64 in base units, null where there is no value.
        units: Metric to the unit of its column here.
        warnings: Banner lines that warn, in order.
        inaccessible: Metrics that a warning says could not be collected, sorted.
    """

    kernels: pl.DataFrame
    units: dict[str, str]
    warnings: tuple[str, ...]
    inaccessible: tuple[str, ...]


def number(text: str) -> float | None:
    """Read a number as ncu prints it.

    Args:
        text: Digits with ``,`` between thousands and ``.`` before decimals.

    Returns:
        The number; None for an absent value (``n/a``, ``no data``, nothing).

    Raises:
        InputError: It is something else, such as a number with a decimal comma, which could mean
            either of two values.
    """
    cleaned = text.strip()
    if cleaned.lower() in _ABSENT:
        return None
    if not _NUMBER.fullmatch(cleaned):
        message = f"ambiguous number {cleaned!r}"
        raise InputError(message, hint="export with LC_ALL=C, or --print-units base")
    return float(cleaned.replace(",", ""))


def to_base(unit: str) -> tuple[float, str]:
    """Return the factor and name of the base unit of a unit of ncu.

    Args:
        unit: For example "Mbyte", "us", "Gbyte/s", "Ghz", "%", "sector".
    """
    if unit in _TIMES:
        return _TIMES[unit], "ns"
    quantity, slash, per = unit.partition("/")
    for stem, base in (("byte", "bytes"), ("hz", "Hz")):
        prefix = quantity[: -len(stem)]
        if quantity.lower().endswith(stem) and prefix.upper() in _PREFIX:
            seconds = per in ("s", "second")
            return _PREFIX[prefix.upper()], base + slash + ("s" if seconds else per)
    return 1.0, unit


def read_raw_csv(path: Path) -> NcuReport:
    """Read ``ncu --csv --page raw`` output.

    Args:
        path: The file; UTF-8, with or without a byte-order mark, any line ends.

    Returns:
        Its kernels.

    Raises:
        NotAReportError: There is no header of a raw page in it.
        InputError: A number cannot be read.
    """
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    banners = [line for line in lines if line.startswith("==")]
    warnings = tuple(line for line in banners if "WARNING" in line or "ERROR" in line)
    table = [line for line in lines if not line.startswith("==")]
    begin = next((i for i, line in enumerate(table) if _is_header(line)), None)
    if begin is None:
        message = "no raw page of Nsight Compute in this file"
        hint = "make one with ncu --import k.ncu-rep --csv --page raw"
        raise NotAReportError(message, path=path, hint=hint)
    header, *rows = csv.reader(io.StringIO("\n".join(table[begin:])))
    # Lines that the program printed in between do not have the columns of the table.
    rows = [row for row in rows if len(row) == len(header)]
    given, rows = _split_units(header, rows)
    metrics = [i for i, name in enumerate(header) if _METRIC.search(name) or given[i]]
    scaled = {header[i]: to_base(given[i]) for i in metrics}
    columns = {header[i]: _column(rows, i, scaled[header[i]][0]) for i in metrics}
    return NcuReport(
        kernels=_launches(header, rows).hstack(pl.DataFrame(columns)),
        units={name: unit for name, (_, unit) in scaled.items()},
        warnings=warnings,
        inaccessible=tuple(sorted(set(_refused(warnings)))),
    )


def is_raw_page(path: Path) -> bool:
    """Whether a text file has the header of a raw page near its beginning."""
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        return any(_is_header(line) for line in islice(lines, HEADER_WITHIN_LINES))


def _is_header(line: str) -> bool:
    return "Kernel Name" in line and line.lstrip('"').startswith("ID")


def _split_units(header: Sequence[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The row below the header holds units where it names no kernel."""
    if rows and not rows[0][header.index("ID")].strip():
        return rows[0], rows[1:]
    return [""] * len(header), rows


def _column(rows: list[list[str]], place: int, factor: float) -> pl.Series:
    values = []
    for row in rows:
        try:
            value = number(row[place])
        except InputError:
            if _NUMBER.search(row[place]) and "," in row[place]:
                raise
            value = None
        values.append(None if value is None else value * factor)
    return pl.Series(values, dtype=pl.Float64)


def _launches(header: Sequence[str], rows: list[list[str]]) -> pl.DataFrame:
    text = {
        name: [row[header.index(raw)] for row in rows] if raw in header else [None] * len(rows)
        for raw, name in _NAMES.items()
    }
    frame = pl.DataFrame(text, schema=dict.fromkeys(text, pl.String))
    ranges = [i for i, name in enumerate(header) if "Push/Pop_Range" in name]
    opened = [_RANGE.findall(row[ranges[0]]) if ranges else [] for row in rows]
    texts = [[text for _, text in found] for found in opened]
    shapes = {
        f"{kind}_{axis}": [_axis(row, header, f"{kind.title()} Size", n) for row in rows]
        for kind in ("grid", "block")
        for n, axis in enumerate("xyz")
    }
    return frame.with_columns(
        *(pl.col(name).cast(pl.Int64, strict=False) for name in _INTEGERS),
        pl.Series("range", [t[-1] if t else None for t in texts], dtype=pl.String),
        pl.Series("layer", [_layer(t) for t in texts], dtype=pl.Int32),
        *(pl.Series(name, values, dtype=pl.Int32) for name, values in shapes.items()),
    )


def _layer(texts: Sequence[str]) -> int | None:
    """Number of the layer that the innermost range with one names; texts from outside in."""
    return next((int(m[1]) for t in reversed(texts) if (m := _LAYER.search(t))), None)


def _axis(row: Sequence[str], header: Sequence[str], column: str, n: int) -> int | None:
    match = _SHAPE.fullmatch(row[header.index(column)].strip()) if column in header else None
    return int(match[n + 1]) if match else None


def _refused(warnings: Sequence[str]) -> Iterator[str]:
    for line in warnings:
        if _UNREADABLE.search(line):
            yield from _METRIC.findall(line)


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
