"""The tables that tracekit knows: where nsys keeps each, which columns, and how to record it.

`CATALOG` maps a canonical name ("kernels") to a `CatalogTable`: the nsys tables it may stand in,
its columns with the raw column names they come from, and the `Recording` that produces it. Every
canonical frame also carries ``report`` (UInt16, index of the input file), and device tables carry
``gpu`` (Int16, index into the trace's list of physical GPUs), ``pid`` and ``start_ns``/``end_ns``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tracekit.model.ncu import METRICS
from tracekit.model.table import Column, Table

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

__all__ = [
    "CATALOG",
    "REPORT",
    "STRING_ID_BITS",
    "CatalogTable",
    "Field",
    "Recording",
    "record_command",
]

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


GPU = Column("gpu", pl.Int16, "", "index of the physical GPU in the trace; null when unknown")
PID = Column("pid", pl.UInt32, "", "process id, with `report` a key")
TID = Column("tid", pl.UInt32, "", "thread id")
I64, I32, U32 = pl.Int64, pl.Int32, pl.UInt32
STRING_ID_BITS = 40
"""Bits of a string id that are the file's own; the number of the report is above them."""
NCU_SOURCE = "NCU_RAW_PAGE"
"""Stands for ``ncu --csv --page raw``, which is no table of nsys."""


def _f(name: str, dtype: PolarsDataType, raw: str, unit: str = "", *, need: bool = False) -> Field:
    return Field(name, dtype, unit, "", need, tuple(raw.split()))


_START = _f("start_ns", I64, "start", "ns", need=True)
_END = _f("end_ns", I64, "end", "ns", need=True)
_DEVICE = (
    _START,
    _END,
    _f("device", I32, "deviceId"),
    _f("context", I64, "contextId"),
    _f("stream", I64, "streamId"),
    _f("correlation", U32, "correlationId"),
    _f("_global_pid", I64, "globalPid"),
)
_CUDA = Recording(trace="cuda")
_METRICS = Recording(flag="--gpu-metrics-devices=all", old_flag="--gpu-metrics-device=all")
_GRAPH_NODES = Recording(trace="cuda", flag="--cuda-graph-trace=node")
_NVTX = Recording(trace="nvtx")
_BLOBS = Recording(trace="nvtx", export="--include-blobs=true")
_ALWAYS = Recording()


def _table(
    name: str,
    sources: str,
    fields: tuple[Field, ...],
    doc: str,
    recording: Recording = _CUDA,
    derived: tuple[Column, ...] = (),
    *,
    interval: bool = False,
) -> CatalogTable:
    return CatalogTable(name, tuple(sources.split()), fields, derived, recording, doc, interval)


