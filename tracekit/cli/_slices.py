"""Which part of a trace goes into a bundle, and whether it says the same alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit import engine
from tracekit.errors import InputError
from tracekit.io.slice import write_slice
from tracekit.model.analysis import Finding, Level, Metric
from tracekit.model.diagnosis import Diagnosis
from tracekit.model.trace import Trace
from tracekit.report.bundle import WORTH_SLICE, Part
from tracekit.report.bundle_readme import Compared, Repeated, SliceNote
from tracekit.report.units import size
from tracekit.views.activity import activity_span

__all__ = ["Slicer", "repeated"]

Window = tuple[int, int]
_WIDER = 8
"""Factor between the windows that are tried."""
_CLOSE = 0.1
"""How far a number without an interval may be off."""


@dataclass(frozen=True)
class Slicer:
    """Cuts slices of one run.

    Attributes:
        trace: The anonymous trace.
        diagnosis: What was found in it.
        counters: Counters that the analyses read.
        params: Parameters that the user gave.
        max_bytes: What the slices may take in the archive.
        tell: Told what is being done.
    """

    trace: Trace
    diagnosis: Diagnosis
    counters: frozenset[str]
    params: Mapping[str, str]
    max_bytes: int
    tell: Callable[[str], None]

    def asked(self, window: Window) -> tuple[tuple[Part, ...], SliceNote]:
        """Return the slices of a window that the user chose.

        Raises:
            InputError: The window holds no event.
        """
        parts, n_rows = self._cut(window)
        if not n_rows:
            message = "--window: holds no event"
            raise InputError(message, hint="tracekit info REPORT shows when the device was active")
        return parts, SliceNote(window, n_rows)

    def worst(self) -> tuple[tuple[Part, ...], SliceNote]:
        """Return the smallest slices tried that alone give every bad finding of the run.

        The worst window is widened step by step, because a finding rests on comparisons with what
        happened outside of it. Where all findings would need more than fits, the smallest slices
        that give the worst one are returned, else the widest that fit; the note says which.
        """
        bad = [f for f in self.diagnosis.findings if f.level in (Level.CRITICAL, Level.WARN)]
        tried: list[tuple[tuple[Part, ...], SliceNote]] = []
        for window in self._windows(bad):
            self.tell(f"slice of {'everything' if window is None else _length(window)}")
            parts, n_rows = self._cut(window)
            if sum(p.packed_bytes for p in parts) > self.max_bytes:
                break
            repeated = self._repeated(bad, parts)
            tried.append((parts, SliceNote(window, n_rows, repeated)))
            if all(r.agrees for r in repeated):
                return tried[-1]
        if not tried:
            remark = f"Not even the shortest slice fits into {size(self.max_bytes)}."
            return (), SliceNote(None, 0, remark=remark)
        return next((t for t in tried if t[1].repeated[0].agrees), tried[-1])

    def _windows(self, bad: Sequence[Finding]) -> Iterator[Window | None]:
        """Windows around the worst one, each wider than the one before, then everything."""
        worst = next((f.t_range_ns for f in bad if f.t_range_ns is not None), None)
        span = self.trace.view(activity_span)
        if worst is not None and span is not None:
            start, end = worst
            middle, width = (start + end) // 2, max(end - start, 1)
            while width < span[1] - span[0]:
                low = max(span[0], min(middle - width // 2, span[1] - width))
                yield low, low + width
                width *= _WIDER
        yield None

    def _cut(self, window: Window | None) -> tuple[tuple[Part, ...], int]:
        parts, n_rows = [], 0
        several = len(self.trace.reports) > 1
        with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
            for report in self.trace.reports:
                name = f"slice-{report.index}.sqlite" if several else "slice.sqlite"
                path = Path(folder) / name
                n_rows += write_slice(
                    self.trace, report.index, path, window=window, counters=self.counters
                )
                about = f"slice of REPORT{report.index} that tracekit analyze reads"
                parts.append(Part(name, path.read_bytes(), about, WORTH_SLICE))
        return tuple(parts), n_rows

    def _repeated(self, bad: Sequence[Finding], parts: Sequence[Part]) -> tuple[Repeated, ...]:
        """Analyse slices alone and put the numbers side by side."""
        only = sorted({f.id.partition("/")[0] for f in bad})
        if not only:
            return ()
        with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
            paths = [Path(folder) / p.name for p in parts]
            for path, part in zip(paths, parts, strict=True):
                path.write_bytes(part.content)
            try:
                alone = engine.analyze(paths, only=only, params=self.params).findings
            except InputError:  # too short to hold any event
                alone = ()
        twins = {f.id: f for f in alone}
        return tuple(repeated(f, twins.get(f.id)) for f in bad)


def repeated(finding: Finding, twin: Finding | None) -> Repeated:
    """Put the numbers of a finding and of its twin side by side.

    Args:
        finding: The finding in the run.
        twin: The finding of that id in the slices, if there is one.

    Returns:
        Every number with an interval, or the first number where none has one.
    """
    numbers = [m for m in finding.metrics if isinstance(m.value, int | float)]
    chosen = [m for m in numbers if m.lo is not None and m.hi is not None] or numbers[:1]
    values = {m.name: m.value for m in twin.metrics} if twin else {}
    rows = tuple(_compared(metric, values.get(metric.name)) for metric in chosen)
    agrees = twin is not None and all(r.agrees for r in rows)
    return Repeated(finding.id, finding.title, rows, agrees)


def _compared(metric: Metric, alone: float | int | str | None) -> Compared:
    whole = float(metric.value or 0)
    found = float(alone) if isinstance(alone, int | float) else None
    reach = _CLOSE * abs(whole)
    low = metric.lo if metric.lo is not None else whole - reach
    high = metric.hi if metric.hi is not None else whole + reach
    agrees = found is not None and low <= found <= high
    return Compared(metric.name, metric.unit, whole, metric.lo, metric.hi, found, agrees)


def _length(window: Window) -> str:
    from tracekit.report.units import duration

    return duration(window[1] - window[0])
