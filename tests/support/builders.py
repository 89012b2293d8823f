"""Small nsys-shaped SQLite exports, written row by row.

A test states only what matters to it; everything else gets a plausible default. Column sets follow
export schema 3.20 unless a test drops or renames some.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["COLUMNS", "Export", "gid"]

_DEVICE = "start end deviceId contextId greenContextId streamId correlationId globalPid"
COLUMNS: dict[str, str] = {
    "StringIds": "id value:TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_DEVICE} demangledName shortName mangledName launchType"
    " registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory"
    " dynamicSharedMemory graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_DEVICE} bytes copyKind srcKind dstKind srcDeviceId"
    " dstDeviceId graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_DEVICE} value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_DEVICE} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId"
    " returnValue",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_DEVICE} syncType eventId eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId contextId greenContextId streamId correlationId"
    " globalPid eventId eventSyncId",
    "CUDA_GRAPH_NODE_EVENTS": "start end eventClass globalTid nameId graphNodeId"
    " originalGraphNodeId",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "start globalPid deviceId contextId address bytes memKind"
    " memoryOperationType",
    "NVTX_EVENTS": "start end eventType rangeId category color text:TEXT globalTid endGlobalTid"
    " textId domainId uint64Value int64Value jsonTextId jsonText:TEXT binaryData:TEXT",
    "NVTX_PAYLOAD_SCHEMAS": "domainId schemaId name:TEXT type flags numEntries payloadSize alignTo",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId schemaId idx flags type name:TEXT description:TEXT"
    " arrayOrUnionDetail offset",
    "GPU_METRICS": "rawTimestamp timestamp typeId metricId value",
    "TARGET_INFO_GPU_METRICS": "typeId sourceId typeName:TEXT metricId metricName:TEXT",
    "TARGET_INFO_GPU": "vmId id name:TEXT busLocation:TEXT l2CacheSize totalMemory memoryBandwidth"
    " clockRate smCount uuid:TEXT chipName:TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:TEXT localTime:TEXT",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text:TEXT globalPid",
    "OSRT_API": "start end eventClass globalTid nameId returnValue nestingLevel callchainId",
    "COMPOSITE_EVENTS": "id start cpu threadState globalTid cpuCycles",
    "SAMPLING_CALLCHAINS": "id symbol module unresolved originalIP stackDepth",
    "SCHED_EVENTS": "start cpu isSchedIn globalTid threadState threadBlock",
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue",
    "META_DATA_EXPORT": "name:TEXT value:TEXT",
    "META_DATA_CAPTURE": "name:TEXT value:TEXT",
}
"""Raw table to its columns; INTEGER unless a type follows a colon."""
METRIC_TYPE = 281479271677952
"""``typeId`` of device 0; its low byte is the device."""


def gid(pid: int, tid: int = 0) -> int:
    """Pack a process and thread id the way nsys does."""
    return (1 << 56) | (pid << 24) | tid


class Export:
    """Collects rows; `write` makes the file.

    Args:
        schema: ``EXPORT_SCHEMA_VERSION``; None leaves ``META_DATA_EXPORT`` out.
        product: ``EXPORT_PRODUCT_VERSION``.
    """

    def __init__(self, *, schema: str | None = "3.20.3", product: str = "2025.3.2.0") -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.columns = {name: columns.split() for name, columns in COLUMNS.items()}
        self.renamed: dict[str, str] = {}
        self._strings: dict[str, int] = {}
        self._correlation = 0
        if schema is not None:
            for name, value in (
                ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
                ("EXPORT_PRODUCT_VERSION", product),
                ("EXPORT_SCHEMA_VERSION", schema),
            ):
                self.add("META_DATA_EXPORT", name=name, value=value)

    def add(self, table: str, **values: Any) -> Export:
        """Add one raw row."""
        self.rows.setdefault(table, []).append(values)
        return self

    def table(self, table: str) -> Export:
        """Make a table exist even without rows."""
        self.rows.setdefault(table, [])
        return self

    def drop_columns(self, table: str, *names: str) -> Export:
        """Leave columns out of a table."""
        self.columns[table] = [c for c in self.columns[table] if c.partition(":")[0] not in names]
        return self

    def rename(self, table: str, to: str) -> Export:
        """Write a table under another name."""
        self.renamed[table] = to
        return self

    def string(self, text: str) -> int:
        """Intern a string and return its id."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def gpu(self, gpu_id: int = 0, *, name: str = "NVIDIA H200", **values: Any) -> Export:
        """Add a GPU of the host, by default an H200."""
        defaults = {
            "vmId": 0,
            "busLocation": f"0000:00:{6 + gpu_id:02x}.0",
            "l2CacheSize": 62914560,
            "totalMemory": 150109880320,
            "memoryBandwidth": 4814304000000,
            "clockRate": 1980000000,
            "smCount": 132,
            "uuid": f"00000000-0000-0000-0000-0000000000{6 + gpu_id}0",
            "chipName": "GH100",
        }
        return self.add("TARGET_INFO_GPU", id=gpu_id, name=name, **(defaults | values))

    def kernel(
        self,
        start: int,
        end: int,
        name: str = "foo",
        *,
        device: int = 0,
        stream: int = 7,
        pid: int = 100,
        correlation: int | None = None,
        launch: int | None = None,
        launch_tid: int | None = None,
        launch_name: str = "cudaLaunchKernel_v7000",
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (128, 1, 1),
        short: str | None = None,
        **values: Any,
    ) -> Export:
        """Add a kernel, and the call that launched it when `launch` says when."""
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        if launch is not None:
            tid = pid if launch_tid is None else launch_tid
            self.call(launch, launch + 5, launch_name, pid=pid, tid=tid, correlation=correlation)
        row = {
            "start": start,
            "end": end,
            "deviceId": device,
            "contextId": 1,
            "streamId": stream,
            "correlationId": correlation,
            "globalPid": gid(pid),
            "demangledName": self.string(name),
            "shortName": self.string(short if short is not None else name),
            **dict(zip(("gridX", "gridY", "gridZ"), grid, strict=True)),
            **dict(zip(("blockX", "blockY", "blockZ"), block, strict=True)),
        }
        return self.add("CUPTI_ACTIVITY_KIND_KERNEL", **(row | values))

    def memcpy(
        self,
        start: int,
        end: int,
        *,
        kind: int = 8,
        nbytes: int = 1024,
        device: int = 0,
        stream: int = 8,
        pid: int = 100,
        **values: Any,
    ) -> Export:
        """Add a copy; kind 1 HtoD, 2 DtoH, 8 DtoD, 10 PtoP."""
        self._correlation += 1
        row = {
            "start": start,
            "end": end,
            "deviceId": device,
            "contextId": 1,
            "streamId": stream,
            "correlationId": self._correlation,
            "globalPid": gid(pid),
            "bytes": nbytes,
            "copyKind": kind,
        }
        return self.add("CUPTI_ACTIVITY_KIND_MEMCPY", **(row | values))

    def graph(self, start: int, end: int, *, device: int = 0, pid: int = 100) -> Export:
        """Add one CUDA-graph launch traced as a whole."""
        self._correlation += 1
        return self.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            start=start,
            end=end,
            deviceId=device,
            contextId=1,
            streamId=7,
            correlationId=self._correlation,
            globalPid=gid(pid),
            graphId=1,
            graphExecId=2,
        )

    def call(
        self,
        start: int,
        end: int,
        name: str,
        *,
        pid: int = 100,
        tid: int = 100,
        correlation: int = 0,
    ) -> Export:
        """Add a CUDA API call."""
        return self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=0,
            globalTid=gid(pid, tid),
            correlationId=correlation,
            nameId=self.string(name),
            returnValue=0,
        )

    def range(
        self,
        start: int,
        end: int | None,
        text: str | None,
        *,
        pid: int = 100,
        tid: int = 100,
        domain: int = 0,
        event_type: int = 59,
        **values: Any,
    ) -> Export:
        """Add an NVTX range (59 push/pop, 60 start/end) or another row of `event_type`."""
        row = {
            "start": start,
            "end": end,
            "eventType": event_type,
            "text": text,
            "globalTid": gid(pid, tid),
            "domainId": domain,
        }
        return self.add("NVTX_EVENTS", **(row | values))

    def mark(self, at: int, text: str, **values: Any) -> Export:
        """Add an NVTX mark."""
        return self.range(at, None, text, event_type=34, **values)

    def domain(self, number: int, name: str, *, pid: int = 100) -> Export:
        """Name an NVTX domain."""
        return self.range(0, None, name, pid=pid, domain=number, event_type=75)

    def metric(
        self, name: str, times: Iterable[int], values: Iterable[int], *, device: int = 0
    ) -> Export:
        """Add the samples of one counter of one device."""
        names = [
            r["metricName"]
            for r in self.rows.get("TARGET_INFO_GPU_METRICS", [])
            if r["typeId"] == METRIC_TYPE + device
        ]
        if name not in names:
            self.add(
                "TARGET_INFO_GPU_METRICS",
                typeId=METRIC_TYPE + device,
                sourceId=1,
                typeName="",
                metricId=len(names),
                metricName=name,
            )
            names.append(name)
        for t, value in zip(times, values, strict=True):
            self.add(
                "GPU_METRICS",
                rawTimestamp=t,
                timestamp=t,
                typeId=METRIC_TYPE + device,
                metricId=names.index(name),
                value=value,
            )
        return self

    def write(self, path: Path) -> Path:
        """Write the file, replacing one of that name, and return its path."""
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as db:
            for table, rows in self.rows.items():
                self._write_table(db, table, rows)
        db.close()
        return path

    def _write_table(
        self, db: sqlite3.Connection, table: str, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        columns = [c.partition(":") for c in self.columns[table]]
        extra = {k for r in rows for k in r} - {c.partition(":")[0] for c in COLUMNS[table].split()}
        names = [name for name, _, _ in columns] + sorted(extra)
        types = [t or "INTEGER" for _, _, t in columns] + ["INTEGER"] * len(extra)
        declared = ", ".join(f'"{n}" {t}' for n, t in zip(names, types, strict=True))
        target = self.renamed.get(table, table)
        db.execute(f'CREATE TABLE "{target}" ({declared})')
        marks = ", ".join("?" for _ in names)
        db.executemany(
            f'INSERT INTO "{target}" VALUES ({marks})',
            [[r.get(n) for n in names] for r in rows],
        )
