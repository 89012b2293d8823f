"""The tables of an nsys export, as far as a generated report fills them, and how to insert rows."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

__all__ = ["Writer"]

DDL = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, contextId, greenContextId, streamId,"
    " correlationId, globalPid, demangledName, shortName, mangledName, launchType, cacheConfig,"
    " registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory,"
    " dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId, sharedMemoryExecuted,"
    " graphNodeId, sharedMemoryLimitConfig",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, contextId, streamId, correlationId,"
    " globalPid, bytes, copyKind, srcDeviceId, dstDeviceId, graphNodeId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId,"
    " returnValue, callchainId",
    "NVTX_EVENTS": "start, end, eventType, rangeId, category, color, text TEXT, globalTid,"
    " endGlobalTid, textId, domainId, uint64Value, int64Value, doubleValue REAL, uint32Value,"
    " int32Value, floatValue REAL, jsonTextId, jsonText TEXT, binaryData TEXT",
    "NVTX_PAYLOAD_SCHEMAS": "domainId, schemaId, name TEXT, type, flags, numEntries, payloadSize,"
    " alignTo",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId, schemaId, idx, flags, type, name TEXT,"
    " description TEXT, arrayOrUnionDetail, offset",
    "GPU_METRICS": "rawTimestamp, timestamp, typeId, metricId, value",
    "TARGET_INFO_GPU_METRICS": "typeId, sourceId, typeName TEXT, metricId, metricName TEXT",
    "TARGET_INFO_GPU": "vmId, id, name TEXT, busLocation TEXT, l2CacheSize, totalMemory,"
    " memoryBandwidth, clockRate, smCount, uuid TEXT, chipName TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId, cudaId, pid",
    "ANALYSIS_DETAILS": "globalVid, duration, startTime, stopTime",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
}
"""Table to its columns; INTEGER unless a type is given."""


class Writer:
    """Inserts columns into the tables of one fresh file.

    Args:
        path: File to write; replaced when it exists.
    """

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE"):
            self.db.execute(f"PRAGMA {pragma}")
        for table, columns in DDL.items():
            typed = ", ".join(c if " " in c.strip() else f"{c} INTEGER" for c in columns.split(","))
            self.db.execute(f"CREATE TABLE {table} ({typed})")

    def rows(self, table: str, **columns: object) -> None:
        """Insert rows given as columns: arrays, lists, or one value for every row."""
        sized = [c for c in columns.values() if isinstance(c, np.ndarray | list)]
        n = len(sized[0]) if sized else 1
        lists = [
            c.tolist() if isinstance(c, np.ndarray) else c if isinstance(c, list) else [c] * n
            for c in columns.values()
        ]
        marks = ", ".join("?" for _ in columns)
        self.db.execute("BEGIN")
        self.db.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})",
            zip(*lists, strict=True),
        )
        self.db.execute("COMMIT")
