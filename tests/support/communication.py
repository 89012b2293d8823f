"""Exports with collectives, for tests: what a few ranks did, in as few words as possible."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.support.builders import Export, gid

__all__ = [
    "ALL_REDUCE",
    "COMM",
    "NCCL",
    "add_schemas",
    "collective",
    "payload",
    "ranks_export",
]

NCCL = 1
"""Domain number of NCCL's ranges."""
ALL_REDUCE = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
)
COMM = 0x8F4911216D220490
SCHEMAS = {
    "AllGather": (16777220, (("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8))),
    "AllReduce": (
        16777221,
        (
            ("NCCL communicator ID", 18, None),
            ("Message size [bytes]", 22, 8),
            ("Reduction operation", 16777236, 16),
        ),
    ),
    "CommInitRank": (
        16777216,
        (
            ("NCCL communicator ID", 18, None),
            ("No. of ranks", 5, 8),
            ("Rank", 5, 12),
            ("CUDA device", 5, 16),
        ),
    ),
}


def payload(op: str, comm: int, size: int) -> bytes:
    """NCCL's blob for one call: header of four u64, then the fields."""
    fields = struct.pack("<QQ", comm, size)
    if op == "AllReduce":
        fields += struct.pack("<ii", 0, 0)
    schema = SCHEMAS[op][0]
    return struct.pack("<QQQQ", NCCL, schema, len(fields), 32) + fields


def init_payload(comm: int, nranks: int, rank: int) -> bytes:
    """NCCL's blob for the creation of a communicator."""
    fields = struct.pack("<Qiiii", comm, nranks, rank, 0, 0)
    return struct.pack("<QQQQ", NCCL, SCHEMAS["CommInitRank"][0], len(fields), 32) + fields


def add_schemas(export: Export, *, times: int = 2) -> Export:
    """List the schemas, once per process as nsys does."""
    for _ in range(times):
        for schema, entries in SCHEMAS.values():
            for index, (name, kind, offset) in enumerate(entries):
                export.add(
                    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                    domainId=NCCL,
                    schemaId=schema,
                    idx=index,
                    type=kind,
                    name=name,
                    offset=offset,
                )
    return export


def collective(
    export: Export,
    start: int,
    end: int,
    *,
    rank: int = 0,
    op: str = "AllReduce",
    size: int = 1 << 20,
    launch: int | None = None,
    name: str = ALL_REDUCE,
    comm: int = COMM,
    blob: bytes | str | None = None,
    described: bool = True,
    stream: int = 7,
    **values: object,
) -> Export:
    """Add one collective of one rank: NCCL's range, the launch in it and the kernel."""
    pid = 100 + rank
    launch = start - 10 if launch is None else launch
    if described:
        data = payload(op, comm, size) if blob is None else blob
        export.range(
            launch - 5,
            launch + 8,
            f"nccl{op}",
            pid=pid,
            tid=pid,
            domain=NCCL,
            binaryData=data or None,
        )
    return export.kernel(
        start,
        end,
        name,
        device=rank,
        pid=pid,
        stream=stream,
        launch=launch,
        grid=(24, 1, 1),
        **values,
    )


def ranks_export(n: int, *, devices: Sequence[int] | None = None, **options: object) -> Export:
    """An export of n ranks, one process and GPU each, NCCL's domain named."""
    export = Export(**options)
    for rank in devices if devices is not None else range(n):
        export.gpu(rank)
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=rank, cudaId=rank, pid=100 + rank)
        export.domain(NCCL, "NCCL", pid=100 + rank)
    return add_schemas(export)


def ranks_stated(
    export: Export, comm: int, nranks: int, rank: int, *, number: int | None = None, at: int = 1
) -> Export:
    """Add the creation of a communicator on one rank, whose number may be another one."""
    return export.range(
        at,
        at + 1,
        "ncclCommInitRank",
        pid=100 + rank,
        tid=100 + rank,
        domain=NCCL,
        binaryData=init_payload(comm, nranks, rank if number is None else number),
    )


def wait_for_event(export: Export, at: int, *, pid: int = 100, stream: int = 7) -> Export:
    """Add a host call that makes a stream wait for an event."""
    return export.add(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        start=at,
        end=at + 1,
        deviceId=0,
        contextId=1,
        streamId=stream,
        correlationId=0,
        globalPid=gid(pid),
        syncType=2,
        eventId=1,
    )
