"""What a generated tensor-parallel decode does, step by step: kernels, calls, copies, ranges.

Every rank runs the same layers. A layer dequantises before two of its products, meets the other
ranks in two all-reduces, and in every second step a copy runs beside the second one, which then
takes longer.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from benchmarks.nsys_tables import Writer

__all__ = [
    "API_NAMES",
    "HEADER",
    "LAYERS",
    "NCCL_TEXT",
    "SEQUENCE",
    "STRINGS",
    "US",
    "Int",
    "pack",
    "pid",
    "steps",
]

Int = NDArray[np.int64]

US = 1_000
LAYERS = 32
CONTENDED = 1.6
"""How much longer the second all-reduce of a layer takes beside a copy."""
_NORM = ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(T1*, T1*, float)", 2.6)
_DEQUANT = "dequantize_int4_kernel(unsigned char const*, __half*, int)"
_ALL_REDUCE = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    14.0,
)
SEQUENCE = (
    _NORM,
    (_DEQUANT, 9.0),
    ("nvjet_sm90_tst_128x8_64x12_4x1_v_bz_NNT", 18.0),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, T1*, T1*)", 2.5),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(Params)", 2.4),
    (
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Params)",
        22.0,
    ),
    ("void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(Params)", 3.1),
    ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_NNT", 11.0),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(Params)", 2.8),
    _ALL_REDUCE,
    _NORM,
    (_DEQUANT, 14.0),
    ("nvjet_sm90_tst_256x8_64x12_4x1_v_bz_NNT", 25.0),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel, true>(T1*, T1*)", 2.6),
    ("nvjet_sm90_tst_192x8_64x16_4x1_v_bz_NNT", 19.0),
    _ALL_REDUCE,
)
"""Kernels of one layer in order, with their usual duration in us: two in sixteen are collectives.

