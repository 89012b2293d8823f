"""Marker files of the injector (``OUT.markers.jsonl``): alone, or as part of a report.

Line 1 is a header with the format's version and two clocks read together; every other line is one
marker with its time on ``CLOCK_MONOTONIC``. The last line may be cut short. A report places them
on its own clock by the ``SYNC`` markers of the same process; without any, by the wall clock.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import polars as pl

from tracekit.errors import DamagedReportError
from tracekit.io.export import fingerprint
from tracekit.io.nsys.reader import ReportReader
from tracekit.io.source import BATCH_ROWS, Cells, RowFilter
from tracekit.io.sqlite.convert import part_of, raw

__all__ = ["MarkerSource", "Sidecar", "attach", "open_sidecar"]

MAGIC = b'{"tracekit_sidecar":'
FORMATS = (1,)
MARK, PUSH_POP = 34, 59
PRODUCT = "marker file of tracekit run"
_PID_SHIFT, _HARDWARE = 24, 1 << 56
_LINES = pl.Schema(
    {
        "t_mono_ns": pl.Int64(),
        "end_mono_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "text": pl.String(),
    }
)
_META = pl.DataFrame(
    {
        "name": ["EXPORT_PRODUCT_NAME", "EXPORT_SCHEMA_VERSION"],
        "value": [PRODUCT, str(FORMATS[-1])],
    }
)


@dataclass(frozen=True)
class Sidecar:
    """One marker file.

    Attributes:
        name: File name.
        sha256: See `tracekit.io.export.fingerprint`.
        markers: Frame of t_mono_ns, end_mono_ns (null for a mark), pid, tid (Int64), text.
        utc_minus_mono_ns: Wall clock minus ``CLOCK_MONOTONIC``, ns.
    """

    name: str
    sha256: str
    markers: pl.DataFrame
    utc_minus_mono_ns: int


def open_sidecar(path: Path) -> Sidecar | None:
    """Read a marker file.

    Returns:
        The markers in order of time; None when the file is something else.

    Raises:
        DamagedReportError: It is a marker file, but of another version or unreadable.
    """
    if not os.path.isfile(path):  # noqa: PTH113 - never raises; a pipe would be waited for
        return None
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return None
    except OSError:
        return None  # whoever opens it next gives the reason
    head, _, body = path.read_bytes().partition(b"\n")
    try:
        header = json.loads(head)
        if header["tracekit_sidecar"] not in FORMATS:
            message = f"a marker file of format {header['tracekit_sidecar']}, not one of {FORMATS}"
            raise DamagedReportError(message, path=path, hint="update tracekit")
        offset = int(header["utc_ns"]) - int(header["mono_ns"])
        whole = body[: body.rfind(b"\n") + 1]
        lines = pl.read_ndjson(io.BytesIO(whole), schema=_LINES) if whole else _LINES.to_frame()
    except (ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        message = f"damaged marker file ({str(error).splitlines()[0][:80]})"
        raise DamagedReportError(message, path=path, hint="record it again") from None
    lines = lines.drop_nulls(["t_mono_ns", "pid", "text"]).sort("t_mono_ns", maintain_order=True)
    return Sidecar(path.name, fingerprint(path), lines, offset)


def attach(sidecar: Sidecar, readers: Sequence[ReportReader]) -> bool:
    """Add the markers to the report of the same processes.

    Args:
        sidecar: The markers.
        readers: Reports of the run.

    Returns:
        Whether one of the reports is of the same run.
    """
    pids = sidecar.markers["pid"].unique()
    for reader in readers:
        offsets = _sync_offsets(reader, pids)
        if offsets.is_empty():
            continue
        middle = int(str(offsets.median() or 0).split(".")[0])
        spread = int(str((offsets - middle).abs().median() or 0).split(".")[0])
        how = f"placed by {len(offsets)} SYNC markers (MAD {spread} ns)"
        reader.add_markers(_rows(sidecar, middle), f"{_said(sidecar)}, {how}")
        return True
    for reader in readers:
        epoch = reader.report.utc_epoch_ns
        if epoch is not None:
            offset = epoch - sidecar.utc_minus_mono_ns
            how = "placed by the wall clock: the report holds no SYNC marker of its processes"
            reader.add_markers(_rows(sidecar, offset), f"{_said(sidecar)}, {how}")
            return True
    return False


def _said(sidecar: Sidecar) -> str:
    return f"{sidecar.markers.height} markers from {sidecar.name}"


def _sync_offsets(reader: ReportReader, pids: pl.Series) -> pl.Series:
    """``CLOCK_MONOTONIC`` minus session time, ns, of every SYNC marker of these processes."""
    rows = reader.load("nvtx")
    if rows.is_empty() or "pid" not in rows.columns:
        return pl.Series("offset", [], dtype=pl.Int64)
    strings = reader.load("strings").select(pl.col("id").alias("text_id"), "value")
    text = pl.coalesce("text", "value")
    marks = rows.join(strings, on="text_id", how="left").filter(
        text.str.starts_with("SYNC ") & pl.col("pid").cast(pl.Int64).is_in(pids.implode())
    )
    clock = text.str.extract(r"\bmono_ns=(\d+)").cast(pl.Int64, strict=False)
    return marks.select((clock - pl.col("start_ns")).alias("offset")).to_series().drop_nulls()


def _rows(sidecar: Sidecar, offset_ns: int) -> pl.DataFrame:
    """The markers as rows of the canonical table ``nvtx``."""
    end = pl.col("end_mono_ns") - offset_ns
    return sidecar.markers.select(
        (pl.col("t_mono_ns") - offset_ns).alias("start_ns"),
        end.alias("end_ns"),
        pl.when(end.is_null()).then(MARK).otherwise(PUSH_POP).cast(pl.Int32).alias("event_type"),
        "text",
        pl.lit(0, pl.Int64).alias("domain"),
        pl.col("pid").cast(pl.UInt32),
        pl.col("tid").cast(pl.UInt32),
    )


class MarkerSource:
    """A marker file as a report of its own: one raw table, ``NVTX_EVENTS``; time starts at 0.

    Args:
        path: The file.
        sidecar: What it holds.
    """

    def __init__(self, path: Path, sidecar: Sidecar) -> None:
        self.path = path
        self.notes: list[str] = []
        first = int(str(sidecar.markers["t_mono_ns"].min() or 0))
        rows = _rows(sidecar, first)
        packed = pl.col("pid").cast(pl.Int64) * (1 << _PID_SHIFT) + pl.col("tid") + _HARDWARE
        self._nvtx = rows.select(
            pl.col("start_ns").alias("start"),
            pl.col("end_ns").alias("end"),
            pl.col("event_type").alias("eventType"),
            "text",
            packed.alias("globalTid"),
            pl.col("domain").alias("domainId"),
        )
        epoch = first + sidecar.utc_minus_mono_ns
        self._frames = {
            "NVTX_EVENTS": self._nvtx,
            "TARGET_INFO_SESSION_START_TIME": pl.DataFrame({"utcEpochNs": [epoch]}),
            "META_DATA_EXPORT": _META,
        }

    def tables(self) -> dict[str, dict[str, str]]:
        """Return the tables, see `TableSource.tables`."""
        return {
            n: {c: "TEXT" if t == pl.String else "INTEGER" for c, t in f.schema.items()}
            for n, f in self._frames.items()
        }

    def count(self, table: str) -> int:
        """Return the number of rows, see `TableSource.count`."""
        return self._frames[table].height

    def read(
        self, table: str, columns: Mapping[str, Cells], where: Sequence[RowFilter] = ()
    ) -> pl.DataFrame:
        """Return columns of the chosen rows, see `TableSource.read`."""
        frame = self._frames[table]
        for one in where:
            frame = frame.filter(_condition(one))
        made = []
        for name, cells in columns.items():
            column, dtype = raw(name, cells)
            made.append(part_of(frame[column].cast(dtype).alias(name), cells))
        return pl.DataFrame(made)

    def batches(
        self,
        table: str,
        columns: Mapping[str, Cells],
        where: Sequence[RowFilter] = (),
        rows: int = BATCH_ROWS,  # noqa: ARG002 - it is in memory already
    ) -> Iterator[pl.DataFrame]:
        """Yield what `read` returns, see `TableSource.batches`."""
        yield self.read(table, columns, where)

    def close(self) -> None:
        """Do nothing: the file is closed."""

    def __enter__(self) -> Self:
        """Return the source itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the source."""
        self.close()


def _condition(one: RowFilter) -> pl.Expr:
    column = pl.col(one.column)
    if one.isin is not None:
        return column.is_in(list(one.isin))
    condition = column.is_not_null()
    if one.low is not None:
        condition &= column >= one.low
    if one.high is not None:
        condition &= column < one.high
    return condition
