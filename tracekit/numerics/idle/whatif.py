"""Length of a step after a change, as an interval; everything in ns.

Every function returns ``(shortest, longest)`` and never more than the step takes now.
"""

from __future__ import annotations

__all__ = [
    "graphed",
    "hidden_copy",
    "not_allocating",
    "pinned",
    "without_dequant",
    "without_waits",
]

GAP_IN_GRAPH_NS, GAP_IN_STREAM_NS = 100.0, 1_300.0
"""Device gap between two operations: between nodes of one graph, and of kernels on one stream that
were launched in time. Measured on an H200."""
LINK_FRAC = 0.7
"""Share of its peak that a link reaches at least with large copies from pinned memory."""


def _at_most(step: float, lo: float, hi: float) -> tuple[float, float]:
    lo = min(max(lo, 0.0), step)
    return lo, min(max(hi, lo), step)


def graphed(
    step: float,
    busy: float,
    n: float,
    *,
    idle: float | None = None,
    remains: float = 0.0,
    may_remain: float = 0.0,
) -> tuple[float, float]:
    """Return the step launched as one CUDA graph.

    Args:
        step: Now, ns.
        busy: Time of it in which the device works, ns.
        n: Operations in it.
        idle: Time of it in which the device does nothing, ns: no more can be saved. Medians over
            steps do not add up, so it need not be `step` - `busy`, which stands for it if None.
        remains: Idle time that a graph does not remove, ns.
        may_remain: Idle time that it removes only if what causes it moves out of the graph, ns.
    """
    lo, hi = (busy + n * gap + remains for gap in (GAP_IN_GRAPH_NS, GAP_IN_STREAM_NS))
    least = 0.0 if idle is None else step - idle
    return _at_most(step, max(lo, least), max(hi + may_remain, least))


def without_dequant(
    step: float, exposed: float, gaps: float = 0.0, consumers: float = 0.0
) -> tuple[float, float]:
    """Return the step without separate dequantisation kernels.

    Args:
        step: Now, ns.
        exposed: Time in which nothing hides them, ns.
        gaps: Idle time between them and what consumes their output, ns.
        consumers: Time by which the consumers are slower than elsewhere without them, ns.
    """
    return _at_most(step, step - exposed - gaps - consumers, step - exposed)


def hidden_copy(
    step: float, busy: float, copy: float, exposed: float, *, host_waits: bool
) -> tuple[float, float]:
    """Return the step with a copy run at the same time as its computation.

    No more than the exposed time is saved, unless the host waited for the copy and so launched late
    what comes after it.

    Args:
        step: Now, ns.
        busy: Time of it in which the device works or copies, ns.
        copy: Time of the copy, ns.
        exposed: Part of it that nothing hides now, ns.
        host_waits: Whether the host waits in the call until the copy is done.
    """
    compute = max(busy - exposed, 0.0)
    least = 0.0 if host_waits else step - exposed
    return _at_most(step, max(copy, compute, least), step - min(exposed, compute))


def pinned(step: float, copy: float, n_bytes: float, link_gb_per_s: float) -> tuple[float, float]:
    """Return the step with a copy from pinned instead of pageable memory.

    Args:
        step: Now, ns.
        copy: Exposed time of the copy, ns.
        n_bytes: Its size.
        link_gb_per_s: Peak of the link, GB/s (bytes a ns).
    """
    fast = n_bytes / link_gb_per_s
    return _at_most(step, step - copy + fast, step - copy + fast / LINK_FRAC)


def without_waits(step: float, busy: float, host: float) -> tuple[float, float]:
    """Return the step whose host no longer waits for the device.

    Args:
        step: Now, ns.
        busy: Time of it in which the device works, ns.
        host: Time of it in which the launching thread does not wait, ns.
    """
    return _at_most(step, max(host, busy), step)


def not_allocating(
    step: float, busy: float, host: float, held: float, idle: float
) -> tuple[float, float]:
    """Return the step with allocations (module loads, graph builds) moved out of it.

    Args:
        step: Now, ns.
        busy: Time of it in which the device works, ns.
        host: Time of it in which the launching thread does not wait, ns.
        held: Part of that in which it allocates, ns.
        idle: Idle time of the device that is due to that, ns.
    """
    return _at_most(step, max(host - held, busy), step - idle)
