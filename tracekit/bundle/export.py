"""Part of a trace as a small nsys-shaped SQLite file that `tracekit analyze` reads.

The tables and columns below are all that a slice can hold. They are stated here one by one,
although the catalog knows them: a column that the catalog learns tomorrow does not pass unseen.
The file is written new, from frames of an anonymous trace (`tracekit.bundle.anonymous`), so no
page of it has ever held anything else.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import polars as pl

from tracekit.io.sqlite.source import quoted
from tracekit.model.catalog import CATALOG
from tracekit.model.inputs import Report
from tracekit.model.nvtx import DOMAIN_CREATE, MARK, RANGE_TYPES
from tracekit.trace import Trace

__all__ = ["PASSING", "Frames", "Window", "cut", "n_events", "write_slice"]

Window = tuple[int, int]
Frames = dict[str, pl.DataFrame]
_DEVICE_TABLES = ("kernels", "memcpy", "memset", "graph_trace")
_WHOLE = ("cuda_devices", "gpus", "graph_nodes", "nvtx_schemas", "nvtx_schema_entries")
_CALLED = ("runtime", "event_records")
_LAUNCH = ("pid", "correlation")
_DECLARES = r"^(?:META|SYNC|KV_POOL|COMM)\b|^p?ncclComm[A-Z]"
_DEFAULT_PERIOD_NS = 1_000_000


def cut(trace: Trace, report: int, window: Window | None, counters: frozenset[str]) -> Frames:
    """Return what one report holds of a window.

    Args:
        trace: The run.
        report: Index of the report.
        window: Half-open session time in ns; None for everything.
        counters: Exact names of the counters whose samples are wanted.

    Returns:
        Catalog name to frame; ``samples`` (see `Trace.samples`) stands for the counters.
    """
    frames = {
        name: trace.frame(name).filter(pl.col("report") == report)
        for name in (*_DEVICE_TABLES, *_WHOLE, *_CALLED, "sync", "overhead", "memory_events")
    }
    nvtx = trace.frame("nvtx").filter(pl.col("report") == report)
    nvtx = nvtx.filter(pl.col("event_type").is_in([MARK, DOMAIN_CREATE, *RANGE_TYPES]))
    samples = trace.samples(sorted(counters)).filter(pl.col("report") == report)
    if window is None:
        return frames | {"nvtx": nvtx, "samples": samples}
    for name in (*_DEVICE_TABLES, "sync", "overhead"):
        frames[name] = frames[name].filter(_touches(window))
    frames["memory_events"] = frames["memory_events"].filter(pl.col("start_ns") < window[1])
    frames["runtime"] = calls = _calls(frames, window)
    frames["event_records"] = frames["event_records"].join(
        calls, on=_LAUNCH, how="semi", nulls_equal=True, maintain_order="left"
    )
    earliest = frames["runtime"]["start_ns"].min()
    since = min(window[0], window[0] if earliest is None else int(str(earliest)))
    frames["nvtx"] = nvtx.filter(_in_window((since, window[1])))
    frames["samples"] = samples.filter(_sampled(trace, report, window))
    return frames


def _touches(window: Window) -> pl.Expr:
    return (pl.col("start_ns") < window[1]) & (pl.col("end_ns") > window[0])


def _calls(frames: Frames, window: Window) -> pl.DataFrame:
    """Host calls in the window, and those that launched the device work in it."""
    calls = frames["runtime"].with_row_index("_row")
    launched = pl.concat([frames[t].select(_LAUNCH) for t in _DEVICE_TABLES]).unique()
    own = calls.join(launched, on=_LAUNCH, how="semi", nulls_equal=True)["_row"]
    return calls.filter(_touches(window) | pl.col("_row").is_in(own.implode())).drop("_row")


def _in_window(window: Window) -> pl.Expr:
    """NVTX rows that are in the window, still open in it, or hold for the rest of the run."""
    kind, start = pl.col("event_type"), pl.col("start_ns")
    inside = (start < window[1]) & (start >= window[0])
    spans = (start < window[1]) & (pl.col("end_ns") > window[0]).fill_null(value=True)
    declares = pl.col("text").str.contains(_DECLARES).fill_null(value=False)
    return (
        (kind == DOMAIN_CREATE)
        | (start < window[1]) & declares
        | ((kind == MARK) & inside)
        | (kind.is_in(RANGE_TYPES) & spans)
    )


def _sampled(trace: Trace, report: int, window: Window) -> pl.Expr:
    """Samples whose period reaches into the window, whichever edge of it their time is."""
    hertz = trace.reports[report].metric_hz
    margin = 2 * (_DEFAULT_PERIOD_NS if not hertz else 1_000_000_000 // hertz)
    return pl.col("t_ns").is_between(window[0] - margin, window[1] + margin)


_DEVICE = "start_ns end_ns device context stream correlation"
_SHAPE = "grid_x grid_y grid_z block_x block_y block_z"
PASSING: dict[str, str] = {
    "kernels": f"{_DEVICE} name_id mangled_id short_id {_SHAPE} graph_node graph",
    "memcpy": f"{_DEVICE} bytes copy_kind src_kind dst_kind graph_node",
    "memset": f"{_DEVICE} bytes graph_node",
    "graph_trace": f"{_DEVICE} graph graph_exec",
    "graph_nodes": "start_ns graph_node original_node",
    "runtime": "start_ns end_ns correlation name_id",
    "sync": f"{_DEVICE} sync_type event event_sync",
    "event_records": "context stream correlation event_sync",
    "nvtx": "start_ns end_ns event_type range_id category text domain int64 payload",
    "nvtx_schemas": "domain schema payload_bytes",
    "nvtx_schema_entries": "domain schema index type name offset_bytes",
    "memory_events": "start_ns device addr bytes mem_kind operation",
    "gpus": "id name l2_bytes memory_bytes bandwidth_bytes_per_s clock_hz sm_count chip",
    "cuda_devices": "gpu_id device pid",
    "overhead": "start_ns end_ns",
}
"""Catalog name to the columns of it that pass, in addition to process and thread numbers."""
_EVENTS = ("kernels", "memcpy", "memset", "graph_trace", "runtime", "nvtx", "samples")
_NAME_IDS = ("name_id", "mangled_id", "short_id")
_THREADED = frozenset({"graph_nodes", "runtime", "nvtx", "overhead"})
_ID_TAG, _PID_SHIFT = 1 << 56, 24
_METRIC_TYPE = 0x1_0000_0000_0000 + 0x1_0000_0000
"""``typeId`` of counters; its low byte is the GPU."""
_TYPES: dict[pl.DataType, str] = {pl.String(): "TEXT", pl.Binary(): "BLOB"}


def n_events(frames: Frames) -> int:
    """Return the number of rows that are events: device work, calls, NVTX rows and samples."""
    return sum(frames[name].height for name in _EVENTS)


def write_slice(
    trace: Trace, report: int, frames: Frames, path: Path, *, window: Window | None = None
) -> None:
    """Write what one report of a run holds of a window to a new SQLite file.

    Args:
        trace: An anonymous trace; see `tracekit.bundle.anonymous`.
        report: Index of the report.
        frames: What `cut` returned for that report and window.
        path: File to write; it must not exist.
        window: Half-open time of the run in ns; None for everything.
    """
    frames = {name: _own_clock(trace, report, frame) for name, frame in frames.items()}
    strings = _strings(trace, frames)
    about = trace.reports[report]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for pragma in ("page_size=4096", "journal_mode=OFF", "synchronous=OFF", "secure_delete=ON"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("BEGIN")
        _insert(db, "META_DATA_EXPORT", _pairs(_export(about, window)))
        _insert(db, "META_DATA_CAPTURE", _pairs(_capture(about)))
        _insert(db, "ANALYSIS_DETAILS", _length(trace, about, window))
        _insert(db, "StringIds", strings.select("id", "value"))
        for name in PASSING:
            _insert(db, CATALOG[name].sources[0], _raw(name, frames[name], strings))
        for table, frame in _counters(frames).items():
            _insert(db, table, frame)
        db.execute("COMMIT")
        db.execute("VACUUM")


def _own_clock(trace: Trace, report: int, frame: pl.DataFrame) -> pl.DataFrame:
    """Return times as they were recorded, so that whoever reads several slices aligns them."""
    offset = next((a.offset_ns for a in trace.alignment if a.report == report), 0)
    times = [c for c in ("start_ns", "end_ns", "t_ns") if c in frame.columns]
    return frame.with_columns(pl.col(c) + offset for c in times) if offset else frame


def _insert(db: sqlite3.Connection, table: str, frame: pl.DataFrame) -> None:
    columns = [f"{quoted(c)} {_TYPES.get(t, 'INTEGER')}" for c, t in frame.schema.items()]
    db.execute(f"CREATE TABLE {quoted(table)} ({', '.join(columns)})")
    marks = ", ".join("?" * frame.width)
    db.executemany(f"INSERT INTO {quoted(table)} VALUES ({marks})", frame.iter_rows())


def _strings(trace: Trace, frames: Frames) -> pl.DataFrame:
    """Names that kept rows refer to: id Int64 (new), value, old Int64 (as in the frames)."""
    used = [frames["kernels"][c] for c in _NAME_IDS] + [frames["runtime"]["name_id"]]
    ids = pl.concat([u.rename("old") for u in used]).drop_nulls().unique()
    known = trace.frame("strings").filter(pl.col("id").is_in(ids.implode()))
    known = known.select(pl.col("id").alias("old"), "value").drop_nulls().sort("value", "old")
    number = pl.col("value").rank("dense").cast(pl.Int64)
    return known.with_columns(number.alias("id")).unique("old", maintain_order=True)


def _raw(name: str, frame: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    """Return the passing columns of a canonical frame under nsys' names."""
    passing, raw = PASSING[name].split(), {f.name: f.raw[0] for f in CATALOG[name].fields}
    new = strings.select("old", "id")
    for column in (c for c in _NAME_IDS if c in passing):
        looked_up = new.rename({"old": column, "id": "_new"})
        frame = frame.join(looked_up, on=column, how="left", maintain_order="left")
        frame = frame.drop(column).rename({"_new": column})
    columns = [pl.col(c).alias(raw[c]) for c in passing]
    if name in _THREADED:
        columns.append(_packed("tid").alias("globalTid"))
    elif "pid" in frame.columns and "pid" not in passing:
        columns.append(_packed(None).alias("globalPid"))
    if name == "gpus":
        columns.append(_uuid().alias("uuid"))
    return frame.select(columns)


