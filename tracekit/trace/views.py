"""Views: functions of a trace whose values are kept as long as something may ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tracekit.model.catalog import CATALOG

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["SAMPLES", "SMALL_ROWS", "Store", "UndeclaredTableError", "View", "view"]

T = TypeVar("T")


class StoppedError(Exception):
    """The trace was told to stop; only threads whose result nobody waits for see it."""


class UndeclaredTableError(AssertionError):
    """An analysis or view read a table that it does not declare: a bug."""


@dataclass(frozen=True)
class View(Generic[T]):
    """A named function of a trace whose result is computed once.

    Attributes:
        name: Qualified name of the function.
        tables: Catalog tables it reads itself.
        of: Views that it calls.
        uses: Catalog tables that may be read for it, by its views too.
        compute: The function.
    """

    name: str
    tables: frozenset[str]
    of: tuple[View[Any], ...]
    uses: frozenset[str]
    compute: Callable[[Trace], T]

    def __call__(self, trace: Trace) -> T:
        """Return the view's value for `trace`."""
        return trace.view(self)


def view(*uses: str, of: Iterable[View[Any]] = ()) -> Callable[[Callable[[Trace], T]], View[T]]:
    """Turn a function of a trace into a `View`.

    Args:
        uses: Catalog tables that the function reads itself.
        of: Views that it calls. One that is left out may be computed twice, see `Trace.expect`.
    """
    tables, views = frozenset(uses), tuple(of)
    unknown = tables - CATALOG.keys()
    if unknown:
        message = f"unknown tables: {sorted(unknown)}"
        raise UndeclaredTableError(message)

    def wrap(function: Callable[[Trace], T]) -> View[T]:
        every = tables.union(*(v.uses for v in views))
        name = f"{function.__module__}.{function.__qualname__}"
        return View(name, tables, views, every, function)

    return wrap


class Kept:
    """Values by name, each computed once whichever thread asks first.

    Args:
        stopped: Once it is set nothing new is computed.
    """

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._values: dict[str, Any] = {}
        self._locks: dict[str, threading.RLock] = {}
        self._lock = threading.Lock()

    def names(self) -> frozenset[str]:
        """Return the names of the values that are there."""
        with self._lock:
            return frozenset(self._values)

    def get(self, name: str, compute: Callable[[], Any]) -> tuple[Any, bool]:
        """Return a value and whether it is new; views form no circle to wait in.

        Raises:
            StoppedError: It is not there and must not be computed any more.
        """
        with self._lock:
            if name in self._values:
                return self._values[name], False
            lock = self._locks.setdefault(name, threading.RLock())
        with lock:
            if name in self._values:
                return self._values[name], False
            if self._stopped.is_set():
                raise StoppedError
            value = compute()
            with self._lock:
                self._values[name] = value
            return value, True

    def keep(self, wanted: Callable[[str, Any], bool]) -> None:
        """Let go of all others."""
        with self._lock:
            for name in [n for n, value in self._values.items() if not wanted(n, value)]:
                del self._values[name]


class Store:
    """What all narrowed twins of a trace share.

    Attributes:
        frames: By catalog name, or `SAMPLES` and counters.
        views: Values by the name of the view.
        plan: See `Trace.expect`; None keeps everything.
        stopped: Set when nothing more is to be computed.
        tell: Told what was read, for people who wait.
    """

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.tell: Callable[[str], None] = lambda _: None
        self.frames, self.views = Kept(self.stopped), Kept(self.stopped)
        self.plan: dict[str, tuple[tuple[View[Any], ...], tuple[str, ...]]] | None = None

    def needed(self) -> dict[str, View[Any]]:
        """The views that are asked for or have to be computed for those, by name."""
        found: dict[str, View[Any]] = {}
        known = self.views.names()
        todo = [one for views, _ in list((self.plan or {}).values()) for one in views]
        while todo:
            one = todo.pop()
            if one.name not in found:
                found[one.name] = one
                if one.name not in known:
                    todo += [other for other in one.of if other.name not in found]
        return found

    def tidy(self) -> None:
        """Let go of what nothing in the plan needs any more."""
        if self.plan is None:
            return
        needed, known = self.needed(), self.views.names()
        read = {table for _, tables in list(self.plan.values()) for table in tables}
        read.update(*(one.tables for one in needed.values() if one.name not in known))
        self.views.keep(lambda name, _: name in needed)
        # Samples are read for one view that takes them apart.
        self.frames.keep(lambda name, rows: name in read or rows.height < SMALL_ROWS)


SAMPLES = "gpu_metrics:"
"""Begins the names under which samples are kept."""
SMALL_ROWS = 10_000
"""Frames of fewer rows are never let go of."""
