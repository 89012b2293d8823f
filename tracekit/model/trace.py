"""`Trace`: the canonical frames of one or several reports, and the views computed from them.

A trace hands out frames by catalog name, reading each at most once, and *views*: functions
``Trace -> T`` whose result is kept, so that two analyses that need the same join share it. A view
states the tables and views it reads; `Trace.narrow` gives an analysis a trace on which no table
that it did not declare can be read, so no result depends on what ran before, and `Trace.expect`
makes it let go of what nothing to come will ask for. A trace may be used from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

import polars as pl

from tracekit.model.catalog import CATALOG

__all__ = ["Alignment", "Gpu", "Loader", "Report", "Trace", "UndeclaredTableError", "View", "view"]

T = TypeVar("T")


class UndeclaredTableError(AssertionError):
    """An analysis or view read a table that it does not declare: a bug."""


@dataclass(frozen=True)
class Gpu:
    """One physical GPU.

    Attributes:
        index: Position in `Trace.gpus`, the ``gpu`` column of every frame.
        name: Marketing name, "" when unknown.
        chip: Chip name, "" when unknown.
        l2_bytes: L2 size in bytes, None when unknown.
        memory_bytes: Device memory in bytes, None when unknown.
        bandwidth_bytes_per_s: Peak DRAM bandwidth as the report states it, None when unknown.
        clock_hz: Maximum clock in Hz, None when unknown.
        sm_count: Streaming multiprocessors, None when unknown.
        used: Whether any device activity ran on it; only a `Diagnosis` knows, not a `Trace`.
    """

    index: int
    name: str = ""
    chip: str = ""
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    bandwidth_bytes_per_s: int | None = None
    clock_hz: int | None = None
    sm_count: int | None = None
    used: bool = False


@dataclass(frozen=True)
class Report:
    """One input file.

    Attributes:
        index: The ``report`` column of every frame.
        name: File name without folder.
        sha256: Hash of the file's bytes as given (compressed if it was).
        product: Product and version that wrote it, "" when unknown.
        schema_version: Export schema version, None when the file states none.
        nsys_version: Version as integers, None when unknown.
        graph_trace: "graph", "node" or "" as the capture options say.
        metric_hz: Sampling frequency asked for, None when none was.
        has_blobs: Whether payload blobs were exported; None when the file does not say.
        utc_epoch_ns: Wall-clock start, None when unknown.
        duration_ns: Capture length, None when unknown.
        tables: Canonical tables present with at least one row: name to row count.
        present: Canonical tables present at all, also empty.
        notes: Provenance notes of the reader.
        dropped: Invalid rows per canonical table: table to {reason: count}.
    """

    index: int
    name: str
    sha256: str
    product: str = ""
    schema_version: str | None = None
    nsys_version: tuple[int, ...] | None = None
    graph_trace: str = ""
    metric_hz: int | None = None
    has_blobs: bool | None = None
    utc_epoch_ns: int | None = None
    duration_ns: int | None = None
    tables: Mapping[str, int] = field(default_factory=dict)
    present: Collection[str] = ()
    notes: list[str] = field(default_factory=list)
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def has_timeline(self) -> bool:
        """Whether it says when something ran; results of Nsight Compute do not."""
        return "ncu_kernels" not in self.present


@dataclass(frozen=True)
class Alignment:
    """How one report's clock was brought to that of report 0.

    Attributes:
        report: Index of the report.
        offset_ns: Shift that was subtracted, in all.
        mad_ns: Median absolute deviation of matched collective ends; None without any.
        n: Matched collectives.
        method: "one session", "collectives", "utc" or "none".
    """

    report: int
    offset_ns: int
    mad_ns: float | None
    n: int
    method: str

    @property
    def aligned(self) -> bool:
        """Whether claims across reports may be made."""
        return self.method in {"one session", "collectives"}


class Loader(Protocol):
    """Where a trace's frames come from."""

    def load(self, name: str) -> pl.DataFrame:
        """Return the canonical frame `name`, empty when nothing was recorded."""

    def load_samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return the samples of the counters with these exact names."""


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


class _Kept:
    """Values by name, each computed once whichever thread asks first."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._locks: dict[str, threading.RLock] = {}
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, compute: Callable[[], Any]) -> tuple[Any, bool]:
        """Return a value and whether it is new; views form no circle to wait in."""
        with self._lock:
            if name in self._values:
                return self._values[name], False
            lock = self._locks.setdefault(name, threading.RLock())
        with lock:
            if name in self._values:
                return self._values[name], False
            value = compute()
            with self._lock:
                self._values[name] = value
            return value, True

    def keep(self, wanted: Callable[[str, Any], bool]) -> None:
        """Let go of all others."""
        with self._lock:
            for name in [n for n, value in self._values.items() if not wanted(n, value)]:
                del self._values[name]


