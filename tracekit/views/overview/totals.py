"""The first lines of every answer: how busy the devices were, with what, and what is hidden."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.model.diagnosis import ClassShare, GpuTime, Overview
from tracekit.model.kernels import ApiKind, KernelKind, api_kind
from tracekit.numerics import intervals
from tracekit.numerics.rows import shares
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.device.activity import OPAQUE, WORK_KIND, activity, clock_spans, queues
from tracekit.views.keys import counted
from tracekit.views.launches.attribution import attribution, steps
from tracekit.views.launches.unseen import unseen_work
from tracekit.views.overview.completeness import (
    capture,
    capture_lines,
    incompleteness,
    lost_records,
)
from tracekit.views.overview.load_phase import load_phase
from tracekit.views.strings import resolved
from tracekit.wording.numbers import share

__all__ = ["launch_counts", "overview"]

_KINDS = WORK_KIND.categories.to_numpy()
_IS_COMM, _IS_OPAQUE = np.isin(_KINDS, ("comm", "custom_comm")), _KINDS == OPAQUE
_COMM_LANE, _OTHER_LANE = 0, 1
_LANE_OF = np.where(_IS_COMM, _COMM_LANE, _OTHER_LANE).astype(np.int32)
IDLE_WORTH_SAYING = 0.5
OPAQUE_WORTH_SAYING = 0.01
UNCLASSIFIED_WORTH_SAYING = 0.10


@view
def launch_counts(trace: Trace) -> dict[ApiKind, int]:
    """Return how many host calls of each kind were recorded; empty when none were."""
    calls = counted(trace.frame("runtime")["name_id"])
    named = resolved(
        calls.with_columns(pl.lit(None, pl.String).alias("name")),
        trace.frame("strings"),
        "name",
        "name_id",
    )
    counts: dict[ApiKind, int] = {}
    for name, n in named.select("name", "len").iter_rows():
        kind = api_kind(name or "")
        counts[kind] = counts.get(kind, 0) + n
    return counts


@view
def overview(trace: Trace) -> Overview:
    """Return the device's time account of the whole trace."""
    work = activity(trace)
    counts = launch_counts(trace)
    classes = _classes(work)
    of_kernels = [c for c in classes if c.kind in set(KernelKind)]
    kernel_ns = sum(c.time_ns for c in of_kernels)
    unclassified_ns = sum(c.time_ns for c in of_kernels if c.kind == KernelKind.UNCLASSIFIED)
    gpus = tuple(each(lambda part: _gpu_time(trace, *part), _by_gpu(work)))
    lengths = clock_spans(trace).select((pl.col("end_ns") - pl.col("start_ns")).max())
    spans = steps(trace).drop_nulls("gpu_start_ns")
    spans = spans.with_columns((pl.col("gpu_end_ns") - pl.col("gpu_start_ns")).alias("span_ns"))
    groups = spans.group_by("group").agg(pl.len(), pl.col("span_ns").median()).sort("group")
    unknown = (attribution(trace)["reason"] == "no_launch_record").sum()
    base = Overview(
        has_device_activity=work.height > 0,
        span_ns=lengths.item(),
        gpus=gpus,
        classes=classes,
        unclassified_frac=unclassified_ns / kernel_ns if kernel_ns else None,
        n_kernels=sum(g.n_kernels for g in gpus),
        n_launches=counts.get(ApiKind.KERNEL_LAUNCH, 0) if trace.has("runtime") else None,
        n_graph_launches=counts.get(ApiKind.GRAPH_LAUNCH, 0),
        n_with_launch=work.height - int(unknown),
        n_steps=steps(trace).height,
        step_groups={g: (n, float(m)) for g, n, m in groups.iter_rows()},
        incomplete=incompleteness(trace),
        capture_ns=capture(trace).length_ns,
        stalled_ns=capture(trace).waited_ns or capture(trace).silent_ns,
        nearly_empty=capture(trace).is_nearly_empty,
    )
    return Overview(**{**vars(base), "perspective": tuple(_perspective(trace, base))})


def _by_gpu(work: pl.DataFrame) -> list[tuple[int | None, pl.DataFrame]]:
    """Slices of `activity`, which is sorted by GPU; an unknown one comes last."""
    if work.is_empty():
        return []
    parts, first = [], 0
    for n, gpu in work["gpu"].rle().struct.unnest().rows():
        parts.append((gpu, work.slice(first, n)))
        first += n
    return sorted(parts, key=lambda part: part[0] is None)


def _gpu_time(trace: Trace, gpu: int | None, work: pl.DataFrame) -> GpuTime:
    """Account of one GPU; what reports without a common clock saw of it is added up."""
    clocks = clock_spans(trace)
    known = queues(trace)
    own = known.filter(pl.col("gpu").eq_missing(pl.lit(gpu, pl.Int16)))["report"].unique()
    parts = []
    for _, part in clocks.group_by("clock", maintain_order=True):
        here = part["report"].implode()
        if not own.is_in(here).any():
            continue
        on_clock = known.select(pl.col("report").is_in(here)).to_series()
        rows = work if clocks["clock"].n_unique() == 1 else work.filter(on_clock[work["queue"]])
        overhead = trace.frame("overhead").filter(pl.col("report").is_in(here))
        span = (int(part["start_ns"][0]), int(part["end_ns"][0]))
        if part.height > 1:
            span = _recorded(trace, set(own.filter(own.is_in(here))), span, rows)
        parts.append(_on_one_clock(rows, overhead, span))
    sums = {name: sum(part[name] for part in parts) for name in parts[0]}
    return GpuTime(gpu=gpu, **sums)


