"""Memory that the process gives back: columns of millions of rows come and go."""

from __future__ import annotations

import sys

__all__ = ["free_at_once"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of the settings in glibc's malloc.h."""
_LARGE_BYTES, _KEPT_BYTES = 1 << 20, 4 << 20


def free_at_once() -> bool:
    """Have the C library return large blocks to the system as soon as they are freed.

    Left alone, glibc takes the first large block that is freed as a sign that such blocks should
    be kept: a sixth of the memory that a large trace needs would be held without use.

    Returns:
        Whether the C library can do so; others than glibc keep their ways.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        setting = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = ((_MMAP_THRESHOLD, _LARGE_BYTES), (_TRIM_THRESHOLD, _KEPT_BYTES))
    return all(setting(name, size) == 1 for name, size in wanted)
