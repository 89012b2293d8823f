"""What a CUDA call does to the thread that makes it: enqueues work, waits for it, allocates."""

from __future__ import annotations

import re
from enum import IntFlag

from tracekit.model.kernels.api import ApiKind, api_base_name, api_kind

__all__ = ["CallRole", "call_role"]


class CallRole(IntFlag):
    """What a call does, as far as its name shows; several may hold."""

    ENQUEUES = 1
    """Hands work to a stream: a launch, copy or memset."""
    WAITS = 2
    """Returns only when the device has finished something (``...Synchronize``)."""
    COPIES_AND_WAITS = 4
    """A copy without ``Async``: returns when the copy is done."""
    MODULE_LOAD = 8
    ALLOCATES = 16
    GRAPH_BUILD = 32
    GRAPH_LAUNCH = 64
    KERNEL_LAUNCH = 128
    CAPTURE_BEGINS = 256
    CAPTURE_ENDS = 512


_BLOCKING_COPY = re.compile(r"cudaMemcpy|cuMemcpy(?:HtoD|DtoH|DtoD)?")
_RULES: tuple[tuple[CallRole, re.Pattern[str]], ...] = (
    (
        CallRole.MODULE_LOAD,
        re.compile(
            r"cuLibraryLoad|cuModuleLoad|cuLibraryGetKernel|cuModuleGetFunction|cuLink|nvrtc"
            r"|cuGetProcAddress"
        ),
    ),
    (
        CallRole.ALLOCATES,
        re.compile(
            r"cudaMalloc|cudaFree|cudaHostAlloc|cudaHost(?:Unr|R)egister"
            r"|cuMem(?:Alloc|Free|Create|Map|Unmap|Release|SetAccess|Address|Host)"
        ),
    ),
    (
        CallRole.GRAPH_BUILD,
        re.compile(r"cu\w*(?:GraphInstantiate|(?:Begin|End)Capture|GraphExecUpdate|GraphUpload)"),
    ),
    (CallRole.CAPTURE_BEGINS, re.compile(r"cu\w*BeginCapture")),
    (CallRole.CAPTURE_ENDS, re.compile(r"cu\w*EndCapture")),
)
_OF_KIND = {
    ApiKind.KERNEL_LAUNCH: CallRole.ENQUEUES | CallRole.KERNEL_LAUNCH,
    ApiKind.GRAPH_LAUNCH: CallRole.ENQUEUES | CallRole.GRAPH_LAUNCH,
    ApiKind.MEMCPY: CallRole.ENQUEUES,
    ApiKind.MEMSET: CallRole.ENQUEUES,
    ApiKind.SYNC: CallRole.WAITS,
}


def call_role(name: str) -> CallRole:
    """Return what a CUDA runtime or driver call does to its thread.

    Args:
        name: The call's name, with or without suffixes.
    """
    role = _OF_KIND.get(api_kind(name), CallRole(0))
    if _BLOCKING_COPY.fullmatch(api_base_name(name)):
        role |= CallRole.COPIES_AND_WAITS
    for own, pattern in _RULES:
        if pattern.match(name):
            role |= own
    return role
