"""Classes of CUDA runtime and driver calls, by name."""

from __future__ import annotations

import re
from enum import StrEnum

__all__ = ["ApiKind", "api_base_name", "api_kind"]


class ApiKind(StrEnum):
    """What a CUDA call does, by its name."""

    KERNEL_LAUNCH = "kernel_launch"
    GRAPH_LAUNCH = "graph_launch"
    SYNC = "sync"
    """The calling thread waits for the device. A stream that waits for an event is not that."""
    MEMCPY = "memcpy"
    MEMSET = "memset"
    ALLOC = "alloc"
    FREE = "free"
    OTHER = "other"


# Version and default-stream suffixes may follow each other in any order.
_SUFFIXES = r"(?:_v\d+|_pt(?:sz|ds))+$"
_RULES: tuple[tuple[ApiKind, str], ...] = (
    (ApiKind.GRAPH_LAUNCH, r"cu(?:da)?GraphLaunch"),
    (ApiKind.KERNEL_LAUNCH, r"cuda(?:Launch|LaunchKernel(?:Ex(?:C)?)?)"),
    (ApiKind.KERNEL_LAUNCH, r"cu(?:Launch|LaunchGrid(?:Async)?|LaunchKernel(?:Ex)?)"),
    (ApiKind.KERNEL_LAUNCH, r"cu(?:da)?LaunchCooperativeKernel(?:MultiDevice)?"),
    (ApiKind.SYNC, r"cu(?:da)?(?:Device|Stream|Event|Ctx|Thread)Synchronize"),
    (ApiKind.MEMCPY, r"cu(?:da)?Memcpy\w*"),
    (ApiKind.MEMSET, r"cu(?:da)?Memset\w*"),
    (ApiKind.ALLOC, r"cudaMalloc\w*|cudaHostAlloc|cuMem(?:Host)?Alloc\w*|cuMemCreate"),
    (ApiKind.FREE, r"cudaFree\w*|cuMem(?:Host)?Free\w*|cuMemRelease"),
)


def api_base_name(name: str) -> str:
    """Return a CUDA call's name without version and default-stream suffixes.

    Args:
        name: For example ``cudaLaunchKernel_v7000`` or ``cuMemcpyAsync_ptsz``.

    Returns:
        The name to group by, for example ``cudaLaunchKernel``.
    """
    return re.sub(_SUFFIXES, "", name.strip())


def api_kind(name: str) -> ApiKind:
    """Classify a CUDA runtime or driver call.

    Args:
        name: The call's name, with or without suffixes.

    Returns:
        Its class. ``cudaLaunchHostFunc`` runs a function on the host and is no kernel launch.
    """
    base = api_base_name(name)
    for kind, pattern in _RULES:
        if re.fullmatch(pattern, base):
            return kind
    return ApiKind.OTHER
