"""Views: functions of a trace whose values are kept as long as something may need them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from tracekit.model.catalog import CATALOG
from tracekit.trace.dependencies import reached_from

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["SAMPLES", "SMALL_ROWS", "TraceCache", "UndeclaredTableError", "View", "view"]

T = TypeVar("T")


class StoppedError(Exception):
    """The trace was stopped; only threads whose result nobody waits for see it."""


class UndeclaredTableError(AssertionError):
    """An analysis or view read a table that its code does not name: a bug."""


@dataclass(frozen=True, eq=False)
class View(Generic[T]):
    """A named function of a trace whose result is computed once.

    What it reads and calls is derived from its code when it is first needed, see
    `tracekit.trace.dependencies`.

    Attributes:
        name: Qualified name of the function.
        compute: The function.
        extra_tables: Catalog tables that it reads by names that its code does not spell.
        extra_views: Views that it calls likewise.
    """

    name: str
    compute: Callable[[Trace], T]
    extra_tables: frozenset[str] = frozenset()
    extra_views: tuple[View[Any], ...] = ()

    @cached_property
    def _reached(self) -> tuple[tuple[View[Any], ...], frozenset[str]]:
        views, tables = reached_from(cast("FunctionType", self.compute), View)
        every = {id(one): one for one in (*views, *self.extra_views) if one is not self}
        return tuple(every.values()), tables | self.extra_tables

    @property
    def of(self) -> tuple[View[Any], ...]:
        """Views that it calls."""
        return self._reached[0]

    @property
    def tables(self) -> frozenset[str]:
        """Catalog tables that it reads itself."""
        return self._reached[1]

    @cached_property
    def uses(self) -> frozenset[str]:
        """Catalog tables that may be read for it, by its views too."""
        found, todo = {self}, [self]
        while todo:
            new = set(todo.pop().of) - found
            found |= new
            todo += new
        return frozenset().union(*(one.tables for one in found))

    def __call__(self, trace: Trace) -> T:
        """Return the view's value for `trace`."""
        return trace.view(self)


@overload
def view(function: Callable[[Trace], T], /) -> View[T]: ...


@overload
def view(
    *tables: str, of: Iterable[View[Any]] = ...
) -> Callable[[Callable[[Trace], T]], View[T]]: ...


def view(*given: Any, of: Iterable[View[Any]] = ()) -> Any:
    """Turn a function of a trace into a `View`.

    ``@view`` is enough where the function names what it reads: ``trace.frame("kernels")``, and
    other views as globals.

    Args:
        given: The function; or catalog tables that it reads by names that its code does not
            spell.
        of: Views that it calls likewise.

    Raises:
        UndeclaredTableError: A table is not in the catalog.
    """
    if given and not isinstance(given[0], str):
        return _named(given[0], frozenset(), ())
    tables, views = frozenset(given), tuple(of)
    unknown = tables - CATALOG.keys()
    if unknown:
        message = f"unknown tables: {sorted(unknown)}"
        raise UndeclaredTableError(message)
    return lambda function: _named(function, tables, views)


def _named(
    function: Callable[[Trace], T], tables: frozenset[str], views: tuple[View[Any], ...]
) -> View[T]:
    name = f"{function.__module__}.{function.__qualname__}"
    return View(name, function, tables, views)


class Cache:
    """Values by name, each computed once whichever thread needs it first.

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

    def evict(self, is_needed: Callable[[str, Any], bool]) -> None:
        """Delete the values that are not needed."""
        with self._lock:
            for name in [n for n, value in self._values.items() if not is_needed(n, value)]:
                del self._values[name]


class TraceCache:
    """What all narrowed twins of a trace share.

    Attributes:
        frames: By catalog name, or `SAMPLES` and counters.
        views: Values by the name of the view.
        plan: See `Trace.plan`; None keeps everything.
        stopped: Set when nothing more is to be computed.
        progress: Called with one line on what was read.
    """

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.progress: Callable[[str], None] = lambda _: None
        self.frames, self.views = Cache(self.stopped), Cache(self.stopped)
        self.plan: dict[str, tuple[tuple[View[Any], ...], tuple[str, ...]]] | None = None

    def needed(self) -> dict[str, View[Any]]:
        """Return the planned views and those that have to be computed for them, by name."""
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

    def evict(self) -> None:
        """Delete what nothing in the plan needs any more."""
        if self.plan is None:
            return
        needed, known = self.needed(), self.views.names()
        read = {table for _, tables in list(self.plan.values()) for table in tables}
        read.update(*(one.tables for one in needed.values() if one.name not in known))
        self.views.evict(lambda name, _: name in needed)
        # Samples are read for one view that takes them apart.
        self.frames.evict(lambda name, rows: name in read or rows.height < SMALL_ROWS)


SAMPLES = "gpu_metrics:"
"""Begins the names under which samples are kept."""
SMALL_ROWS = 10_000
"""Frames of fewer rows are never evicted."""
