"""Opening one run: its files, one clock, the part of it that fits into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import polars as pl

from tracekit.errors import EmptyWindowError, UsageError
from tracekit.io.run.inputs import open_run
from tracekit.io.run.loader import default_bytes, plan_memory
from tracekit.io.run.run import Run
from tracekit.io.source import Reader
from tracekit.model.inputs import MemoryPlan
from tracekit.trace import Trace
from tracekit.trace.params import Settings
from tracekit.views.device.activity import activity
from tracekit.views.nvtx.ranges import ranges

__all__ = ["OpenOptions", "Paths", "Redact", "as_paths", "open_trace"]

Redact = Literal["no", "yes", "keep nvtx"]
Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""One report or folder of reports, or several."""


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """How a run is opened.

    Attributes:
        window_ns: Half-open session time that events must touch; None for all.
        reader: How tables are read: "auto", "pages" or "sqlite"; the answer is the same.
        salvage: Leave damaged tables out instead of refusing the file.
        redact: "yes" lets only text pass that is known to be harmless, "keep nvtx" the program's
            own NVTX text too.
        memory_bytes: Memory that the run may take; None for half of what is free. A run that
            needs more is worked on one table and one analysis at a time; if that is not enough
            and there is no window, it is cut to its longest beginning that fits, and the answer
            says so.
        settings: Settings that every analysis shares.

    Raises:
        UsageError: The window ends before it starts, or `redact` is none of its words.
    """

    window_ns: tuple[int, int] | None = None
    reader: Reader = "auto"
    salvage: bool = False
    redact: Redact = "no"
    memory_bytes: int | None = None
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        """Refuse what could be misread.

        Raises:
            UsageError: See the class.
        """
        if self.window_ns is not None and self.window_ns[1] <= self.window_ns[0]:
            message = f"window {self.window_ns[0]} to {self.window_ns[1]} ns ends before it starts"
            raise UsageError(message)
        if self.redact not in get_args(Redact):
            message = f"redact is one of {', '.join(get_args(Redact))}, not {self.redact!r}"
            raise UsageError(message)


def as_paths(paths: Paths) -> tuple[Path, ...]:
    """Return one path or several as a tuple."""
    several = (paths,) if isinstance(paths, str | os.PathLike) else paths
    return tuple(Path(one) for one in several)


@contextmanager
def open_trace(paths: Paths, *, options: OpenOptions = OpenOptions()) -> Iterator[Trace]:
    """Open one or several reports as one run.

    Args:
        paths: Reports, folders of reports, raw pages of Nsight Compute; one or several.
        options: How.

    Yields:
        The trace, its clocks aligned; `Trace.unreadable` are the inputs that could not be used.

    Raises:
        InputError: No input can be used, or one capture was given twice.
        EmptyWindowError: The window holds no event.
        UsageError: No path was given.
    """
    given = as_paths(paths)
    if not given:
        message = "no report was given"
        raise UsageError(message)
    with ExitStack() as stack:
        run = open_run(given, stack, reader=options.reader, salvage=options.salvage)
        run = _aligned(run, options.settings)
        allowed = default_bytes() if options.memory_bytes is None else options.memory_bytes
        may_cut = options.window_ns is None
        memory = plan_memory(run.readers, run.offsets_ns, allowed, may_cut=may_cut)
        run = replace(run, window_ns=options.window_ns or memory.cut_ns)
        trace = _trace(run, options.settings, memory)
        if options.redact != "no":
            trace = _redacted(trace, keep_nvtx=options.redact == "keep nvtx")
        if options.window_ns is not None and run.readers:
            _check_window(trace, run, options.window_ns)
        yield trace


def _trace(run: Run, settings: Settings, memory: MemoryPlan) -> Trace:
    loader = run.loader(memory)
    return Trace(
        loader,
        run.reports,
        loader.gpus,
        run.alignment,
        settings=settings,
        unreadable=run.unreadable,
        memory=memory,
        window_ns=run.window_ns,
    )


def _aligned(run: Run, settings: Settings) -> Run:
    """The run with the clocks of its reports brought together."""
    if len(run.readers) < 2:
        return run
    from tracekit.views.collectives.alignment import align  # several reports are the rare case

    alone = (_trace(Run((reader,)), settings, MemoryPlan()) for reader in run.readers)
    return replace(run, alignment=align(tuple(alone)))


def _redacted(trace: Trace, *, keep_nvtx: bool) -> Trace:
    from tracekit.io.run.redaction import RedactedLoader, redacted_gpu, redacted_report

    unreadable = {f"input-{i}": "could not be used" for i in range(len(trace.unreadable))}
    return trace.loaded_by(
        RedactedLoader(trace.loader, keep_nvtx=keep_nvtx),
        reports=tuple(redacted_report(r) for r in trace.reports),
        gpus=lambda: tuple(redacted_gpu(g) for g in trace.gpus),
        unreadable=unreadable,
    )


def _check_window(trace: Trace, run: Run, window_ns: tuple[int, int]) -> None:
    touching = (pl.col("start_ns") < window_ns[1]) & (pl.col("end_ns") > window_ns[0])
    if trace.view(activity).height or trace.view(ranges).filter(touching).height:
        return
    span_ns = run.span_ns()
    if span_ns is None:
        message = "window has no events; the capture has none at all"
        raise EmptyWindowError(message)
    message = (
        f"window {window_ns[0] / 1e9:.3f}-{window_ns[1] / 1e9:.3f} s has no events;"
        f" capture covers {span_ns[0] / 1e9:.6f}-{span_ns[1] / 1e9:.6f} s"
    )
    raise EmptyWindowError(message)
