"""Write an nsys-shaped report of any size whose contents every analysis uses.

A tensor-parallel decode (see `benchmarks.decode`) with ranges, launching calls, NCCL payloads,
markers of KV blocks and sampled counters. The same seed and size give the same file. At 5 million
kernels: 10 million calls, 3 million ranges, 20 million samples, 1.8 GB.

Usage: python -m benchmarks.generate OUT.sqlite --kernels 5000000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import decode
from benchmarks.decode import LAYERS, SEQUENCE, US, Int, pack, pid
from benchmarks.nsys_tables import Writer

__all__ = ["DRAM", "METRICS", "Size", "generate"]

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
DRAM = tuple(i for i, name in enumerate(METRICS) if name.startswith("DRAM"))
"""Metric ids of the DRAM counters."""
STEPS_AT_ONCE = 64
TICKS_AT_ONCE = 40_000


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
    for first in range(0, size.steps, STEPS_AT_ONCE):
        n = min(STEPS_AT_ONCE, size.steps - first)
        end = decode.steps(out, size.ranks, rng, first, n, end + 20 * US)
    _samples(out, size, rng, end)
    _kv_markers(out, size)
    out.rows("ANALYSIS_DETAILS", globalVid=0, duration=end + US, startTime=0, stopTime=end + US)
    out.db.close()


def _describe(out: Writer, size: Size) -> None:
    strings = list(decode.STRINGS)
    out.rows("StringIds", id=list(range(1, len(strings) + 1)), value=strings)
    out.rows(
        "META_DATA_EXPORT",
        name=["EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"],
        value=["NVIDIA Nsight Systems", "2025.3.2.0", "3.20.3"],
    )
    for rank in range(size.ranks):
        _describe_rank(out, rank)
    domain, schema, nbytes, _ = decode.HEADER
    of_schema = {"domainId": domain, "schemaId": schema}
    about = {"name": decode.NCCL_TEXT, "type": 1, "numEntries": 3, "payloadSize": nbytes}
    out.rows("NVTX_PAYLOAD_SCHEMAS", **of_schema, **about)
    out.rows(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
        **of_schema,
        idx=[0, 1, 2],
        type=[18, 22, 3],
        name=["NCCL communicator ID", "Message size [bytes]", "Reduction operation"],
        offset=[None, 8, 16],
    )


def _describe_rank(out: Writer, rank: int) -> None:
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
    named = {"text": "NCCL", "domainId": 1, "globalTid": pack(rank, pid(rank))}
    out.rows("NVTX_EVENTS", start=0, eventType=75, **named)


def _samples(out: Writer, size: Size, rng: np.random.Generator, end: int) -> None:
    """Counters on a regular grid over the whole capture; the values are noise around 40 %."""
    wanted = int(size.kernels * size.samples_per_kernel)
    ticks = max(1, wanted // (len(METRICS) * size.ranks))
    period = max(1, end // ticks)
    for chunk in _chunks(ticks, TICKS_AT_ONCE):
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
        globalTid=pack(0, pid(0)),
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
