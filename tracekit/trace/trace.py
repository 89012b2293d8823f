"""`Trace`: the canonical frames of one or several reports, and the views computed from them.

A trace hands out frames by catalog name, reading each at most once, and *views*: functions
``Trace -> T`` whose result is kept, so that two analyses that need the same join share it. A view
states the tables and views it reads; `Trace.narrow` gives an analysis a trace on which no table
that it did not declare can be read, so no result depends on what ran before, and `Trace.expect`
makes it let go of what nothing to come will ask for. A trace may be used from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from time import perf_counter
from typing import Any, Protocol, TypeVar, cast

import polars as pl

from tracekit.model.catalog import CATALOG
from tracekit.model.inputs import Alignment, Gpu, Report
from tracekit.trace.views import SAMPLES, SMALL_ROWS, Store, UndeclaredTableError, View

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
    """

    def __init__(
        self,
        loader: Loader,
        reports: tuple[Report, ...],
        gpus: tuple[Gpu, ...] | Callable[[], tuple[Gpu, ...]] = (),
        alignment: tuple[Alignment, ...] = (),
        *,
        allowed: frozenset[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._loader = loader
        self.reports = reports
        self._gpus = gpus if callable(gpus) else lambda: gpus
        self.alignment = alignment or tuple(
            Alignment(r.index, 0, None, 0, "one session") for r in reports[:1]
        )
        self.settings: Mapping[str, Any] = settings or {}
        self._allowed = allowed
        self._store = Store()

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
        table, load = CATALOG[name].table, self._loader.load
        found, _ = self._store.frames.get(
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
        load = self._loader.load_samples
        found, _ = self._store.frames.get(
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

    def ahead(self, which: View[Any]) -> None:
        """Compute a view now if it is planned."""
        if which.name in self._store.needed():
            self.view(which)

    def digest(self, table: str) -> None:
        """Compute the planned views that read a table themselves, so that it can go."""
        needed = sorted(self._store.needed().values(), key=lambda one: one.name)
        for one in needed:
            if table in one.tables:
                self.view(one)

    def progress(self, tell: Callable[[str], None]) -> None:
        """Have somebody told how many rows of a table were read, and how fast."""
        self._store.tell = tell

    def _timed(self, name: str, load: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        begun = perf_counter()
        frame = load()
        if frame.height >= SMALL_ROWS:
            rate = frame.height / max(perf_counter() - begun, 1e-9)
            self._store.tell(f"{frame.height:,} rows of {name} read, {rate / 1e6:.1f}M rows/s")
        return frame

    def stop(self) -> None:
        """Compute and read nothing more: whoever asks for something new gets a `StoppedError`."""
        self._store.stopped.set()

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
            self._gpus,
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
