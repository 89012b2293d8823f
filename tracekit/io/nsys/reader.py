"""One report: raw tables to canonical frames.

Knows which raw table and columns a canonical table comes from in this file, and turns ids into
what they mean: process and thread from nsys' packed ids, string ids made unique across reports,
rows with impossible times dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import polars as pl

from tracekit.errors import InputError
from tracekit.io.source import Cells, Part, RowFilter, TableSource
from tracekit.model.catalog import CATALOG, STRING_ID_BITS, CatalogTable, Field
from tracekit.model.cupti import PEER_TO_PEER
from tracekit.model.inputs import Report
from tracekit.numerics.numbering import by_kind

__all__ = ["CounterOf", "ReportReader", "by_counter", "metric_rows", "no_samples"]

CounterOf: TypeAlias = Callable[[int | None, int | None], int | None]
"""Device type and metric id to the number of the counter among the names in order; None for
counters that were not requested."""


def metric_rows(
    reader: ReportReader,
    metrics: Collection[str],
    window: tuple[int, int] | None = None,
    types: Collection[int] | None = None,
) -> tuple[pl.DataFrame, CounterOf]:
    """Read the samples of the named counters, filtered while reading.

    Args:
        reader: The report.
        metrics: Exact names.
        window: Half-open time of this report, ns; None for all.
        types: Device types to read; None for all.

    Returns:
        The canonical frame ``gpu_metrics``, which may hold rows of further counters, and what
        distinguishes them.
    """
    names = reader.load("metric_names").filter(pl.col("name").is_in(list(metrics)))
    ids = tuple(sorted(set(names["metric"])))
    where = [RowFilter("metricId", isin=ids)]
    if window is not None:
        where.append(RowFilter("timestamp", low=window[0], high=window[1]))
    if types is not None:
        where.append(RowFilter("typeId", isin=tuple(sorted(types))))
    rows = reader.load("gpu_metrics", where)
    number = {name: place for place, name in enumerate(sorted(metrics))}
    known = names.select("type_id", "metric", "name").rows()[::-1]  # the first one counts
    if names["type_id"].null_count():
        # A report without device types (older exports) has one name list for all devices.
        plain = {metric: number[name] for _, metric, name in known}
        return rows, lambda _, metric: plain.get(metric)
    full = {(type_id, metric): number[name] for type_id, metric, name in known}
    return rows, lambda type_id, metric: full.get((type_id, metric))


def no_samples(metrics: Collection[str]) -> pl.DataFrame:
    """Return no sample of some counters.

    Args:
        metrics: Exact names.
    """
    nothing = np.empty(0, np.int64)
    return _frame(0, sorted(metrics), np.zeros(len(metrics), np.int64), nothing, nothing)


def by_counter(rows: pl.DataFrame, report: int, metrics: Collection[str]) -> pl.DataFrame:
    """Sort the samples of a report by GPU, name and time.

    Args:
        rows: kind (``(gpu + 1) * len(metrics)`` and the number of the name, the GPU -1 where it is
            unknown), t_ns, value.
        report: Index of the report.
        metrics: Exact names.

    Returns:
        Frame of report, gpu, name (an Enum of the names in order), t_ns, value. A null GPU comes
        first; rows that agree in all three keep their order.
    """
    kinds = rows["kind"].to_numpy().astype(np.uint32)
    n_kinds = (int(kinds.max(initial=0)) // max(len(metrics), 1) + 1) * len(metrics)
    times, values = (np.ascontiguousarray(rows[c].to_numpy()) for c in ("t_ns", "value"))
    return _frame(report, sorted(metrics), *by_kind(kinds, times, values, n_kinds))


def _frame(
    report: int,
    names: list[str],
    count: np.ndarray[tuple[int], np.dtype[np.int64]],
    times: np.ndarray[tuple[int], np.dtype[np.int64]],
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> pl.DataFrame:
    index = np.arange(count.size)
    gpu = pl.Series("gpu", np.repeat((index // max(len(names), 1) - 1).astype(np.int16), count))
    if count[: len(names)].any():
        gpu = gpu.replace(-1, None)
    name = pl.Series("name", names, dtype=pl.Enum(names))
    place = pl.Series(np.repeat((index % max(len(names), 1)).astype(np.uint32), count))
    samples = {"gpu": gpu, "name": name.gather(place), "t_ns": times, "value": values}
    return pl.DataFrame(samples).select(pl.lit(report, pl.UInt16).alias("report"), *samples)


PID_SHIFT, ID_MASK = 24, 0xFFFFFF
ABSURD_NS = 1 << 61
"""Times beyond 73 years of session time are damaged records, not events."""
_ACTIVITY, _WORK_COLUMNS = "CUPTI_ACTIVITY_KIND_", {"start", "end", "deviceId"}
"""What a table of device work is called, and columns without which a table is none."""
NAME_IDS = ("name_id", "mangled_id", "short_id", "text_id", "json_text_id")
_PACKED = {
    "_global_pid": {"pid": PID_SHIFT},
    "_global_tid": {"pid": PID_SHIFT, "tid": 0},
    "_end_global_tid": {},
}
"""Ids that hold others: where each begins in them, bits."""
TESTED_SCHEMA_MAJOR_MINOR = (3, 25)
_MOST_DIGITS = 6
"""Of the version at the end of a table's name, as in ``NVTX_EVENTS_V2``."""


