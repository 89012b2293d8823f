"""Write an nsys-shaped report of any size whose contents every analysis uses.

A tensor-parallel decode: each rank runs the same layers, dequantising before its products, meeting
the other ranks in two all-reduces a layer; in every second step copies run beside the second one,
which then takes longer. Ranges, launching calls, NCCL payloads, KV block markers and sampled
counters go with it. The same seed and size give the same file.

Usage: python -m benchmarks.generate OUT.sqlite --kernels 5000000
"""

from __future__ import annotations

import argparse
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]

US = 1_000
LAYERS = 32
CONTENDED = 1.6
"""How much longer the second all-reduce of a layer takes beside a copy."""
SEQUENCE = (
    ("dequantize_int4_kernel(unsigned char const*, __half*, int)", 12.0),
    ("nvjet_sm90_tst_128x8_64x12_4x1_v_bz_NNT", 18.0),
    (
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Params)",
        22.0,
    ),
    ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_NNT", 11.0),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(Params)", 2.5),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 14.0),
    ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(T1*, T1*, float)", 2.0),
    ("void at::native::vectorized_elementwise_kernel<8, at::native::silu_kernel>(int)", 2.2),
    ("nvjet_sm90_tst_256x8_64x12_4x1_v_bz_NNT", 25.0),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 14.0),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(Params)", 2.1),
)
"""Kernels of one layer in order, with their usual duration in us."""
NCCL = tuple(i for i, (name, _) in enumerate(SEQUENCE) if name.startswith("nccl"))
SECOND = NCCL[1]
METRICS = (
    *(f"Filler {i} [Throughput %]" for i in range(17)),
    "GR Active [Throughput %]",
    "SMs Active [Throughput %]",
    "Tensor Active [Throughput %]",
    "DRAM Read Bandwidth [Throughput %]",
    "DRAM Write Bandwidth [Throughput %]",
    "NVLink RX Requests User Data [Throughput %]",
    "NVLink TX Requests User Data [Throughput %]",
    "L2 Sector Hit Rate from L1 [Ratio %]",
)
MESSAGE_BYTES = 262_144
COMMUNICATOR = 0x5EED
HEADER = (1, 16_777_221, 24, 32)
"""Payload header: domain, schema (NCCL AllReduce), size, offset."""
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


