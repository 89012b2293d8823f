"""Which part of a trace goes into a bundle, and whether it says the same alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit import engine
from tracekit.bundle.archive import BAD, WORTH_SLICE, Part
from tracekit.bundle.export import Frames, Window, cut, n_events, write_slice
from tracekit.bundle.readme import Compared, Repeated, SliceNote
from tracekit.errors import EmptyWindowError, InputError
from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Finding, Metric
from tracekit.trace import Trace
from tracekit.views.device.activity import activity_span
from tracekit.wording.numbers import duration, size

__all__ = ["Slicer", "repeated"]

_WIDER = 8
"""Factor between the windows that are tried."""
_LEAST_ROW_BYTES = 2
"""No event takes less in an archive: what cannot fit need not be written first."""
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
        notify: Called with what is being done.
    """

    trace: Trace
    diagnosis: Diagnosis
    counters: frozenset[str]
    params: Mapping[str, str]
    max_bytes: int
    notify: Callable[[str], None]

    def asked(self, window: Window) -> tuple[tuple[Part, ...], SliceNote]:
        """Return the slices of a window that the user chose.

        Raises:
            EmptyWindowError: The window holds no event.
        """
        found = self._cut(window)
        if found is None:
            remark = f"What {_length(window)} hold does not fit into {size(self.max_bytes)}."
            return (), SliceNote(window, 0, remark=remark)
        parts, n_rows = found
        if not n_rows:
            message = "--window holds no event"
            raise EmptyWindowError(message, hint="tracekit info shows when the device was active")
        return parts, SliceNote(window, n_rows)

    def worst(self) -> tuple[tuple[Part, ...], SliceNote]:
        """Return the smallest slices tried that alone give every bad finding of the run.

        The worst window is widened step by step, because a finding rests on comparisons with what
        happened outside of it. Where all findings would need more than fits, the smallest slices
        that give the worst one are returned, else the widest that fit; the note says which.
        """
        bad = [f for f in self.diagnosis.findings if f.level in BAD]
        tried: list[tuple[tuple[Part, ...], SliceNote]] = []
        for window in self._windows(bad):
            self.notify(f"slice of {'everything' if window is None else _length(window)}")
            found = self._cut(window)
            if found is None:
                break
            parts, n_rows = found
            repeated = self._repeated(bad, parts)
            remark = "" if bad else "No finding is bad, so there was no window to cut out."
            tried.append((parts, SliceNote(window, n_rows, repeated, remark)))
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

    def _cut(self, window: Window | None) -> tuple[tuple[Part, ...], int] | None:
        """Return the slices of a window and their events; None when they are too large."""
        indices = [r.index for r in self.trace.reports if r.has_timeline]
        frames = {i: cut(self.trace, i, window, self.counters) for i in indices}
        n_rows = sum(n_events(f) for f in frames.values())
        if n_rows * _LEAST_ROW_BYTES > self.max_bytes:
            return None
        parts = tuple(self._part(i, f, window) for i, f in frames.items())
        packed = sum(p.packed_bytes for p in parts)
        return (parts, n_rows) if packed <= self.max_bytes else None

    def _part(self, index: int, frames: Frames, window: Window | None) -> Part:
        several = sum(r.has_timeline for r in self.trace.reports) > 1
        name = f"slice-{index}.sqlite" if several else "slice.sqlite"
        with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
            path = Path(folder) / name
            write_slice(self.trace, index, frames, path, window=window)
            content = path.read_bytes()
        about = f"slice of REPORT{index} that tracekit analyze reads"
        return Part(name, content, about, WORTH_SLICE)

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
    return duration(window[1] - window[0])