class ReportReader:
    """Reads one opened export.

    Args:
        source: The file.
        index: The ``report`` column.
        name: File name for people.
        fingerprint: Hash for the provenance.
        salvage: Whether a damaged table is left out with a note instead of refusing the file.
    """

    def __init__(
        self,
        source: TableSource,
        index: int,
        name: str,
        fingerprint: str,
        *,
        salvage: bool = False,
    ) -> None:
        self._source = source
        self._salvage = salvage
        self._raw = source.tables()
        self._newest: dict[str, tuple[int, str]] = {}
        for raw in self._raw:
            own, _, suffix = raw.rpartition("_V")
            is_later = own and suffix.isdecimal() and len(suffix) <= _MOST_DIGITS
            base, version = (own, int(suffix)) if is_later else (raw, 0)
            self._newest[base] = max(self._newest.get(base, (0, "")), (version, raw))
        self._damaged: dict[str, str] = {}
        self._markers: list[pl.DataFrame] = []
        self.report = self._describe(index, name, fingerprint)

    def table_name(self, canonical: str) -> str | None:
        """Return the raw table of a canonical one, newest suffix first; None when absent."""
        for wanted in CATALOG[canonical].sources:
            if wanted in self._newest:
                return self._newest[wanted][1]
        return None

    def load(self, canonical: str, where: Sequence[RowFilter] = ()) -> pl.DataFrame:
        """Return a canonical frame without its ``gpu`` column's meaning (all null).

        Args:
            canonical: Catalog name.
            where: Conditions on raw columns.

        Returns:
            The frame; empty when the table is absent.
        """
        parts = [self._load(canonical, where)]
        if canonical == "nvtx":
            parts += self._markers
        elif canonical == "memcpy" and self.table_name("peer_copies") is not None:
            peers = self._load("peer_copies", where)
            kind = pl.col("copy_kind") if "copy_kind" in peers.columns else pl.lit(None, pl.Int32)
            parts.append(peers.with_columns(kind.fill_null(PEER_TO_PEER).alias("copy_kind")))
        table = CATALOG[canonical].table
        return parts[0] if len(parts) == 1 else pl.concat([table.conform(p) for p in parts])

    def add_markers(self, rows: pl.DataFrame, note: str) -> None:
        """Add rows to the table ``nvtx`` that come from another file.

        Args:
            rows: Canonical columns of ``nvtx``, ``report`` left out.
            note: What they are, for the provenance.
        """
        self._markers.append(
            rows.with_columns(pl.lit(self.report.index, pl.UInt16).alias("report"))
        )
        tables = dict(self.report.tables)
        tables["nvtx"] = tables.get("nvtx", 0) + rows.height
        present = (*self.report.present, "nvtx")
        self.report = replace(self.report, tables=tables, present=present)
        self.report.notes.append(note)

    def _load(self, canonical: str, where: Sequence[RowFilter] = ()) -> pl.DataFrame:
        entry, raw = CATALOG[canonical], self.table_name(canonical)
        if raw is None or raw in self._damaged:
            return entry.table.empty()
        columns = self._raw[raw]
        chosen = {f.name: c for f in entry.fields if (c := _first(f, columns)) is not None}
        if any(f.required and f.name not in chosen for f in entry.fields):
            self.report.notes.append(f"{raw}: lacks a column that {canonical} needs; not read")
            return entry.table.empty()
        try:
            frame = self._source.read(raw, self._cells(entry, chosen), where)
        except InputError as error:
            if not self._salvage:
                raise
            self.report.notes.append(f"{raw}: damaged, left out ({error.message})")
            return entry.table.empty()
        frame = frame.rename({c: n for n, c in chosen.items() if n not in _PACKED})
        frame = frame.with_columns(pl.lit(self.report.index, pl.UInt16).alias("report"))
        if entry.name == "strings":
            frame = self._once(frame)
        return self._valid(entry, frame) if entry.interval else frame

    def _cells(self, entry: CatalogTable, chosen: Mapping[str, str]) -> dict[str, Cells]:
        """What to read for a canonical table, ids taken apart and made unique on the way."""
        cells: dict[str, Cells] = {}
        offset = self.report.index << STRING_ID_BITS
        names = ("id",) if entry.name == "strings" else NAME_IDS
        for field in entry.fields:
            column = chosen.get(field.name)
            if column is None:
                continue
            if field.name in _PACKED:
                for name, bit in _PACKED[field.name].items():
                    cells[name] = Part(column, pl.UInt32, right=bit, bits=ID_MASK)
            elif offset and field.name in names:
                cells[column] = Part(column, field.dtype, add=offset)
            else:
                cells[column] = field.dtype
        return cells

    def _once(self, strings: pl.DataFrame) -> pl.DataFrame:
        """Keep the first string of each id: a second one would multiply what it names."""
        twice = strings.height - strings["id"].n_unique()
        if not twice:
            return strings
        self.report.notes.append(f"{twice} ids of strings are given twice; the first one counts")
        return strings.unique("id", keep="first", maintain_order=True)

    def _valid(self, entry: CatalogTable, frame: pl.DataFrame) -> pl.DataFrame:
        may_be_empty = entry.name in {"runtime", "overhead"}
        if _all_valid(frame["start_ns"], frame["end_ns"], may_be_empty=may_be_empty):
            return frame
        start, end = pl.col("start_ns"), pl.col("end_ns")
        absurd = ~start.is_between(-ABSURD_NS, ABSURD_NS) | ~end.is_between(-ABSURD_NS, ABSURD_NS)
        empty = (end == start) & pl.lit(not may_be_empty)
        doubtful = start.is_null() | end.is_null() | absurd | (end < start) | empty
        zero = (start == 0) & (end == 0)
        if not frame.select((doubtful | zero).any()).item():
            return frame
        reasons = (
            pl.when(start.is_null() | end.is_null() | ((start == 0) & (end == 0)))
            .then(pl.lit("no timestamp"))
            .when(absurd)
            .then(pl.lit("absurd time"))
            .when(end < start)
            .then(pl.lit("end before start"))
            .when(empty)
            .then(pl.lit("zero length"))
        )
        marked = frame.with_columns(reasons.alias("_bad"))
        bad = marked.get_column("_bad")
        counts = bad.drop_nulls().value_counts().sort("_bad")
        self.report.dropped[entry.name] = dict(counts.iter_rows())
        return marked.filter(pl.col("_bad").is_null()).drop("_bad")

    def devices(self, canonical: str) -> set[int]:
        """Return the distinct CUDA ordinals of a device table."""
        raw = self.table_name(canonical)
        if raw is None or raw in self._damaged or "deviceId" not in self._raw[raw]:
            return set()
        pieces = self._source.batches(raw, {"deviceId": pl.Int32})
        return {d for p in pieces for d in p["deviceId"].drop_nulls().unique().to_list()}

    def starts(self, canonical: str) -> Iterator[pl.Series]:
        """Yield the start times of a table's rows in pieces, in storage order, ns."""
        raw = self.table_name(canonical)
        if raw is None or "start" not in self._raw[raw]:
            return
        for piece in self._source.batches(raw, {"start": pl.Int64}):
            yield piece.get_column("start").drop_nulls()

    def _describe(self, index: int, name: str, fingerprint: str) -> Report:
        export = self._pairs("META_DATA_EXPORT EXPORT_META_DATA")
        capture = self._pairs("META_DATA_CAPTURE")
        product = export.get("EXPORT_PRODUCT_VERSION", "")
        mode = next((v for k, v in capture.items() if k.endswith("GRAPH_TRACE_OPTIONS:MODE")), "")
        hertz = capture.get("GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY", "")
        blobs = export.get("EXPORT_PARAM_INCLUDE_BLOBS")
        counts = {n: self._count(n) for n in CATALOG}
        report = Report(
            index=index,
            name=name,
            sha256=fingerprint,
            product=f"{export.get('EXPORT_PRODUCT_NAME', '')} {product}".strip(),
            schema_version=export.get("EXPORT_SCHEMA_VERSION"),
            nsys_version=_version(product),
            graph_trace=mode.lower(),
            metric_hz=int(hertz) if hertz.isdigit() else None,
            has_blobs=None if blobs is None else blobs.lower() == "true",
            utc_epoch_ns=self._scalar("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
            duration_ns=self._scalar("ANALYSIS_DETAILS", "duration"),
            tables={n: c for n, c in counts.items() if c},
            present=tuple(n for n, c in counts.items() if c is not None),
            notes=self._source.notes,
            unread=self._unread(),
        )
        report.notes.extend(_schema_notes(report.schema_version))
        lost = sorted(self._damaged.items())
        report.notes.extend(f"{raw}: damaged, left out ({why})" for raw, why in lost)
        return report

    def _count(self, canonical: str) -> int | None:
        raw = self.table_name(canonical)
        if raw is None:
            return None
        try:
            return self._source.count(raw)
        except InputError as error:
            if not self._salvage:
                raise
            self._damaged[raw] = error.message
            return None

    def _unread(self) -> dict[str, int]:
        """Rows of tables of device work that no table of the catalog comes from."""
        known = {source for entry in CATALOG.values() for source in entry.sources}
        found = {}
        for base, (_, raw) in sorted(self._newest.items()):
            is_work = base.startswith(_ACTIVITY) and self._raw[raw].keys() >= _WORK_COLUMNS
            if is_work and base not in known and (n := self._source.count(raw)):
                found[raw] = n
        return found

    def _scalar(self, raw: str, column: str) -> int | None:
        if column not in self._raw.get(raw, {}):
            return None
        values = self._source.read(raw, {column: pl.Int64}).get_column(column).drop_nulls()
        return None if values.is_empty() else int(values[0])

    def _pairs(self, names: str) -> dict[str, str]:
        raw = next((n for n in names.split() if n in self._raw), None)
        if raw is None or not {"name", "value"} <= self._raw[raw].keys():
            return {}
        frame = self._source.read(raw, {"name": pl.String, "value": pl.String})
        return dict(frame.drop_nulls().iter_rows())


def _all_valid(start: pl.Series, end: pl.Series, *, may_be_empty: bool) -> bool:
    """Whether every row is valid for reasons that are cheap to see."""
    first, last = start.min(), end.max()
    if start.null_count() or end.null_count() or not isinstance(first, int):
        return start.is_empty()
    in_order = (end >= start) if may_be_empty else (end > start)
    return first > 0 and isinstance(last, int) and last <= ABSURD_NS and in_order.all()


def _first(field: Field, columns: Collection[str]) -> str | None:
    return next((c for c in field.raw if c in columns), None)


def _version(product: str) -> tuple[int, ...] | None:
    parts = re.findall(r"\d+", product)
    return tuple(int(p) for p in parts) or None


def _schema_notes(version: str | None) -> list[str]:
    if version is None:
        return ["schema version unknown: columns decide what is read"]
    parts = _version(version)
    if parts is not None and parts[:2] > TESTED_SCHEMA_MAJOR_MINOR:
        tested = ".".join(map(str, TESTED_SCHEMA_MAJOR_MINOR))
        return [f"export schema {version} is newer than the newest tested ({tested})"]
    return []