_TABLES = (
    _table(
        "strings",
        "StringIds",
        (_f("id", I64, "id", need=True), _f("value", pl.String, "value", need=True)),
        "one interned string; ids carry the report above their lowest `STRING_ID_BITS` bits",
        _ALWAYS,
    ),
    _table(
        "kernels",
        "CUPTI_ACTIVITY_KIND_KERNEL CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
        (
            *_DEVICE,
            _f("name_id", I64, "demangledName"),
            _f("mangled_id", I64, "mangledName"),
            _f("short_id", I64, "shortName"),
            *(_f(f"grid_{a.lower()}", I32, f"grid{a}") for a in "XYZ"),
            *(_f(f"block_{a.lower()}", I32, f"block{a}") for a in "XYZ"),
            _f("graph_node", I64, "graphNodeId"),
            _f("graph", I64, "graphId"),
        ),
        "one kernel execution",
        _GRAPH_NODES,
        (GPU, PID),
        interval=True,
    ),
    _table(
        "memcpy",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        (
            *_DEVICE,
            _f("bytes", I64, "bytes", "bytes"),
            _f("copy_kind", I32, "copyKind"),
            _f("src_kind", I32, "srcKind"),
            _f("dst_kind", I32, "dstKind"),
            _f("graph_node", I64, "graphNodeId"),
        ),
        "one device copy",
        _CUDA,
        (GPU, PID),
        interval=True,
    ),
    _table(
        "peer_copies",
        "CUPTI_ACTIVITY_KIND_MEMCPY2",
        (
            *_DEVICE,
            _f("bytes", I64, "bytes", "bytes"),
            _f("copy_kind", I32, "copyKind"),
            _f("graph_node", I64, "graphNodeId"),
        ),
        "one copy between devices; its rows are among those of `memcpy`",
        _CUDA,
        (GPU, PID),
        interval=True,
    ),
    _table(
        "memset",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        (*_DEVICE, _f("bytes", I64, "bytes", "bytes"), _f("graph_node", I64, "graphNodeId")),
        "one device memset",
        _CUDA,
        (GPU, PID),
        interval=True,
    ),
    _table(
        "graph_trace",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        (*_DEVICE, _f("graph", I64, "graphId"), _f("graph_exec", I64, "graphExecId")),
        "one CUDA-graph launch traced as a whole: what runs inside is invisible",
        _CUDA,
        (GPU, PID),
        interval=True,
    ),
    _table(
        "graph_nodes",
        "CUDA_GRAPH_NODE_EVENTS",
        (
            _START,
            _f("graph_node", I64, "graphNodeId"),
            _f("original_node", I64, "originalGraphNodeId"),
            _f("_global_tid", I64, "globalTid"),
        ),
        "creation or clone of one CUDA-graph node",
        _GRAPH_NODES,
        (PID, TID),
    ),
    _table(
        "runtime",
        "CUPTI_ACTIVITY_KIND_RUNTIME CUPTI_ACTIVITY_KIND_DRIVER",
        (
            _START,
            _END,
            _f("_global_tid", I64, "globalTid", need=True),
            _f("correlation", U32, "correlationId"),
            _f("name_id", I64, "nameId"),
        ),
        "one CUDA runtime or driver call on the host",
        _CUDA,
        (PID, TID),
        interval=True,
    ),
    _table(
        "sync",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        (
            *_DEVICE,
            _f("sync_type", I32, "syncType"),
            _f("event", I64, "eventId"),
            _f("event_sync", I64, "eventSyncId"),
        ),
        "one synchronisation (1 event, 2 stream waits for event, 3 stream, 4 context)",
        _CUDA,
        (GPU, PID),
    ),
    _table(
        "event_records",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        (
            *(f for f in _DEVICE if f.name in ("context", "stream", "correlation", "_global_pid")),
            _f("event_sync", I64, "eventSyncId"),
        ),
        "one record of a CUDA event on a stream; `sync` names it by event_sync",
        _CUDA,
        (PID,),
    ),
    _table(
        "nvtx",
        "NVTX_EVENTS",
        (
            _START,
            _f("end_ns", I64, "end", "ns"),
            _f("event_type", I32, "eventType", need=True),
            _f("range_id", I64, "rangeId"),
            _f("category", I64, "category"),
            _f("text", pl.String, "text"),
            _f("text_id", I64, "textId"),
            _f("domain", I64, "domainId"),
            _f("_global_tid", I64, "globalTid"),
            _f("_end_global_tid", I64, "endGlobalTid"),
            _f("int64", I64, "int64Value"),
            _f("json_text", pl.String, "jsonText"),
            _f("json_text_id", I64, "jsonTextId"),
            _f("payload", pl.Binary, "binaryData"),
        ),
        "one NVTX row: range, mark, domain or name",
        _NVTX,
        (PID, TID),
    ),
    _table(
        "nvtx_schemas",
        "NVTX_PAYLOAD_SCHEMAS",
        (
            _f("domain", I64, "domainId"),
            _f("schema", I64, "schemaId"),
            _f("name", pl.String, "name"),
            _f("payload_bytes", I64, "payloadSize", "bytes"),
        ),
        "one payload schema (repeats once per process)",
        _BLOBS,
    ),
    _table(
        "nvtx_schema_entries",
        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
        (
            _f("domain", I64, "domainId"),
            _f("schema", I64, "schemaId"),
            _f("index", I64, "idx"),
            _f("type", I64, "type"),
            _f("name", pl.String, "name"),
            _f("offset_bytes", I64, "offset", "bytes"),
        ),
        "one field of a payload schema; a null offset means 0",
        _BLOBS,
    ),
    _table(
        "gpu_metrics",
        "GPU_METRICS",
        (
            _f("t_ns", I64, "timestamp", "ns", need=True),
            _f("type_id", I64, "typeId", need=True),
            _f("metric", I32, "metricId", need=True),
            _f("value", I64, "value", need=True),
        ),
        "one sample of one hardware counter; read through Trace.samples",
        _METRICS,
        (GPU,),
    ),
    _table(
        "metric_names",
        "TARGET_INFO_GPU_METRICS",
        (
            _f("type_id", I64, "typeId"),
            _f("metric", I32, "metricId id", need=True),
            _f("name", pl.String, "metricName name", need=True),
        ),
        "name of one sampled counter of one device",
        _METRICS,
        (GPU,),
    ),
    _table(
        "memory_events",
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        (
            _START,
            _f("device", I32, "deviceId"),
            _f("_global_pid", I64, "globalPid"),
            _f("addr", I64, "address"),
            _f("bytes", I64, "bytes", "bytes"),
            _f("mem_kind", I32, "memKind"),
            _f("operation", I32, "memoryOperationType"),
        ),
        "one driver-level allocation (operation 0) or release (1)",
        Recording(trace="cuda", flag="--cuda-memory-usage=true"),
        (GPU, PID),
    ),
    _table(
        "gpus",
        "TARGET_INFO_GPU",
        (
            _f("id", I32, "id", need=True),
            _f("name", pl.String, "name"),
            _f("_uuid", pl.String, "uuid"),
            _f("_bus", pl.String, "busLocation"),
            _f("l2_bytes", I64, "l2CacheSize", "bytes"),
            _f("memory_bytes", I64, "totalMemory", "bytes"),
            _f("bandwidth_bytes_per_s", I64, "memoryBandwidth", "B/s"),
            _f("clock_hz", I64, "clockRate", "Hz"),
            _f("sm_count", I32, "smCount"),
            _f("chip", pl.String, "chipName"),
        ),
        "one GPU of the host, used or not",
        _ALWAYS,
        (GPU,),
    ),
    _table(
        "cuda_devices",
        "TARGET_INFO_CUDA_DEVICE",
        (
            _f("gpu_id", I32, "gpuId"),
            _f("device", I32, "cudaId"),
            _f("pid", pl.UInt32, "pid"),
            _f("_uuid", pl.String, "uuid"),
        ),
        "CUDA ordinal to GPU, per process",
        _ALWAYS,
        (GPU,),
    ),
    _table(
        "overhead",
        "PROFILER_OVERHEAD",
        (_START, _END, _f("_global_tid", I64, "globalTid"), _f("name_id", I64, "nameId")),
        "one interval in which the profiler itself blocked a thread",
        _CUDA,
        (PID, TID),
        interval=True,
    ),
    _table(
        "osrt",
        "OSRT_API",
        (_START, _END, _f("_global_tid", I64, "globalTid"), _f("name_id", I64, "nameId")),
        "one call of the host to the operating system",
        Recording(trace="osrt"),
        (PID, TID),
        interval=True,
    ),
    _table(
        "cpu_samples",
        "COMPOSITE_EVENTS",
        (
            _f("id", I64, "id"),
            _f("t_ns", I64, "start", "ns", need=True),
            _f("_global_tid", I64, "globalTid"),
        ),
        "one sample of what a thread was executing",
        Recording(flag="--sample=process-tree"),
        (PID, TID),
    ),
    _table(
        "cpu_frames",
        "SAMPLING_CALLCHAINS",
        (
            _f("sample", I64, "id", need=True),
            _f("symbol_id", I64, "symbol"),
            _f("module_id", I64, "module"),
            _f("depth", I32, "stackDepth"),
        ),
        "one frame of the call chain of a sample",
        Recording(flag="--sample=process-tree"),
    ),
    _table(
        "sched",
        "SCHED_EVENTS",
        (
            _f("t_ns", I64, "start", "ns", need=True),
            _f("is_in", I32, "isSchedIn", need=True),
            _f("_global_tid", I64, "globalTid"),
        ),
        "one moment at which a thread was put on a processor or taken off it",
        Recording(flag="--cpuctxsw=process-tree"),
        (PID, TID),
    ),
    _table(
        "diagnostics",
        "DIAGNOSTIC_EVENT",
        (
            _f("t_ns", I64, "timestamp", "ns"),
            _f("severity", I32, "severity"),
            _f("text", pl.String, "text"),
        ),
        "one message of the profiler (severity 1 info, 2 warning, 3 error)",
        _ALWAYS,
    ),
    _table(
        "session",
        "TARGET_INFO_SESSION_START_TIME",
        (_f("utc_epoch_ns", I64, "utcEpochNs", "ns"),),
        "wall-clock start of the session",
        _ALWAYS,
    ),
    _table(
        "capture",
        "ANALYSIS_DETAILS",
        (_f("duration_ns", I64, "duration", "ns"),),
        "length of the capture",
        _ALWAYS,
    ),
    _table(
        "ncu_kernels",
        NCU_SOURCE,
        (
            _f("launch", I64, "id"),
            _f("name", pl.String, "name"),
            _f("layer", I32, "layer"),
            *(_f(f"{kind}_{a}", I32, f"{kind}_{a}") for kind in ("grid", "block") for a in "xyz"),
            *(_f(c, pl.Float64, raw, unit) for c, (raw, unit) in METRICS.items()),
        ),
        "one kernel execution under Nsight Compute, which runs kernels one at a time",
        _ALWAYS,
    ),
)
CATALOG: dict[str, CatalogTable] = {t.name: t for t in _TABLES}
"""Every canonical table, by name."""


def record_command(
    names: Iterable[str],
    *,
    version: tuple[int, ...] | None = None,
    extra: Iterable[str] = (),
    command: str = "YOUR_COMMAND",
) -> str:
    """Return one ``nsys profile`` command that records the named tables.

    Args:
        names: Canonical table names.
        version: nsys version whose spelling is wanted; None for the newest.
        extra: Further options, replacing those of the same name.
        command: What to run.

    Returns:
        A command line; an export step follows after ``&&`` where one is needed.
    """
    recordings = [CATALOG[n].recording for n in sorted(set(names))]
    traces = sorted({"cuda", "nvtx"} | {r.trace for r in recordings if r.trace})
    flags = {f.partition("=")[0]: f for r in recordings if (f := r.spelled(version))}
    flags |= {f.partition("=")[0]: f for f in extra}
    exports = sorted({r.export for r in recordings if r.export})
    line = ["nsys profile", f"-t {','.join(traces)}", *(flags[k] for k in sorted(flags))]
    line += ["-o run --", command if command == "YOUR_COMMAND" else shlex.join(command.split())]
    export = " ".join(["nsys export -t sqlite", *exports, "-o run.sqlite run.nsys-rep"])
    return f"{' '.join(line)} && {export}"