None is shorter than 2.4 us, which keeps the ranges around neighbouring launches apart.
"""
OPERATIONS = {
    2: "aten::linear",
    3: "vllm::rotary_embedding",
    5: "aten::scaled_dot_product_attention",
    7: "aten::linear",
    12: "aten::linear",
    13: "vllm::silu_and_mul",
    14: "aten::linear",
}
"""Position in `SEQUENCE` -> the range around its launch."""
NCCL = tuple(i for i, (name, _) in enumerate(SEQUENCE) if name.startswith("nccl"))
SECOND = NCCL[1]
PER_LAYER = len(SEQUENCE)
NAMES = tuple(dict.fromkeys(name for name, _ in SEQUENCE))
API_NAMES = ("cudaLaunchKernel_v7000", "cudaStreamIsCapturing_v10000", "cudaMemcpyAsync_v3020")
NCCL_TEXT = "ncclAllReduce"
STRINGS = (*NAMES, *API_NAMES, NCCL_TEXT)
"""String id i + 1 -> text."""
MESSAGE_BYTES = 262_144
COMMUNICATOR = 0x5EED
HEADER = (1, 16_777_221, 24, 32)
"""Payload header: domain, schema (NCCL AllReduce), size, offset."""
LEAD = 6 * US
"""From a launching call to its kernel."""
CONSTANT = {
    "contextId": 1,
    "greenContextId": 0,
    "launchType": 1,
    "cacheConfig": 0,
    "registersPerThread": 128,
    "gridY": 1,
    "gridZ": 1,
    "blockX": 256,
    "blockY": 1,
    "blockZ": 1,
    "staticSharedMemory": 1_024,
    "dynamicSharedMemory": 49_152,
    "localMemoryPerThread": 0,
    "localMemoryTotal": 0,
    "sharedMemoryExecuted": 65_536,
    "sharedMemoryLimitConfig": 0,
}
"""Kernel columns that are the same in every row."""


def pid(rank: int) -> int:
    """Return the process id of a rank."""
    return 31_337 + rank


def pack(rank: int, tid: int = 0) -> int:
    """Return the packed process id of a rank, or thread id when `tid` is given."""
    return (1 << 48) + pid(rank) * (1 << 24) + tid


def string_id(text: str) -> int:
    """Return the id of a text of `STRINGS`."""
    return STRINGS.index(text) + 1


def steps(
    out: Writer, ranks: int, rng: np.random.Generator, first: int, n: int, start_ns: int
) -> int:
    """Write decode steps of all ranks.

    Args:
        out: Where to.
        ranks: How many processes, each on its own GPU.
        rng: Noise.
        first: Number of the first step.
        n: How many steps.
        start_ns: When they begin.

    Returns:
        The end of the last step, ns.
    """
    per_step = LAYERS * PER_LAYER
    usual = np.tile([d for _, d in SEQUENCE], LAYERS)
    length = (usual * US * rng.lognormal(0, 0.05, (n, per_step))).astype(np.int64)
    copying = (np.arange(first, first + n) % 2 == 1)[:, None]
    second = (np.arange(per_step) % PER_LAYER == SECOND)[None, :]
    length = np.where(copying & second, (length * CONTENDED).astype(np.int64), length)
    gap = rng.integers(300, 1_500, (n, per_step))
    gap[:, 0] += 15 * US
    ends = start_ns + np.cumsum((length + gap).ravel()).reshape(n, per_step)
    starts = ends - length
    for rank in range(ranks):
        begin = starts + rng.integers(0, 250, starts.shape)
        launch = starts - LEAD + rng.integers(0, 250, starts.shape)
        correlation = (np.arange(n * per_step).reshape(n, per_step) + first * per_step) * 2 + 1
        _kernels(out, rank, begin, ends, correlation)
        _calls(out, rank, launch, correlation)
        _copies(out, rank, begin, ends, copying[:, 0])
        _ranges(out, rank, first, launch)
    return int(ends[-1, -1])


def _kernels(out: Writer, rank: int, begin: Int, ends: Int, correlation: Int) -> None:
    which = np.tile(np.arange(PER_LAYER), LAYERS)[None, :].repeat(begin.shape[0], 0).ravel()
    name = np.array([string_id(text) for text, _ in SEQUENCE])[which]
    out.rows(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        start=begin.ravel(),
        end=ends.ravel(),
        deviceId=rank,
        streamId=np.where(np.isin(which, NCCL), 20, 7),
        correlationId=correlation.ravel(),
        globalPid=pack(rank),
        demangledName=name,
        shortName=name,
        gridX=which * 132 + 24,
        gridId=correlation.ravel(),
        **CONSTANT,
    )


def _calls(out: Writer, rank: int, launch: Int, correlation: Int) -> None:
    """Every launch comes with one more call, as frameworks make them."""
    at = np.stack([launch - 900, launch], axis=-1).ravel()
    out.rows(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        start=at,
        end=at + 700,
        eventClass=0,
        globalTid=pack(rank, pid(rank)),
        correlationId=np.stack([correlation + 1, correlation], axis=-1).ravel(),
        nameId=np.tile([string_id(API_NAMES[1]), string_id(API_NAMES[0])], launch.size),
        returnValue=0,
    )


def _copies(out: Writer, rank: int, begin: Int, ends: Int, copying: NDArray[np.bool_]) -> None:
    at = np.arange(begin.shape[1]) % PER_LAYER == SECOND
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
            globalPid=pack(rank),
            bytes=8 << 20,
            copyKind=8,
            srcDeviceId=rank,
            dstDeviceId=rank,
        )


def _ranges(out: Writer, rank: int, first: int, launch: Int) -> None:
    """Steps, layers, operations, and NCCL's own ranges with their payload; properly nested."""
    n = launch.shape[0]
    by_layer = launch.reshape(n, LAYERS, PER_LAYER)
    thread = pack(rank, pid(rank))

    def written(start: Int, end: Int, **columns: object) -> None:
        where = {"eventType": 59, "globalTid": thread}
        out.rows("NVTX_EVENTS", start=start.ravel(), end=end.ravel(), **where, **columns)

    numbered = [f"decode step={first + i}" for i in range(n)]
    written(by_layer[:, 0, 0] - 2_000, by_layer[:, -1, -1] + 1_500, text=numbered, domainId=0)
    layers = [f"layer={i}" for i in range(LAYERS)] * n
    written(by_layer[:, :, 0] - 980, by_layer[:, :, -1] + 780, text=layers, domainId=0)
    calls = by_layer[:, :, list(OPERATIONS)]
    operations = list(OPERATIONS.values()) * (n * LAYERS)
    written(calls - 950, calls + 750, text=operations, domainId=0)
    payload = struct.pack("<4Q", *HEADER) + struct.pack("<QQi4x", COMMUNICATOR, MESSAGE_BYTES, 0)
    calls = by_layer[:, :, list(NCCL)]
    blobs = [payload] * calls.size
    said = {"textId": string_id(NCCL_TEXT), "domainId": 1, "binaryData": blobs}
    written(calls - 300, calls + 740, **said)
