"""From input files to a `Diagnosis`: open, align, run analyses, rank what they found."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import polars as pl

import tracekit
from tracekit import analyses, settings
from tracekit.errors import TracekitError, UsageError
from tracekit.model.catalog import CATALOG, record_command
from tracekit.model.chart import Chart, Track
from tracekit.model.diagnosis import Diagnosis, TimePart
from tracekit.model.finding import Finding, Level, Missing, cap_by_confidence
from tracekit.model.inputs import Gpu, Report
from tracekit.numerics.threads import each
from tracekit.opening import OpenOptions, Paths, Redact, open_trace
from tracekit.trace import Trace, View
from tracekit.trace.added import failed
from tracekit.trace.analysis import Analysis
from tracekit.trace.views import StoppedError
from tracekit.views.counters.metrics import counters, sampled
from tracekit.views.device.activity import used_gpus
from tracekit.views.overview.pictures import PICTURES, pictures
from tracekit.views.overview.quality import quality
from tracekit.views.overview.totals import overview

__all__ = ["analyze", "diagnose", "ranked", "run", "with_use"]

Progress = Callable[[str], None]
_Answer = tuple[Mapping[str, pl.DataFrame], tuple[Finding, ...]]
_READ_FIRST = ("kernels", "nvtx", "runtime")
"""The largest tables: once views hold what is needed of them, they can be evicted."""
_MANY_SAMPLES = 1_000_000
"""Fewer are read when a view needs them, if one does."""
_ORDER = {Level.CRITICAL: 0, Level.WARN: 1, Level.OK: 2, Level.UNKNOWN: 3}


class _Outcome(NamedTuple):
    """What one analysis found and has to show."""

    frames: Mapping[str, pl.DataFrame]
    findings: tuple[Finding, ...]
    time_parts: tuple[TimePart, ...] = ()
    chart: Chart | None = None
    tracks: tuple[Track, ...] = ()


def analyze(
    paths: Paths,
    *,
    only: Sequence[str] = (),
    params: Mapping[str, str] | None = None,
    options: OpenOptions = OpenOptions(),  # noqa: B008 - frozen
    with_pictures: bool = False,
    with_charts: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose one run.

    Args:
        paths: The reports of one run, one a rank or one for all, or folders of them: a path or
            several.
        only: Names of the analyses to run; empty for all.
        params: ``analysis.name`` or a global setting to its value as text.
        options: How the run is opened: which part of it, with which memory, what may be shown.
        with_pictures: Add the timeline's frames and tracks, and the charts.
        with_charts: Add the charts.
        progress: Called with what is being done.

    Returns:
        The diagnosis.

    Raises:
        UsageError: An analysis or parameter does not exist or has a wrong value.
        InputError: No input can be used.
    """
    _, chosen = settings.parse(_chosen(only), params or {}, options.settings)
    (progress or _silent)("opening")
    with open_trace(paths, options=replace(options, settings=chosen)) as trace:
        found = diagnose(
            trace,
            only=only,
            params=params,
            redact=options.redact,
            with_pictures=with_pictures,
            with_charts=with_charts,
            progress=progress,
        )
        window = options.window_ns
        origin = {"window_ns": None if window is None else list(window), "reader": options.reader}
        return replace(found, provenance={**found.provenance, **origin})