@dataclass(frozen=True)
class Size:
    """How much to write.

    Attributes:
        kernels: Kernel rows, rounded up to whole steps.
        ranks: Processes, each on its own GPU.
        samples_per_kernel: GPU_METRICS rows for each kernel.
        seed: Seed of all noise.
    """

    kernels: int
    ranks: int = 8
    samples_per_kernel: float = 4.0
    seed: int = 7

    @property
    def steps(self) -> int:
        """Whole decode steps."""
        return -(-self.kernels // (LAYERS * len(SEQUENCE) * self.ranks))


class Writer:
    """Inserts columns into tables of one fresh file."""

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


def pid(rank: int) -> int:
    """Return the process id of a rank."""
    return 31_337 + rank


def global_pid(ranks: Int) -> Int:
    """Return packed process ids of ranks."""
    packed: Int = (1 << 48) + (pid(0) + ranks) * (1 << 24)
    return packed


def generate(path: Path, size: Size) -> None:
    """Write the report.

    Args:
        path: File to write; replaced when it exists.
        size: How much.
    """
    out = Writer(path)
    _describe(out, size)
    rng = np.random.default_rng(size.seed)
    end = 0
    for first in range(0, size.steps, 64):
        n = min(64, size.steps - first)
        end = _steps(out, size, rng, first, n, end + 20 * US)
    _samples(out, size, rng, end)
    _kv_markers(out, size)
    out.rows("ANALYSIS_DETAILS", globalVid=0, duration=end + US, startTime=0, stopTime=end + US)
    out.db.close()


def _describe(out: Writer, size: Size) -> None:
    names = [name for name, _ in SEQUENCE]
    apis = ["cudaLaunchKernel_v7000", "cudaStreamIsCapturing_v10000", "cudaMemcpyAsync_v3020"]
    strings = [*names, *apis, "ncclAllReduce"]
    out.rows("StringIds", id=list(range(1, len(strings) + 1)), value=strings)
    out.rows(
        "META_DATA_EXPORT",
        name=["EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"],
        value=["NVIDIA Nsight Systems", "2025.3.2.0", "3.20.3"],
    )
    for rank in range(size.ranks):
        out.rows(
            "TARGET_INFO_GPU",
            vmId=0,
            id=rank,
            name="NVIDIA H200",
            busLocation=f"0000:{rank:02x}:00.0",
            l2CacheSize=62_914_560,
            totalMemory=150_109_880_320,
            memoryBandwidth=4_814_304_000_000,
            clockRate=1_980_000_000,
            smCount=132,
            uuid=f"00000000-0000-0000-0000-{rank + 1:012d}",
            chipName="GH100",
        )
        out.rows("TARGET_INFO_CUDA_DEVICE", gpuId=rank, cudaId=rank, pid=pid(rank))
        out.rows(
            "TARGET_INFO_GPU_METRICS",
            typeId=(1 << 48) + rank,
            sourceId=1,
            typeName="",
            metricId=list(range(len(METRICS))),
            metricName=list(METRICS),
        )
        names_of = {"globalTid": int(global_pid(np.array([rank]))[0]) + pid(rank)}
        out.rows("NVTX_EVENTS", start=0, eventType=75, text="NCCL", domainId=1, **names_of)
    domain, schema, nbytes, _ = HEADER
    out.rows(
        "NVTX_PAYLOAD_SCHEMAS",
        domainId=domain,
        schemaId=schema,
        name="ncclAllReduce",
        type=1,
        numEntries=3,
        payloadSize=nbytes,
    )
    out.rows(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
        domainId=domain,
        schemaId=schema,
        idx=[0, 1, 2],
        type=[18, 22, 3],
        name=["NCCL communicator ID", "Message size [bytes]", "Reduction operation"],
        offset=[None, 8, 16],
    )


def _steps(
    out: Writer, size: Size, rng: np.random.Generator, first: int, n: int, start: int
) -> int:
    """Write `n` steps that begin at `start`; return the end of the last."""
    per_step = LAYERS * len(SEQUENCE)
    usual = np.tile([d for _, d in SEQUENCE], LAYERS)
    length = (usual * US * rng.lognormal(0, 0.05, (n, per_step))).astype(np.int64)
    copying = (np.arange(first, first + n) % 2 == 1)[:, None]
    second = (np.arange(per_step) % len(SEQUENCE) == SECOND)[None, :]
    length = np.where(copying & second, (length * CONTENDED).astype(np.int64), length)
    gap = rng.integers(300, 1_500, (n, per_step))
    gap[:, 0] += 15 * US
    ends = start + np.cumsum((length + gap).ravel()).reshape(n, per_step)
    starts = ends - length
    for rank in range(size.ranks):
        _rank_steps(out, rank, rng, first, starts, ends, copying[:, 0])
    return int(ends[-1, -1])


def _rank_steps(
    out: Writer,
    rank: int,
    rng: np.random.Generator,
    first: int,
    starts: Int,
    ends: Int,
    copying: NDArray[np.bool_],
) -> None:
    n, per_step = starts.shape
    begin = starts + rng.integers(0, 250, starts.shape)
    launch = begin - rng.integers(4_000, 9_000, starts.shape)
    launch = np.maximum.accumulate(launch.ravel()).reshape(launch.shape)
    correlation = (np.arange(n * per_step).reshape(n, per_step) + first * per_step) * 2 + 1
    which = np.tile(np.arange(len(SEQUENCE)), LAYERS)[None, :].repeat(n, 0)
    gpid = int(global_pid(np.array([rank]))[0])
    tid = gpid + pid(rank)
    out.rows(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        start=begin.ravel(),
        end=ends.ravel(),
        deviceId=rank,
        contextId=1,
        greenContextId=0,
        streamId=np.where(np.isin(which, NCCL), 20, 7).ravel(),
        correlationId=correlation.ravel(),
        globalPid=gpid,
        demangledName=which.ravel() + 1,
        shortName=which.ravel() + 1,
        launchType=1,
        cacheConfig=0,
        registersPerThread=128,
        gridX=(which * 132 + 24).ravel(),
        gridY=1,
        gridZ=1,
        blockX=256,
        blockY=1,
        blockZ=1,
        staticSharedMemory=1_024,
        dynamicSharedMemory=49_152,
        localMemoryPerThread=0,
        localMemoryTotal=0,
        gridId=correlation.ravel(),
        sharedMemoryExecuted=65_536,
        sharedMemoryLimitConfig=0,
    )
    # Every launch comes with one more call, as frameworks make them.
    calls = np.stack([launch - 900, launch], axis=-1).ravel()
    names = np.tile([len(SEQUENCE) + 2, len(SEQUENCE) + 1], n * per_step)
    out.rows(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        start=calls,
        end=calls + 700,
        eventClass=0,
        globalTid=tid,
        correlationId=np.stack([correlation + 1, correlation], axis=-1).ravel(),
        nameId=names,
        returnValue=0,
    )
    _copies(out, rank, gpid, begin, ends, copying)
    _ranges(out, tid, first, launch)


def _copies(
    out: Writer, rank: int, gpid: int, begin: Int, ends: Int, copying: NDArray[np.bool_]
) -> None:
    at = np.arange(begin.shape[1]) % len(SEQUENCE) == SECOND
    starts, stops = begin[copying][:, at].ravel() - 200, ends[copying][:, at].ravel() - 100
    if starts.size:
        out.rows(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=starts,
            end=stops,
            deviceId=rank,
            contextId=1,
            streamId=33,
            correlationId=0,
            globalPid=gpid,
            bytes=8 << 20,
            copyKind=8,
            srcDeviceId=rank,
            dstDeviceId=rank,
        )


def _ranges(out: Writer, tid: int, first: int, launch: Int) -> None:
    """Steps, layers, operations, and NCCL's own ranges with their payload."""
    n, _ = launch.shape
    by_layer = launch.reshape(n, LAYERS, len(SEQUENCE))
    step_text = [f"decode step={first + i}" for i in range(n)]
    out.rows(
        "NVTX_EVENTS",
        start=by_layer[:, 0, 0] - 2_000,
        end=by_layer[:, -1, -1] + 1_500,
        eventType=59,
        text=step_text,
        globalTid=tid,
        domainId=0,
    )
    out.rows(
        "NVTX_EVENTS",
        start=(by_layer[:, :, 0] - 1_000).ravel(),
        end=(by_layer[:, :, -1] + 1_000).ravel(),
        eventType=59,
        text=[f"layer={i}" for i in range(LAYERS)] * n,
        globalTid=tid,
        domainId=0,
    )
    out.rows(
        "NVTX_EVENTS",
        start=(by_layer[:, :, 1:4] - 100).ravel(),
        end=(by_layer[:, :, 1:4] + 800).ravel(),
        eventType=59,
        text=["aten::linear", "aten::scaled_dot_product_attention", "aten::linear"] * (n * LAYERS),
        globalTid=tid,
        domainId=0,
    )
    payload = struct.pack("<4Q", *HEADER) + struct.pack("<QQi4x", COMMUNICATOR, MESSAGE_BYTES, 0)
    calls = by_layer[:, :, list(NCCL)].ravel()
    out.rows(
        "NVTX_EVENTS",
        start=calls - 300,
        end=calls + 900,
        eventType=59,
        textId=len(SEQUENCE) + 4,
        globalTid=tid,
        domainId=1,
        binaryData=[payload] * calls.size,
    )


def _samples(out: Writer, size: Size, rng: np.random.Generator, end: int) -> None:
    """Counters on a regular grid over the whole capture; the values are noise around 40 %."""
    wanted = int(size.kernels * size.samples_per_kernel)
    ticks = max(1, wanted // (len(METRICS) * size.ranks))
    period = max(1, end // ticks)
    for chunk in _chunks(ticks, 40_000):
        for rank in range(size.ranks):
            t = np.repeat(chunk * period, len(METRICS))
            out.rows(
                "GPU_METRICS",
                rawTimestamp=t + 12_345,
                timestamp=t,
                typeId=(1 << 48) + rank,
                metricId=np.tile(np.arange(len(METRICS)), chunk.size),
                value=rng.integers(20, 60, t.size),
            )


def _chunks(n: int, most: int) -> Iterator[Int]:
    for low in range(0, n, most):
        yield np.arange(low, min(n, low + most), dtype=np.int64)


def _kv_markers(out: Writer, size: Size, *, blocks: int = 64) -> None:
    """One paged sequence a layer on rank 0, its blocks shuffled in every fourth layer."""
    tid = int(global_pid(np.array([0]))[0]) + pid(0)
    rng = np.random.default_rng(size.seed + 1)
    texts: list[str] = []
    for layer in range(LAYERS):
        order: Sequence[int] = rng.permutation(blocks).tolist() if layer % 4 == 3 else range(blocks)
        base = 0x7F0000000000 + layer * (1 << 26)
        texts += [
            f"KV_BLOCK layer={layer} seq=0 block={i} addr={base + p * 32_768:#x} bytes=32768"
            for i, p in enumerate(order)
        ]
    out.rows(
        "NVTX_EVENTS",
        start=list(range(len(texts))),
        eventType=34,
        text=texts,
        globalTid=tid,
        domainId=0,
    )


def main() -> None:
    """Write a report as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--samples-per-kernel", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    generate(given.out, Size(given.kernels, given.ranks, given.samples_per_kernel, given.seed))


if __name__ == "__main__":
    main()
