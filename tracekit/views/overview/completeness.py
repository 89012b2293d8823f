"""What a capture lacks: device records, work to speak of, the end of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tracekit.model.kernels import ApiKind
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, activity_span
from tracekit.views.launches.call_names import call_names
from tracekit.views.launches.unseen import UnseenWork, unseen_work
from tracekit.wording.numbers import duration

__all__ = ["Capture", "capture", "capture_lines", "incompleteness", "lost_records"]

_LOST_FROM_FRAC, _LOST_FROM = 0.1, 3
"""Share and number of calls without a device record from which records must have been lost."""
_EMPTY_BELOW_FRAC, _EMPTY_ROWS = 1e-3, 10
_MOSTLY = 0.5
_SILENT_FROM_NS = 1_000_000_000
_WORDS = {
    ApiKind.GRAPH_LAUNCH: ("graph launch", "graph launches"),
    ApiKind.KERNEL_LAUNCH: ("kernel launch", "kernel launches"),
    ApiKind.MEMCPY: ("copy", "copies"),
}


class Capture(NamedTuple):
    """The capture as a whole.

    Attributes:
        length_ns: How long it lasted; None when the file does not say.
        work: First start and last end of device work, ns; None without any.
        n_work: Device rows.
        work_ns: Summed durations of device work.
        last_ns: Last moment of any host call or device work, ns; None without any.
        longest: Name, start and end of the longest host call, ns; None without calls.
    """

    length_ns: int | None
    work: tuple[int, int] | None
    n_work: int
    work_ns: int
    last_ns: int | None
    longest: tuple[str, int, int] | None

    @property
    def is_nearly_empty(self) -> bool:
        """Whether there is no device work to speak of in a capture of known length."""
        if self.length_ns is None or not 0 < self.n_work <= _EMPTY_ROWS:
            return False
        return self.work_ns < _EMPTY_BELOW_FRAC * self.length_ns

    @property
    def waited_ns(self) -> int:
        """Part of the longest host call after the last device work, ns; 0 where it is no matter."""
        if self.length_ns is None or self.longest is None:
            return 0
        _, start, end = self.longest
        alone = end - max(start, self.work[1] if self.work else 0)
        return alone if alone >= _MOSTLY * self.length_ns else 0

    @property
    def silent_ns(self) -> int:
        """Time after the last call and the last device work, ns; 0 where it is no matter."""
        if self.length_ns is None or self.last_ns is None:
            return 0
        silent = self.length_ns - self.last_ns
        return silent if silent >= max(_MOSTLY * self.length_ns, _SILENT_FROM_NS) else 0


@view
def capture(trace: Trace) -> Capture:
    """Return what the capture holds in all."""
    lengths = [r.duration_ns for r in trace.reports if r.duration_ns is not None]
    work, calls = activity(trace), trace.frame("runtime")
    span = activity_span(trace)
    ends = [e for e in (calls["end_ns"].max(), None if span is None else span[1]) if e is not None]
    names = call_names(trace)
    longest = None
    at = (calls["end_ns"] - calls["start_ns"]).arg_max()
    if at is not None:
        name_id, start, end = calls.select("name_id", "start_ns", "end_ns").row(at)
        named = dict(zip(names.name_id, names.name, strict=True))
        longest = (named.get(name_id, "") or "an unnamed call", start, end)
    return Capture(
        length_ns=max(lengths, default=None),
        work=span,
        n_work=work.height,
        work_ns=int((work["end_ns"] - work["start_ns"]).sum()),
        last_ns=max((int(str(e)) for e in ends), default=None),
        longest=longest,
    )


@view
def incompleteness(trace: Trace) -> str:
    """Return why the device activity cannot be complete, "" where nothing says so."""
    found = unseen_work(trace)
    if found is None or activity(trace).is_empty():
        return ""
    lost = {
        kind: n
        for kind, n in found.unseen.items()
        if n >= max(_LOST_FROM, _LOST_FROM_FRAC * found.calls[kind])
    }
    if not lost:
        return ""
    parts = [f"{n:,} of {found.calls[kind]:,} {_WORDS[kind][1]}" for kind, n in lost.items()]
    return f"device activity incomplete: {' and '.join(parts)} without device rows"


def lost_records(found: UnseenWork | None) -> str:
    """Return what was called where no device record exists at all, "" where nothing was."""
    if found is None or not any(found.unseen.values()):
        return ""
    launches = sum(found.unseen.get(k, 0) for k in (ApiKind.KERNEL_LAUNCH, ApiKind.GRAPH_LAUNCH))
    parts = [] if not launches else [f"{launches:,} kernel launch{'es' * (launches != 1)}"]
    copies, time_ns = found.unseen.get(ApiKind.MEMCPY, 0), found.time_ns.get(ApiKind.MEMCPY, 0)
    if copies:
        word = _WORDS[ApiKind.MEMCPY][copies != 1]
        parts.append(f"{copies:,} {word} ({duration(time_ns)} of host time)")
    return " and ".join(parts)


def capture_lines(found: Capture) -> Iterator[str]:
    """Yield what the reader must know of a capture that is mostly something else than work."""
    if found.length_ns is None:
        return
    length = f"a capture of {duration(found.length_ns)}"
    if found.is_nearly_empty:
        yield (
            f"no GPU work to speak of in {duration(found.length_ns)}: {found.n_work} device"
            f" record{'s' * (found.n_work != 1)}, {duration(found.work_ns)} in all"
        )
    if found.longest is not None and found.waited_ns:
        yield (
            f"{duration(found.waited_ns)} of {length} the host is inside one call of"
            f" {found.longest[0]} while the device has nothing to do: it waits for something that"
            " does not come"
        )
    elif found.silent_ns:
        yield (
            f"nothing was recorded in the last {duration(found.silent_ns)} of {length}: the work"
            " had ended, or a call never returned"
        )
