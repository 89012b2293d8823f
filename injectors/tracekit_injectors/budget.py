"""How much time the markers may take, and which kind to move off when they take more."""

from __future__ import annotations

__all__ = ["DEFAULT_FRAC", "Budget"]

DEFAULT_FRAC = 0.01
_WINDOW_NS = 500_000_000
_LONGEST_NS = 50_000
"""What one marker is charged at most: whatever takes longer was the machine's doing (another
thread had the processor), and would otherwise blame the markers for a busy machine."""
_MOVABLE = ("kv", "moe", "alloc", "coll")
"""Categories that may be moved; steps and layers stay, since attribution rests on them."""


class Budget:
    """Compares what markers cost with the time of the steps that they describe.

    A window lasts half a second. When the markers of two windows in a row cost more than their
    share, the dearest category is named. The time compared with is that of the steps when there
    are any, so that a server's idle time hides nothing.

    Args:
        share_frac: Allowed share of the step time, 0..1.
        now_ns: The time, ns.

    Attributes:
        window_end_ns: When `overrun` has something to say, ns.
    """

    def __init__(self, share_frac: float, now_ns: int) -> None:
        self._share_frac = share_frac
        self._start_ns = now_ns
        self.window_end_ns = now_ns + _WINDOW_NS
        self._spent_ns: dict[str, int] = {}
        self._steps_ns = 0
        self._strikes = 0

    def spend(self, category: str, cost_ns: int) -> None:
        """Note that a marker of `category` took `cost_ns`."""
        spent_ns = self._spent_ns.get(category, 0)
        self._spent_ns[category] = spent_ns + min(cost_ns, _LONGEST_NS)

    def step(self, duration_ns: int) -> None:
        """Note that a step lasted `duration_ns`."""
        self._steps_ns += duration_ns

    def overrun(self, now_ns: int) -> str | None:
        """Close the window when it is over.

        Args:
            now_ns: The time, ns.

        Returns:
            The category to move off, or None.
        """
        elapsed_ns = now_ns - self._start_ns
        if now_ns < self.window_end_ns:
            return None
        base_ns = min(self._steps_ns, elapsed_ns) or elapsed_ns
        over = sum(self._spent_ns.values()) > self._share_frac * base_ns
        self._strikes = self._strikes + 1 if over else 0
        movable = [c for c in _MOVABLE if self._spent_ns.get(c)]
        dearest = max(movable, key=lambda c: self._spent_ns[c], default=None)
        self._start_ns, self._steps_ns, self._spent_ns = now_ns, 0, {}
        self.window_end_ns = now_ns + _WINDOW_NS
        if self._strikes < 2 or dearest is None:
            return None
        self._strikes = 0
        return dearest