def _packed(thread: str | None) -> pl.Expr:
    """Process and thread number as nsys packs them; null without a process."""
    number = pl.col(thread).fill_null(0).cast(pl.Int64) if thread else pl.lit(0, pl.Int64)
    return pl.lit(_ID_TAG, pl.Int64) + pl.col("pid").cast(pl.Int64) * (1 << _PID_SHIFT) + number


def _uuid() -> pl.Expr:
    """Zeros and the number of the GPU in the run, from 1: the same GPU in every slice of it."""
    number = (pl.col("gpu").cast(pl.Int64) + 1).cast(pl.String).str.zfill(12)
    return pl.concat_str(pl.lit("00000000-0000-0000-0000-"), number)


def _counters(frames: Frames) -> dict[str, pl.DataFrame]:
    """The tables of sampled counters, numbered by name."""
    samples = frames["samples"].with_columns(pl.col("name").cast(pl.String))
    samples = samples.join(_gpu_ids(frames), on="gpu", how="inner", maintain_order="left")
    names = samples["name"].unique().sort()
    numbered = samples.join(
        pl.DataFrame({"name": names}).with_row_index("metricId"), on="name", maintain_order="left"
    ).with_columns((pl.lit(_METRIC_TYPE, pl.Int64) + pl.col("id")).alias("typeId"))
    described = numbered.select("typeId", "metricId", pl.col("name").alias("metricName")).unique()
    rows = numbered.sort("t_ns", "typeId", "metricId")
    return {
        "TARGET_INFO_GPU_METRICS": described.sort("typeId", "metricId"),
        "GPU_METRICS": rows.select(
            pl.col("t_ns").alias("timestamp"), "typeId", "metricId", "value"
        ),
    }


