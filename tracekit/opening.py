"""Opening one run: its files, one clock, the part of it that fits into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tracekit.errors import EmptyWindowError
from tracekit.io.run.inputs import Inputs, open_inputs
from tracekit.io.run.loader import RunLoader, default_bytes, fit
from tracekit.io.source import Reader
from tracekit.model.inputs import Alignment
from tracekit.trace import Trace
from tracekit.views.device.activity import activity
from tracekit.views.nvtx.ranges import ranges

__all__ = ["Redact", "open_trace"]

Redact = Literal["no", "yes", "keep nvtx"]


@contextmanager
def open_trace(
    paths: Sequence[Path],
    *,
    window: tuple[int, int] | None = None,
    reader: Reader = "auto",
    salvage: bool = False,
    redact: Redact = "no",
    memory_bytes: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Trace, Inputs]]:
    """Open one or several reports as one run.

    Args:
        paths: Reports, folders of reports, raw pages of Nsight Compute.
        window: Half-open session time in ns that events must touch; None for all.
        reader: How tables are read.
        salvage: Leave damaged tables out instead of refusing the file.
        redact: "yes" lets only text pass that is known to be harmless, "keep nvtx" the program's
            own NVTX text too.
        memory_bytes: Memory that the run may take; None for half of what is free. A run that
            needs more is worked on one table and one analysis at a time; if that is not enough
            and there is no `window`, it is cut to its longest beginning that fits.
        settings: Global settings, see `tracekit.settings`.

    Yields:
        The trace, its clocks aligned, and the inputs with those that could not be used.

    Raises:
        InputError: No input can be used, or one capture was given twice.
        EmptyWindowError: The window holds no event.
    """
    with ExitStack() as stack:
        inputs = open_inputs(paths, stack, reader=reader, salvage=salvage)
        readers = inputs.readers
        counted = tuple(one.report(i) for i, one in enumerate(inputs.ncu, len(readers)))
        reports = (*(r.report for r in readers), *counted)
        offsets = [0] * len(readers)
        alignment: tuple[Alignment, ...] = ()
        if len(readers) > 1:
            alignment = _aligned(inputs, settings)
            offsets = [a.offset_ns for a in alignment]
        allowed = default_bytes() if memory_bytes is None else memory_bytes
        fits = fit(readers, offsets, allowed, may_cut=window is None)
        known = {**(settings or {}), "at_once": fits.at_once}
        if window is not None or fits.window_ns is not None:
            known["window_ns"] = window or fits.window_ns
        if fits.window_ns is not None:
            known["cut"] = (*fits.window_ns, allowed)
        loader = RunLoader(
            readers, offsets, window or fits.window_ns, inputs.ncu, by_device=fits.by_device
        )
        trace = Trace(loader, reports, loader.gpus, alignment, settings=known)
        if redact != "no":
            trace = _redacted(trace, loader, keep_nvtx=redact == "keep nvtx")
            inputs.unreadable = {
                f"input-{i}": "could not be used" for i in range(len(inputs.unreadable))
            }
        if window is not None and readers:
            _check_window(trace, Trace(RunLoader(readers, offsets), reports), window)
        yield trace, inputs


def _redacted(trace: Trace, loader: RunLoader, *, keep_nvtx: bool) -> Trace:
    from tracekit.io.run.redaction import RedactedLoader, redacted_gpu, redacted_report

    return Trace(
        RedactedLoader(loader, keep_nvtx=keep_nvtx),
        tuple(redacted_report(r) for r in trace.reports),
        lambda: tuple(redacted_gpu(g) for g in trace.gpus),
        trace.alignment,
        settings=trace.settings,
    )


def _aligned(inputs: Inputs, settings: Mapping[str, Any] | None) -> tuple[Alignment, ...]:
    from tracekit.views.collectives.alignment import align  # several reports are the rare case

    traces = []
    for reader in inputs.readers:
        alone = RunLoader([reader])
        traces.append(Trace(alone, (reader.report,), alone.gpus, settings=settings))
    return align(traces)


def _check_window(trace: Trace, whole: Trace, window: tuple[int, int]) -> None:
    touching = (pl.col("start_ns") < window[1]) & (pl.col("end_ns") > window[0])
    if trace.view(activity).height or trace.view(ranges).filter(touching).height:
        return
    seen = [f for f in (whole.view(activity), whole.view(ranges)) if f.height]
    if not seen:
        message = "window has no events; the capture has none at all"
        raise EmptyWindowError(message)
    low = min(int(str(f["start_ns"].min())) for f in seen)
    high = max(int(str(f["end_ns"].max())) for f in seen)
    message = (
        f"window {window[0] / 1e9:.3f}-{window[1] / 1e9:.3f} s has no events;"
        f" capture covers {low / 1e9:.6f}-{high / 1e9:.6f} s"
    )
    raise EmptyWindowError(message)