class _Store:
    """What all narrowed twins of a trace share.

    Attributes:
        frames: By catalog name, or `SAMPLES` and counters.
        views: Values by the name of the view.
        plan: See `Trace.expect`; None keeps everything.
    """

    def __init__(self) -> None:
        self.frames, self.views = _Kept(), _Kept()
        self.plan: dict[str, tuple[tuple[View[Any], ...], tuple[str, ...]]] | None = None

    def needed(self) -> dict[str, View[Any]]:
        """The views that are asked for or have to be computed for those, by name."""
        found: dict[str, View[Any]] = {}
        todo = [one for views, _ in list((self.plan or {}).values()) for one in views]
        while todo:
            one = todo.pop()
            if one.name not in found:
                found[one.name] = one
                todo += () if one.name in self.views else one.of
        return found

    def tidy(self) -> None:
        """Let go of what nothing in the plan needs any more."""
        if self.plan is None:
            return
        needed = self.needed()
        read = {table for _, tables in list(self.plan.values()) for table in tables}
        read.update(*(one.tables for one in needed.values() if one.name not in self.views))
        self.views.keep(lambda name, _: name in needed)
        self.frames.keep(lambda name, rows: name.split(":")[0] in read or rows.height < SMALL_ROWS)


_SAMPLES = "gpu_metrics:"
"""Begins the names under which samples are kept."""
SMALL_ROWS = 10_000
"""Frames of fewer rows are never let go of."""


class Trace:
    """The canonical frames of one run.

    Args:
        loader: Where frames come from.
        reports: The input files.
        gpus: Physical GPUs; position = ``gpu`` column.
        alignment: One entry a report.
        allowed: Tables that may be read; None for all.
    """

    def __init__(
        self,
        loader: Loader,
        reports: tuple[Report, ...],
        gpus: tuple[Gpu, ...] = (),
        alignment: tuple[Alignment, ...] = (),
        *,
        allowed: frozenset[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._loader = loader
        self.reports = reports
        self.gpus = gpus
        self.alignment = alignment or tuple(
            Alignment(r.index, 0, None, 0, "one session") for r in reports[:1]
        )
        self.settings: Mapping[str, Any] = settings or {}
        self._allowed = allowed
        self._store = _Store()

    def has(self, name: str) -> bool:
        """Return whether any report holds at least one row of table `name`."""
        self._check(name)
        return any(r.tables.get(name, 0) > 0 for r in self.reports)

    def frame(self, name: str) -> pl.DataFrame:
        """Return the canonical frame `name` (see `CATALOG` for its columns), sorted as recorded.

        Raises:
            UndeclaredTableError: This trace is narrowed to other tables.
        """
        self._check(name)
        load = self._loader.load
        found, _ = self._store.frames.get(name, lambda: CATALOG[name].table.check(load(name)))
        return cast("pl.DataFrame", found)

    def samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return sampled counters.

        Args:
            metrics: Exact names, unit in brackets included.

        Returns:
            Frame of (report UInt16, gpu Int16, name String, t_ns Int64, value Int64) sorted by
            gpu, name, t_ns; only those counters are read from the file.
        """
        self._check("gpu_metrics")
        names = sorted(metrics)
        key = _SAMPLES + "|".join(names)
        found, _ = self._store.frames.get(key, lambda: self._loader.load_samples(names))
        return cast("pl.DataFrame", found)

    def view(self, which: View[T]) -> T:
        """Return the value of a view, computed on first use.

        Raises:
            UndeclaredTableError: The view reads tables that this trace is not narrowed to.
        """
        if self._allowed is not None and not which.uses <= self._allowed:
            message = f"{which.name} reads undeclared tables {sorted(which.uses - self._allowed)}"
            raise UndeclaredTableError(message)
        compute = which.compute
        found, is_new = self._store.views.get(
            which.name, lambda: compute(self._narrowed(which.uses))
        )
        if is_new:
            self._store.tidy()
        return cast("T", found)

    def expect(self, plan: Mapping[str, tuple[Iterable[View[Any]], Iterable[str]]]) -> None:
        """Keep from now on only what is still needed for a plan.

        Values are let go of once nothing that is still to be computed calls them. What is asked
        for all the same is read or computed again.

        Args:
            plan: Views and tables that will be asked for, by the name under which `done` says that
                they were.
        """
        self._store.plan = {n: (tuple(views), tuple(own)) for n, (views, own) in plan.items()}

    def digest(self, *tables: str) -> None:
        """Compute the planned views that read one of `tables` themselves, so that those can go."""
        needed = sorted(self._store.needed().values(), key=lambda one: one.name)
        for one in needed:
            if one.tables.intersection(tables):
                self.view(one)

    def done(self, name: str) -> None:
        """Say that the views of one part of the plan will not be asked for again."""
        if self._store.plan is not None:
            self._store.plan.pop(name, None)
            self._store.tidy()

    def narrow(self, tables: Iterable[str]) -> Trace:
        """Return a trace of the same data on which only `tables` can be read."""
        return self._narrowed(frozenset(tables))

    def _narrowed(self, tables: frozenset[str]) -> Trace:
        twin = Trace(
            self._loader,
            self.reports,
            self.gpus,
            self.alignment,
            allowed=tables,
            settings=self.settings,
        )
        twin._store = self._store
        return twin

    def _check(self, name: str) -> None:
        if name not in CATALOG:
            message = f"no table {name} in the catalog"
            raise UndeclaredTableError(message)
        if self._allowed is not None and name not in self._allowed:
            message = f"table {name} is not declared"
            raise UndeclaredTableError(message)