def diagnose(
    trace: Trace,
    *,
    only: Sequence[str] = (),
    params: Mapping[str, str] | None = None,
    redact: Redact = "no",
    with_pictures: bool = False,
    with_charts: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose an opened run.

    Args:
        trace: The run, with its global settings.
        only: Names of the analyses to run; empty for all.
        params: ``analysis.name`` to its value as text.
        redact: What may be shown of `params`, see `OpenOptions`.
        with_pictures: Add the timeline's frames and tracks, and the charts.
        with_charts: Add the charts.
        progress: Called with what is being done.

    Raises:
        UsageError: An analysis or parameter does not exist or has a wrong value.
    """
    names = _chosen(only)
    values, _ = settings.parse(names, params or {})
    report = progress or _silent
    chosen = {name: analyses.load(name) for name in names}
    drawn = PICTURES if with_pictures else ()
    with_charts = with_charts or with_pictures
    parts = {n: (_views(a, with_charts=with_charts), a.tables) for n, a in chosen.items()}
    trace.plan({**parts, "": ((overview, quality, used_gpus, *drawn), ())})
    trace.report_progress(report)
    report("device activity")
    first = [partial(trace.compute_readers_of, table) for table in _READ_FIRST]
    if sum(r.tables.get("gpu_metrics", 0) for r in trace.reports) >= _MANY_SAMPLES:
        first += [partial(trace.prefetch, one) for one in (sampled, counters)]
    together = partial(each, _called, most=trace.memory.at_once, stop=trace.stop)
    together(first)

    def answered(name: str) -> _Outcome:
        report(name)
        outcome = _outcome(chosen[name], trace, values[name], with_charts=with_charts)
        trace.finish(name)
        return outcome

    head, *found = together([partial(trace.view, overview), *(partial(answered, n) for n in names)])
    outcomes: dict[str, _Outcome] = dict(zip(names, found, strict=True))
    findings = [finding for outcome in outcomes.values() for finding in outcome.findings]
    report("data quality")
    return Diagnosis(
        reports=tuple(_in_order(r) for r in trace.reports),
        gpus=with_use(trace),
        alignment=trace.alignment,
        overview=head,
        quality=trace.view(quality),
        findings=ranked(findings),
        frames={name: outcome.frames for name, outcome in outcomes.items()},
        params={n: vars(values[n]) for n in names},
        unreadable=trace.unreadable,
        provenance=_provenance(redact, _shown(params or {}, redact)),
        tables={name: analysis.results for name, analysis in chosen.items()},
        questions={name: analysis.question for name, analysis in chosen.items()},
        time_parts=tuple(part for outcome in outcomes.values() for part in outcome.time_parts),
        charts={n: o.chart for n, o in outcomes.items() if o.chart is not None},
        tracks=tuple(track for outcome in outcomes.values() for track in outcome.tracks),
        pictures=pictures(trace) if with_pictures else {},
    )


def _views(analysis: Analysis, *, with_charts: bool) -> tuple[View[Any], ...]:
    return (*analysis.views, *(analysis.chart_views.values() if with_charts else ()))


def _outcome(analysis: Analysis, trace: Trace, params: Any, *, with_charts: bool) -> _Outcome:
    """Run an analysis and draw what it found; a fault of another distribution's is its finding."""
    try:
        frames, findings = run(analysis, trace, params)
        parts = tuple(analysis.time_parts(frames)) if analysis.time_parts else ()
        outcome = _Outcome(frames, findings, parts)
        return _with_chart(outcome, analysis, trace) if with_charts else outcome
    except (TracekitError, StoppedError):
        raise
    except Exception as error:
        if not analysis.source:
            raise
        return _Outcome({t.name: t.empty() for t in analysis.results}, (failed(analysis, error),))


def _with_chart(outcome: _Outcome, analysis: Analysis, trace: Trace) -> _Outcome:
    """Add what there is to show, nothing where required tables are missing."""
    if not all(trace.has(t) for t in analysis.requires):
        return outcome
    narrow = trace.narrow((*analysis.requires, *analysis.uses))
    more = {name: narrow.view(one) for name, one in analysis.chart_views.items()}
    return outcome._replace(
        chart=analysis.chart({**outcome.frames, **more}) if analysis.chart else None,
        tracks=tuple(analysis.tracks(outcome.frames)) if analysis.tracks else (),
    )


def _called(task: Callable[[], Any]) -> Any:
    return task()


def _in_order(report: Report) -> Report:
    """Sort what was noted while tables were read, on several threads."""
    dropped = {t: dict(sorted(reasons.items())) for t, reasons in sorted(report.dropped.items())}
    return replace(report, notes=sorted(set(report.notes)), dropped=dropped)


def with_use(trace: Trace) -> tuple[Gpu, ...]:
    """Return the physical GPUs, those marked on which work was recorded."""
    used = trace.view(used_gpus)
    return tuple(replace(g, used=g.index in used) for g in trace.gpus)


def _chosen(only: Sequence[str]) -> tuple[str, ...]:
    names = analyses.names()
    unknown = sorted(set(only) - set(names))
    if unknown:
        message = f"no analysis named {', '.join(unknown)}"
        raise UsageError(message, hint=f"there are: {', '.join(names)}")
    return tuple(n for n in names if not only or n in only)


def _silent(_: str) -> None:
    """Report progress to nobody."""


def run(analysis: Analysis, trace: Trace, params: Any) -> _Answer:
    """Run one analysis on a trace narrowed to the tables that it requires and reaches.

    Returns:
        Its checked frames (empty ones when required tables are missing) and its findings.
    """
    missing = tuple(t for t in analysis.requires if not trace.has(t))
    if missing:
        return {t.name: t.empty() for t in analysis.results}, (_unknown(analysis, missing, trace),)
    narrow = trace.narrow((*analysis.requires, *analysis.uses))
    computed = analysis.compute(narrow, params)
    frames = {t.name: t.check(computed[t.name]) for t in analysis.results}
    findings = analysis.verdict(frames, params)
    return frames, tuple(_with_commands(cap_by_confidence(f), trace) for f in findings)


def _unknown(analysis: Analysis, missing: tuple[str, ...], trace: Trace) -> Finding:
    what = ", ".join(f"{CATALOG[t].sources[0]} ({CATALOG[t].doc})" for t in missing)
    title = f"not computed: no rows in {', '.join(CATALOG[t].sources[0] for t in missing)}"
    if "kernels" in missing and trace.has("graph_trace"):
        title = "not computed: kernels are hidden inside CUDA graphs that were traced as a whole"
    finding = Finding(
        id=f"{analysis.name}/missing",
        level=Level.UNKNOWN,
        title=title,
        missing=(Missing(f"rows in {what}", missing),),
    )
    return _with_commands(finding, trace)


def _with_commands(finding: Finding, trace: Trace) -> Finding:
    version = next((r.nsys_version for r in trace.reports if r.nsys_version), None)
    filled = tuple(
        m
        if m.command or not m.tables
        else replace(m, command=record_command(m.tables, version=version))
        for m in finding.missing
    )
    return replace(finding, missing=filled)


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings by level, then by time at stake, then by id."""
    return tuple(sorted(findings, key=lambda f: (_ORDER[f.level], -(f.at_stake_ns or 0), f.id)))


def _shown(params: Mapping[str, str], redact: Redact) -> Mapping[str, str]:
    """Leave out what the user typed in words; numbers and choices reveal nothing."""
    if redact == "no":
        return params
    return {k: v for k, v in params.items() if not k.startswith("kernels.")}


def _provenance(redact: Redact, params: Mapping[str, str]) -> dict[str, Any]:
    return {
        "tracekit": tracekit.__version__,
        "python": platform.python_version(),
        "polars": pl.__version__,
        "window_ns": None,
        "reader": "auto",
        "redact": redact,
        "params": dict(sorted(params.items())),
    }
