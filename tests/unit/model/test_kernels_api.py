"""Classes of CUDA calls."""

from __future__ import annotations

from collections import Counter

import pytest

from tracekit.model.kernels import ApiKind, api_base_name, api_kind


def test_launches_of_kernels_and_graphs() -> None:
    calls = [
        "cudaLaunchKernel_v7000",
        "cudaLaunchKernel_v7000",
        "cudaGraphLaunch_v10000",
        "cuGraphLaunch",
        "cuLaunchKernelEx",
        "cudaLaunchKernelExC_v11060",
    ]
    assert Counter(map(api_kind, calls)) == {ApiKind.KERNEL_LAUNCH: 4, ApiKind.GRAPH_LAUNCH: 2}


@pytest.mark.parametrize(
    ("name", "base", "kind"),
    [
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel", ApiKind.KERNEL_LAUNCH),
        ("cuLaunchKernel_ptsz", "cuLaunchKernel", ApiKind.KERNEL_LAUNCH),
        ("cudaLaunch_v3020", "cudaLaunch", ApiKind.KERNEL_LAUNCH),
        ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC", ApiKind.KERNEL_LAUNCH),
        (
            "cudaLaunchCooperativeKernel_v9000",
            *("cudaLaunchCooperativeKernel", ApiKind.KERNEL_LAUNCH),
        ),
        ("cudaLaunchHostFunc_v10000", "cudaLaunchHostFunc", ApiKind.OTHER),
        ("cudaGraphLaunch_ptsz_v10000", "cudaGraphLaunch", ApiKind.GRAPH_LAUNCH),
        ("cudaGraphInstantiate_v12000", "cudaGraphInstantiate", ApiKind.OTHER),
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize", ApiKind.SYNC),
        ("cudaDeviceSynchronize_v3020", "cudaDeviceSynchronize", ApiKind.SYNC),
        ("cuCtxSynchronize", "cuCtxSynchronize", ApiKind.SYNC),
        ("cudaStreamWaitEvent_v3020", "cudaStreamWaitEvent", ApiKind.OTHER),
        ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", ApiKind.MEMCPY),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", ApiKind.MEMCPY),
        ("cudaMemsetAsync_v3020", "cudaMemsetAsync", ApiKind.MEMSET),
        ("cudaMalloc_v3020", "cudaMalloc", ApiKind.ALLOC),
        ("cudaHostAlloc_v3020", "cudaHostAlloc", ApiKind.ALLOC),
        ("cuMemCreate", "cuMemCreate", ApiKind.ALLOC),
        ("cuMemAlloc_v2", "cuMemAlloc", ApiKind.ALLOC),
        ("cudaFree_v3020", "cudaFree", ApiKind.FREE),
        ("cuMemFreeHost", "cuMemFreeHost", ApiKind.FREE),
        ("cudaEventRecord_v3020", "cudaEventRecord", ApiKind.OTHER),
        ("", "", ApiKind.OTHER),
    ],
)
def test_base_name_and_class(name: str, base: str, kind: ApiKind) -> None:
    assert api_base_name(name) == base
    assert api_kind(name) is kind
