"""One way to load columns: `python -m benchmarks.loads WAY WORK REPORT SMALL_REPORT`.

The same load of a small report comes first, outside the clock, so that imports and compiled code
do not count. Then each line on standard input asks for one load, answered by one JSON object:
seconds, cpu_seconds, rows, and a checksum that must be the same for every way.
"""

from __future__ import annotations

import gc
import json
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from benchmarks.generate import DRAM

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["QUICK_WAYS", "WAYS", "WORKS", "Load", "load"]

BLOCK = 1 << 20
ROWS_AT_ONCE = 50_000
ADBC_BATCH_ROWS = 65_536
PRIME = 1_000_003


@dataclass(frozen=True)
class Load:
    """Columns of a table to read.

    Attributes:
        table: The table.
        columns: Column to the dtype that tracekit keeps it in.
        metrics: Metric ids to keep; empty for all rows.
    """

    table: str
    columns: dict[str, Any]
    metrics: tuple[int, ...] = ()

    @property
    def sql(self) -> str:
        """The load as a query."""
        where = f" WHERE metricId IN ({', '.join(map(str, self.metrics))})" if self.metrics else ""
        return f"SELECT {', '.join(self.columns)} FROM {self.table}{where}"


_TIMES = {"start": pl.Int64, "end": pl.Int64}
_SAMPLE = {"timestamp": pl.Int64, "typeId": pl.Int64, "metricId": pl.Int32, "value": pl.Int64}
WORKS = {
    "kernel, 8 of 28 columns": Load(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {
            **_TIMES,
            "deviceId": pl.Int32,
            "streamId": pl.Int64,
            "correlationId": pl.Int64,
            "globalPid": pl.Int64,
            "shortName": pl.Int64,
            "graphNodeId": pl.Int64,
        },
    ),
    "GPU_METRICS, 4 of 5 columns": Load("GPU_METRICS", _SAMPLE),
    "GPU_METRICS, 2 of 25 metrics": Load("GPU_METRICS", _SAMPLE, DRAM),
    "NVTX, 7 of 20 columns with text": Load(
        "NVTX_EVENTS",
        {
            **_TIMES,
            "eventType": pl.Int32,
            "text": pl.String,
            "globalTid": pl.Int64,
            "textId": pl.Int64,
            "domainId": pl.Int64,
        },
    ),
}
"""Name of each load -> what it reads."""


def _tracekit(path: Path, work: Load, reader: Literal["pages", "sqlite"]) -> pl.DataFrame:
    from tracekit.io.source import RowFilter, open_source

    where = [RowFilter("metricId", isin=work.metrics)] if work.metrics else []
    with open_source(path, reader) as source:
        frame = source.read(work.table, work.columns, where)
        if source.notes:
            raise ValueError("; ".join(source.notes))
    return frame


def _pages(path: Path, work: Load) -> pl.DataFrame:
    return _tracekit(path, work, "pages")


def _tracekit_sqlite(path: Path, work: Load) -> pl.DataFrame:
    return _tracekit(path, work, "sqlite")


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _fetchmany(path: Path, work: Load) -> pl.DataFrame:
    """What one writes by hand to stay within memory: blocks of rows, turned into columns."""
    cursor = _connect(path).execute(work.sql)
    parts = []
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        columns = zip(work.columns.items(), zip(*rows, strict=True), strict=True)
        parts.append(
            pl.DataFrame([pl.Series(n, list(v), dtype=dtype) for (n, dtype), v in columns])
        )
    return pl.concat(parts)


def _pandas(path: Path, work: Load) -> pd.DataFrame:
    import pandas as pd

    return pd.read_sql(work.sql, _connect(path))


def _adbc(path: Path, work: Load) -> pl.DataFrame:
    from adbc_driver_sqlite import dbapi

    with dbapi.connect(f"{path.resolve().as_uri()}?mode=ro") as db, db.cursor() as cursor:
        # Types are guessed from the first batch, which by default is too short for NVTX text.
        batch = {"adbc.sqlite.query.batch_rows": str(ADBC_BATCH_ROWS)}
        cursor.adbc_statement.set_options(**batch)
        cursor.execute(work.sql)
        frame = pl.from_arrow(cursor.fetch_record_batch())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _connectorx(path: Path, work: Load) -> pl.DataFrame:
    return pl.read_database_uri(work.sql, f"sqlite://{path.resolve()}", engine="connectorx")


def _cat(path: Path, work: Load) -> None:
    """Read the whole file and keep nothing, as ``cat FILE >/dev/null`` does."""
    del work
    buffer = bytearray(BLOCK)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


WAYS: dict[str, Callable[[Path, Load], pl.DataFrame | pd.DataFrame | None]] = {
    "tracekit pages": _pages,
    "tracekit sqlite": _tracekit_sqlite,
    "sqlite3 fetchmany": _fetchmany,
    "pandas.read_sql": _pandas,
    "ADBC": _adbc,
    "connectorx": _connectorx,
    "cat": _cat,
}
"""Name of each way to load -> the function that does it."""
QUICK_WAYS = ("tracekit pages", "ADBC", "connectorx", "cat")
"""Those whose rows are no objects of Python."""


def _from_pandas(frame: Any) -> pl.DataFrame:
    """Return a pandas frame as a Polars one without pyarrow, which few have."""
    columns = {str(n): frame[n].astype(object).where(frame[n].notna(), None) for n in frame.columns}
    return pl.DataFrame({n: pl.Series(n, c.tolist(), strict=False) for n, c in columns.items()})


MODULES = {"ADBC": "adbc_driver_sqlite", "connectorx": "connectorx"}
"""Module that a way needs beyond tracekit's own dependencies."""


def _checksum(frame: pl.DataFrame | pd.DataFrame, work: Load) -> list[int]:
    """Per column: sum modulo a prime of the integers, or bytes of text; last, the nulls."""
    sums, nulls = dict.fromkeys(work.columns, 0), 0
    for low in range(0, len(frame), ROWS_AT_ONCE):
        piece = frame[low : low + ROWS_AT_ONCE]
        part = piece if isinstance(piece, pl.DataFrame) else _from_pandas(piece)
        for name, dtype in work.columns.items():
            column = part.get_column(name)
            nulls += column.null_count()
            if dtype == pl.String:
                sums[name] += int(column.cast(pl.String).str.len_bytes().sum())
            else:
                sums[name] += int((column.cast(pl.Int64) % PRIME).sum())
    return [*sums.values(), nulls]


def load(way: str, work: str, path: Path) -> dict[str, Any]:
    """Load once and say how long it took.

    Args:
        way: Key of `WAYS`.
        work: Key of `WORKS`.
        path: Report to load from.
    """
    function, what = WAYS[way], WORKS[work]
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    frame = function(path, what)
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    times = {"seconds": seconds, "cpu_seconds": cpu_seconds}
    if frame is None:
        return times
    return {**times, "rows": len(frame), "checksum": _checksum(frame, what)}


def main(way: str, work: str, path: Path, small: Path) -> None:
    """Load as often as asked."""
    load(way, work, small)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(load(way, work, path)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