def _recorded(
    trace: Trace, reports: set[int], span: tuple[int, int], work: pl.DataFrame
) -> tuple[int, int]:
    """The part of a span that some reports recorded: before and after, nobody saw their GPU."""
    offsets = {a.report: a.offset_ns for a in trace.alignment}
    first = max(span[0], min(-offsets.get(report, 0) for report in reports))
    last, durations = span[1], {r: trace.reports[r].duration_ns for r in reports}
    ends = [d - offsets.get(r, 0) for r, d in durations.items() if d is not None]
    if len(ends) == len(reports):
        last = min(last, max(ends))
    # Work is proof of a recording.
    begun, done = work.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return min(first, begun), max(last, done)


def _on_one_clock(
    work: pl.DataFrame, overhead: pl.DataFrame, span: tuple[int, int]
) -> dict[str, int]:
    """The fields of `GpuTime` but for the GPU."""
    first, last = span
    starts, ends = (overhead[c].to_numpy() for c in ("start_ns", "end_ns"))
    in_profiler = intervals.intersect(*intervals.union(starts, ends), [first], [last])
    windows = np.append(first, in_profiler[0]), np.append(last, in_profiler[1])
    start, end, queue = (work[c].to_numpy() for c in ("start_ns", "end_ns", "queue"))
    rows = start, end, queue, work["kind"].to_physical().to_numpy()
    of_queues = np.ones((int(queue.max(initial=0)) + 1, 1), np.int32)
    lanes = shares.by_lane(*rows, of_queues * _LANE_OF, windows)
    busy_ns, hidden_ns = int(lanes[-1, 0]), int(lanes[-1, 1:].sum())
    opaque = int((work["source"] == "graph").sum())
    visible_ns = busy_ns
    if opaque:
        chosen = of_queues.astype(np.bool_) & ~_IS_OPAQUE
        visible_ns = intervals.total_ns(*shares.union_of(*rows, chosen))
    return {
        "span_ns": last - first,
        "busy_ns": busy_ns,
        "opaque_ns": busy_ns - visible_ns,
        "idle_ns": last - first - busy_ns,
        "idle_in_profiler_ns": intervals.total_ns(*in_profiler) - hidden_ns,
        "comm_ns": int(lanes[_COMM_LANE, 0]),
        "n_kernels": int((work["source"] == "kernel").sum()),
        "n_graph_launches": opaque,
    }


def _classes(work: pl.DataFrame) -> tuple[ClassShare, ...]:
    start, end = (work[c].to_numpy() for c in ("start_ns", "end_ns"))
    counts, times = shares.by_kind(start, end, work["kind"].to_physical().to_numpy(), _KINDS.size)
    total = int(times.sum()) or 1
    found = [
        ClassShare(kind, n, time, time / total)
        for kind, n, time in zip(_KINDS.tolist(), counts.tolist(), times.tolist(), strict=True)
        if n
    ]
    return tuple(sorted(found, key=lambda c: (-c.time_ns, c.kind)))


def _perspective(trace: Trace, o: Overview) -> list[str]:
    if not o.has_device_activity:
        said = "no accelerator activity recorded"
        if lost := lost_records(unseen_work(trace)):
            said = (
                f"{lost} on the host but 0 device records: the capture lost"
                " them (another profiler held CUPTI, missing permission, or the capture ended"
                " before the flush)"
            )
        return [said, *capture_lines(capture(trace))]
    lines = list(capture_lines(capture(trace)))
    if o.incomplete:
        lines.append(f"{o.incomplete}; how long the GPU was idle is not known")
    for g in o.gpus:
        name = "an unidentified GPU" if g.gpu is None else g.label
        if g.opaque_ns > OPAQUE_WORTH_SAYING * g.busy_ns:
            lines.append(_opaque_line(name, g))
        if g.idle_ns > IDLE_WORTH_SAYING * g.span_ns and not o.incomplete:
            lines.append(
                f"{name} is busy {share(g.busy_ns / g.span_ns)} of the span and idle"
                f" {share(g.idle_ns / g.span_ns)}: it mostly waits for the host, so look there"
                " first"
            )
    if (load := load_phase(trace)) is not None:
        lines.append(load.words())
    if o.unclassified_frac is not None and o.unclassified_frac > UNCLASSIFIED_WORTH_SAYING:
        lines.append(
            f"{share(o.unclassified_frac)} of kernel time has names that no rule classifies:"
            " shares by class are lower bounds"
        )
    return lines


def _opaque_line(name: str, g: GpuTime) -> str:
    at_least, at_most = g.comm_ns / g.busy_ns, (g.comm_ns + g.opaque_ns) / g.busy_ns
    return (
        f"{share(g.opaque_ns / g.busy_ns)} of {name}'s busy time is opaque: {g.n_graph_launches}"
        " CUDA-graph launches were traced as a whole. What runs inside is unknown (communication"
        f" is between {share(at_least)} and {share(min(1.0, at_most))} of busy"
        " time); record again with --cuda-graph-trace=node"
    )