def _gpu_ids(frames: Frames) -> pl.DataFrame:
    """GPU of the run to its id in the report; the CUDA ordinal where no GPU is described."""
    known = frames["gpus"].select("gpu", "id").drop_nulls()
    if known.is_empty():
        known = frames["kernels"].select("gpu", pl.col("device").alias("id")).drop_nulls()
    return known.sort("gpu", "id").unique("gpu", keep="first", maintain_order=True)


def _pairs(pairs: Sequence[tuple[str, str]]) -> pl.DataFrame:
    return pl.DataFrame(pairs, schema={"name": pl.String, "value": pl.String}, orient="row")


def _export(report: Report, window: Window | None) -> list[tuple[str, str]]:
    product = re.fullmatch(r"(.*?) ?([\d.]*)", report.product)
    pairs = [
        ("EXPORT_PRODUCT_NAME", product[1] if product else ""),
        ("EXPORT_PRODUCT_VERSION", product[2] if product else ""),
        ("EXPORT_SCHEMA_VERSION", report.schema_version or ""),
        ("TRACEKIT_SLICE_NS", "all" if window is None else f"{window[0]}:{window[1]}"),
    ]
    if report.has_blobs is not None:
        pairs.append(("EXPORT_PARAM_INCLUDE_BLOBS", str(report.has_blobs).lower()))
    return [(name, value) for name, value in pairs if value]


def _capture(report: Report) -> list[tuple[str, str]]:
    pairs = []
    if report.graph_trace in {"graph", "node"}:
        pairs.append(("CUDA_GRAPH_TRACE_OPTIONS:MODE", report.graph_trace.capitalize()))
    if report.metric_hz is not None:
        pairs.append(("GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY", str(report.metric_hz)))
    return pairs


def _length(trace: Trace, report: Report, window: Window | None) -> pl.DataFrame:
    """The length of the capture, to which ranges that never closed last: the window's end."""
    end = pl.DataFrame({"end_ns": [window[1] if window else None]}, schema={"end_ns": pl.Int64})
    own = _own_clock(trace, report.index, end).item()
    lengths = [t for t in (report.duration_ns, own) if t is not None]
    known = [min(lengths)] if lengths else []
    return pl.DataFrame({"duration": known}, schema={"duration": pl.Int64})
