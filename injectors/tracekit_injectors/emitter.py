"""Where markers go: the listening tool, the sidecar, or nowhere.

The order of preference is fixed: the tool named in ``NVTX_INJECTION64_PATH``; the file named in
``TRACEKIT_SIDECAR``; nothing, in which case no marker is even formatted. A category whose markers
cost more than their share of the step time (`tracekit_injectors.budget`) moves from the tool to
the sidecar, or stops when there is none, and one line on stderr says so.

Settings: ``TRACEKIT_BUDGET`` (share of the step time, default 0.01; ``off`` lifts it),
``TRACEKIT_SIDECAR``, ``TRACEKIT_QUIET=1`` (no lines on stderr).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from . import nvtx, sidecar
from .budget import DEFAULT_FRAC, Budget
from .grammar import CATEGORY, CATEGORY_NUMBER, GRAMMAR, Row, Value, row, text

__all__ = ["DOMAIN", "Emitter", "Token", "emitter", "note"]

DOMAIN = "tracekit"
_SYNC_PERIOD_NS = 15_000_000_000
"""Clock marks and state come again this often, so that a recording that starts late has them."""

Token = tuple[int, str, Row | None] | None
"""An open range: start in ns, event, and its values when it goes to the sidecar."""


def note(line: str) -> None:
    """Print one line to the user on stderr, unless ``TRACEKIT_QUIET`` is set."""
    if not os.environ.get("TRACEKIT_QUIET"):
        print(f"tracekit: {line}", file=sys.stderr, flush=True)


class Emitter:
    """The one place that all hooks and the public functions write to.

    Attributes:
        channel: ``nvtx``, ``sidecar`` or ``none``; decided at the first use.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._started = False
        self._nvtx: nvtx.Nvtx | None = None
        self._sidecar: sidecar.Sidecar | None = None
        self._moved: set[str] = set()
        self._budget: Budget | None = None
        self._next_sync_ns = 0
        self._states: dict[object, Callable[[], None]] = {}
        self._busy = threading.local()

    @property
    def channel(self) -> str:
        """Which channel is in use."""
        self._start()
        if self._nvtx is not None:
            return "nvtx"
        return "sidecar" if self._sidecar is not None else "none"

    @property
    def active(self) -> bool:
        """Whether markers go anywhere; False costs hooks one attribute read."""
        self._start()
        return self._nvtx is not None or self._sidecar is not None

    def mark(self, event: str, values: Row) -> None:
        """Emit one mark.

        Args:
            event: Name of an event of the grammar.
            values: One value for each of the event's keys; None means unknown.
        """
        if not self._started:
            self._start()
        tool = self._nvtx
        if tool is None and self._sidecar is None:
            return
        start_ns = time.monotonic_ns()
        category = CATEGORY[event]
        if tool is not None and category not in self._moved:
            tool.mark(CATEGORY_NUMBER[category], text(event, values))
        elif self._sidecar is not None:
            self._sidecar.append(event, values, start_ns)
        self._spent(category, start_ns)

    def push(self, event: str, values: Row) -> Token:
        """Open a range on this thread; close it with `pop` on every path.

        Args:
            event: Name of an event of the grammar.
            values: One value for each of the event's keys; None means unknown.

        Returns:
            What `pop` needs; None when nothing was opened.
        """
        if not self.active:
            return None
        start_ns = time.monotonic_ns()
        category = CATEGORY[event]
        if self._nvtx is not None and category not in self._moved:
            self._nvtx.push(CATEGORY_NUMBER[category], text(event, values))
            self.spend(category, time.monotonic_ns() - start_ns)
            return start_ns, event, None
        return start_ns, event, values

    def pop(self, token: Token) -> None:
        """Close the range that `push` opened on this thread."""
        if token is None:
            return
        start_ns, event, values = token
        now_ns = time.monotonic_ns()
        if values is not None:
            if self._sidecar is not None:
                self._sidecar.append(event, values, start_ns, now_ns)
        elif self._nvtx is not None:
            self._nvtx.pop()
        if event == "STEP" and self._budget is not None:
            self._budget.step(now_ns - start_ns)
        self._spent(CATEGORY[event], now_ns)

    def spend(self, category: str, cost_ns: int) -> None:
        """Count time that a hook took to find out what to mark, ns."""
        if self._budget is not None:
            self._budget.spend(category, cost_ns)

    def on_again(self, key: object, state: Callable[[], None]) -> None:
        """Have `state` called whenever standing state is emitted again; replaces that of `key`."""
        self._states[key] = state

    def tell_again(self) -> None:
        """Emit meta data, clock and standing state again, as when a recording starts."""
        if self.active:
            self._meta(again=True)
            for state in tuple(self._states.values()):
                state()

    def drain(self) -> None:
        """Write what waits for the sidecar's writer."""
        if self._sidecar is not None:
            self._sidecar.drain()

    def _start(self) -> None:
        if self._started:
            return
        with self._lock:
            first = not self._started
            if first:
                self._connect()
        if first and self.active:
            self._meta(again=False)

    def _connect(self) -> None:
        self._nvtx = nvtx.connect(DOMAIN, CATEGORY_NUMBER)
        path = os.environ.get(sidecar.VARIABLE)
        self._sidecar = sidecar.Sidecar(Path(path)) if path else None
        now_ns = time.monotonic_ns()
        self._budget = _budget(now_ns)
        self._next_sync_ns = now_ns + _SYNC_PERIOD_NS
        self._started = True

    def _meta(self, *, again: bool, degraded: bool = False) -> None:
        meta: dict[str, Value] = {
            "version": _version(),
            "grammar": GRAMMAR,
            "pid": os.getpid(),
            "markers": self.channel,
            "degraded": degraded or None,
            "again": again or None,
        }
        now_ns = time.monotonic_ns()
        clock: dict[str, Value] = {"mono_ns": now_ns}
        for event, values in (("META", row("META", meta)), ("SYNC", row("SYNC", clock))):
            if self._nvtx is not None:
                self._nvtx.mark(CATEGORY_NUMBER["meta"], text(event, values))
            elif self._sidecar is not None:
                self._sidecar.append(event, values, now_ns)

    def _spent(self, category: str, since_ns: int) -> None:
        now_ns = time.monotonic_ns()
        budget = self._budget
        if budget is not None:
            budget.spend(category, now_ns - since_ns)
            if now_ns >= budget.window_end_ns:
                over = budget.overrun(now_ns)
                if over is not None and self._nvtx is not None and over not in self._moved:
                    self._degrade(over)
        if now_ns >= self._next_sync_ns and not getattr(self._busy, "now", False):
            self._next_sync_ns = now_ns + _SYNC_PERIOD_NS
            self._busy.now = True
            try:
                self.tell_again()
            finally:
                self._busy.now = False

    def _degrade(self, category: str) -> None:
        self._moved.add(category)
        self._meta(again=True, degraded=True)
        where = (
            "go to the markers file" if self._sidecar is not None else "stop (no TRACEKIT_SIDECAR)"
        )
        note(
            f"{category} markers cost more than {_share_frac():.3g} of the step time and {where};"
            " TRACEKIT_BUDGET sets the share"
        )


def _share_frac() -> float:
    setting = os.environ.get("TRACEKIT_BUDGET", "")
    try:
        return float(setting) if setting else DEFAULT_FRAC
    except ValueError:
        return DEFAULT_FRAC


def _budget(now_ns: int) -> Budget | None:
    if os.environ.get("TRACEKIT_BUDGET") == "off":
        return None
    return Budget(_share_frac(), now_ns)


def _version() -> str:
    from . import __version__

    return __version__


emitter = Emitter()
