"""`Trace`: the canonical frames of one or several reports, and the views computed from them.

A trace hands out frames by catalog name, reading each at most once, and *views*: functions
``Trace -> T`` whose result is kept, so that two analyses that need the same join share it. Which
tables and views a view reads is known from its code; `Trace.narrow` gives an analysis a trace on
which no other table can be read, so no result depends on what ran before, and `Trace.plan` makes
it evict what nothing to come will need. A trace may be used from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from time import perf_counter
from typing import Any, Protocol, TypeVar, cast

import polars as pl

from tracekit.model.catalog import CATALOG
from tracekit.model.inputs import Alignment, Gpu, MemoryPlan, Report
from tracekit.trace.params import Settings
from tracekit.trace.views import SAMPLES, SMALL_ROWS, TraceCache, UndeclaredTableError, View

__all__ = ["Loader", "Trace"]

T = TypeVar("T")


class Loader(Protocol):
    """Where a trace's frames come from."""

    def load(self, name: str) -> pl.DataFrame:
        """Return the canonical frame `name`, empty when nothing was recorded."""

    def load_samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return the samples of the counters with these exact names."""


class Trace:
    """The canonical frames of one run.

    Args:
        loader: Where frames come from.
        reports: The input files.
        gpus: Physical GPUs; position = ``gpu`` column. Or what gives them: some are known only
            once their work was read.
        alignment: One entry a report.
        allowed: Tables that may be read; None for all.
        settings: Settings that every analysis shares.
        unreadable: Inputs that could not be used: name to reason.
        memory: How the run is brought into its memory budget.
        window_ns: Half-open session time that events touch; None for all of it.
    """

    def __init__(
        self,
        loader: Loader,
        reports: tuple[Report, ...],
        gpus: tuple[Gpu, ...] | Callable[[], tuple[Gpu, ...]] = (),
        alignment: tuple[Alignment, ...] = (),
        *,
        allowed: frozenset[str] | None = None,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        unreadable: Mapping[str, str] | None = None,
        memory: MemoryPlan = MemoryPlan(),  # noqa: B008 - frozen
        window_ns: tuple[int, int] | None = None,
    ) -> None:
        self.loader = loader
        self.reports = reports
        self._gpus = gpus if callable(gpus) else lambda: gpus
        self.alignment = alignment or tuple(
            Alignment(r.index, 0, None, 0, "one session") for r in reports[:1]
        )
        self.settings = settings
        self.unreadable: Mapping[str, str] = unreadable or {}
        self.memory = memory
        self.window_ns = window_ns
        self._allowed = allowed
        self._cache = TraceCache()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The physical GPUs; position = ``gpu`` column."""
        return self._gpus()

    def has(self, name: str) -> bool:
        """Return whether any report holds a row of table `name`, declared or not."""
        return any(r.tables.get(name, 0) > 0 for r in self.reports)

    def frame(self, name: str) -> pl.DataFrame:
        """Return the canonical frame `name` (see `CATALOG` for its columns), sorted as recorded.

        Raises:
            UndeclaredTableError: This trace is narrowed to other tables.
        """
        self._check(name)
        table, load = CATALOG[name].table, self.loader.load
        found, _ = self._cache.frames.get(
            name, lambda: self._timed(name, lambda: table.check(load(name)))
        )
        return cast("pl.DataFrame", found)

    def samples(self, metrics: Collection[str]) -> pl.DataFrame:
        """Return sampled counters.

        Args:
            metrics: Exact names, unit in brackets included.

        Returns:
            Frame of (report UInt16, gpu Int16, name Enum of `metrics` in order, t_ns Int64, value
            Int64) sorted by gpu, name, t_ns; only those counters are read from the file.
        """
        self._check("gpu_metrics")
        names = sorted(metrics)
        key = SAMPLES + "|".join(names)
        load = self.loader.load_samples
        found, _ = self._cache.frames.get(
            key, lambda: self._timed("gpu_metrics", lambda: load(names))
        )
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
        found, is_new = self._cache.views.get(
            which.name, lambda: compute(self._narrowed(which.uses))
        )
        if is_new:
            self._cache.evict()
        return cast("T", found)

    def plan(self, parts: Mapping[str, tuple[Iterable[View[Any]], Iterable[str]]]) -> None:
        """Keep from now on only what a plan still needs.

        Values are evicted once nothing that is still to be computed calls them. A value that is
        needed all the same is read or computed again.

        Args:
            parts: Views and tables that will be needed, by a name for `finish`.
        """
        self._cache.plan = {n: (tuple(views), tuple(own)) for n, (views, own) in parts.items()}

    def finish(self, part: str) -> None:
        """Drop one part from the plan, and evict what only it needed."""
        if self._cache.plan is not None:
            self._cache.plan.pop(part, None)
            self._cache.evict()

    def prefetch(self, which: View[Any]) -> None:
        """Compute a view now if it is planned."""
        if which.name in self._cache.needed():
            self.view(which)

    def compute_readers_of(self, table: str) -> None:
        """Compute the planned views that read a table themselves, so that it can be evicted."""
        needed = sorted(self._cache.needed().values(), key=lambda one: one.name)
        for one in needed:
            if table in one.tables:
                self.view(one)

    def report_progress(self, progress: Callable[[str], None]) -> None:
        """Call `progress` with how many rows of a table were read, and how fast, from now on."""
        self._cache.progress = progress

    def _timed(self, name: str, load: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        begun = perf_counter()
        frame = load()
        if frame.height >= SMALL_ROWS:
            rate = frame.height / max(perf_counter() - begun, 1e-9)
            self._cache.progress(f"{frame.height:,} rows of {name} read, {rate / 1e6:.1f}M rows/s")
        return frame

    def stop(self) -> None:
        """Compute and read nothing more: from now on anything new raises a `StoppedError`."""
        self._cache.stopped.set()

    def narrow(self, tables: Iterable[str]) -> Trace:
        """Return a trace of the same data on which only `tables` can be read."""
        return self._narrowed(frozenset(tables))

    def _narrowed(self, tables: frozenset[str]) -> Trace:
        twin = copy(self)
        twin._allowed = tables
        return twin

    def loaded_by(
        self,
        loader: Loader,
        reports: tuple[Report, ...] | None = None,
        gpus: Callable[[], tuple[Gpu, ...]] | None = None,
        unreadable: Mapping[str, str] | None = None,
    ) -> Trace:
        """Return a trace of the same run whose frames come from another loader.

        Args:
            loader: Where frames come from.
            reports: Another description of the input files, None for the same.
            gpus: What gives another description of the GPUs, None for the same.
            unreadable: Other names for the inputs that could not be used, None for the same.
        """
        twin = copy(self)
        twin.loader = loader
        twin.reports = self.reports if reports is None else reports
        twin._gpus = self._gpus if gpus is None else gpus
        twin.unreadable = self.unreadable if unreadable is None else unreadable
        twin._cache = TraceCache()
        return twin

    def _check(self, name: str) -> None:
        if name not in CATALOG:
            message = f"no table {name} in the catalog"
            raise UndeclaredTableError(message)
        if self._allowed is not None and name not in self._allowed:
            message = f"table {name} is not declared"
            raise UndeclaredTableError(message)
