"""`Diagnosis`: everything that one run of the engine found, ready to be drawn or stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.model.chart import Chart, Track
from tracekit.model.finding import Finding, Level
from tracekit.model.gain import CombinedGain, combined
from tracekit.model.inputs import Alignment, Gpu, Report
from tracekit.model.table import Table

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SCHEMA_VERSION",
    "ClassShare",
    "Diagnosis",
    "GpuTime",
    "Overview",
    "Quality",
    "TimePart",
]

SCHEMA_VERSION = 2
"""Version of the JSON form; grows when a field changes meaning or goes away."""


@dataclass(frozen=True)
class GpuTime:
    """How one GPU spent the capture.

    Attributes:
        gpu: Index of the GPU; None for work on a device that the report does not name.
        span_ns: First to last device activity of the whole trace, as far as a report that saw this
            GPU was being recorded; added up over clocks that could not be brought together.
        busy_ns: Union of all device activity, opaque graph time included.
        opaque_ns: Part of `busy_ns` that only graph-level rows cover: what ran is invisible.
        idle_ns: `span_ns` - `busy_ns`.
        idle_in_profiler_ns: Part of `idle_ns` in which the profiler itself blocked a thread.
        comm_ns: Union of communication kernels: a lower bound when `opaque_ns` > 0.
        n_kernels: Kernel rows.
        n_graph_launches: Opaque graph rows.
    """

    gpu: int | None
    span_ns: int
    busy_ns: int
    opaque_ns: int
    idle_ns: int
    idle_in_profiler_ns: int
    comm_ns: int
    n_kernels: int
    n_graph_launches: int

    @property
    def label(self) -> str:
        """Name of the GPU for people."""
        return "GPU unknown" if self.gpu is None else f"GPU {self.gpu}"


@dataclass(frozen=True)
class TimePart:
    """A part of the communication time of one GPU, as an analysis explains it.

    Attributes:
        gpu: Index of the GPU; None for work on a device that the report does not name.
        label: What the time is spent on, in words that follow a duration.
        time_ns: How long.
        is_least: Whether it is a lower bound.
    """

    gpu: int | None
    label: str
    time_ns: int
    is_least: bool = False


@dataclass(frozen=True)
class ClassShare:
    """Device time of one class of work, summed over GPUs.

    Attributes:
        kind: Kernel class, or "memcpy HtoD" and the like, "memset", "opaque graph".
        n: Rows.
        time_ns: Sum of durations.
        frac: Share of the summed durations of all classes.
    """

    kind: str
    n: int
    time_ns: int
    frac: float


@dataclass(frozen=True)
class Quality:
    """One line on what the data lack.

    Attributes:
        level: `Level.OK` for a remark, `WARN` when shares become partial, `CRITICAL` when the
            profiler reported an error.
        text: The line.
        count: Rows or records concerned, None where it makes no sense.
        hint: What to do, "" when nothing.
    """

    level: Level
    text: str
    count: int | None = None
    hint: str = ""


@dataclass(frozen=True)
class Overview:
    """The first lines of every answer.

    Attributes:
        has_device_activity: False when no accelerator activity was recorded at all.
        span_ns: First to last device activity; None without any.
        gpus: One entry a used GPU, by index.
        classes: Device time by class, largest first.
        unclassified_frac: Share of kernel time that no rule names; None without kernels.
        n_kernels: Kernel rows.
        n_launches: Kernel launch calls on the host; None when host calls were not recorded.
        n_graph_launches: Graph launch calls on the host.
        n_with_launch: Device rows whose launching call was recorded.
        n_steps: Steps found.
        step_groups: Step group label to (count, median GPU span in ns).
        incomplete: Why device records must be missing, so that idle time is not known; "" where
            nothing says so.
        capture_ns: Length of the longest capture; None when no file says.
        stalled_ns: Time of the capture after the last device work that one host call fills, or in
            which nothing was recorded; 0 where that is not most of the capture.
        nearly_empty: Whether there is no device work to speak of in that time.
        perspective: Sentences that every reader needs first ("the GPU is idle 93% of ...").
    """

    has_device_activity: bool
    span_ns: int | None
    gpus: tuple[GpuTime, ...]
    classes: tuple[ClassShare, ...]
    unclassified_frac: float | None
    n_kernels: int
    n_launches: int | None
    n_graph_launches: int
    n_with_launch: int
    n_steps: int
    step_groups: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    incomplete: str = ""
    capture_ns: int | None = None
    stalled_ns: int = 0
    nearly_empty: bool = False
    perspective: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The answer.

    Attributes:
        reports: Input files.
        gpus: Physical GPUs.
        alignment: Clock alignment, one entry a report.
        overview: First lines.
        quality: What the data lack, worst first.
        findings: All findings, ranked: critical before warn before ok before unknown, then by
            predicted gain, those without one by time at stake.
        frames: Result frames, by analysis and name.
        params: Parameters that were used, by analysis and name.
        unreadable: Inputs that were given but could not be used: name to reason.
        provenance: Versions and options.
        tables: What the columns of `frames` mean, by analysis.
        questions: The question that each analysis answers, by its name.
        time_parts: Parts of the GPUs' communication time that analyses explain.
        charts: What to draw, by analysis, in their order; empty unless requested.
        tracks: Tracks that analyses add to the timeline; empty unless requested.
        pictures: Frames that the timeline needs (`tracekit.views.overview.pictures`); empty
            unless requested.
    """

    reports: tuple[Report, ...]
    gpus: tuple[Gpu, ...]
    alignment: tuple[Alignment, ...]
    overview: Overview
    quality: tuple[Quality, ...]
    findings: tuple[Finding, ...]
    frames: Mapping[str, Mapping[str, pl.DataFrame]]
    params: Mapping[str, Mapping[str, Any]]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)
    questions: Mapping[str, str] = field(default_factory=dict)
    time_parts: tuple[TimePart, ...] = ()
    charts: Mapping[str, Chart] = field(default_factory=dict)
    tracks: tuple[Track, ...] = ()
    pictures: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    @property
    def combined_gains(self) -> tuple[CombinedGain, ...]:
        """What the proposed changes bring together, by step group and GPU; never their sum."""
        wrong = (Level.CRITICAL, Level.WARN)
        return combined([f.gain for f in self.findings if f.gain and f.level in wrong])

    @property
    def worst(self) -> Level:
        """Worst known level; `UNKNOWN` when every finding is unknown."""
        order = (Level.CRITICAL, Level.WARN, Level.OK)
        levels = {f.level for f in self.findings}
        return next((level for level in order if level in levels), Level.UNKNOWN)

    def to_pandas(self, analysis: str, table: str) -> pd.DataFrame:
        """Return a result frame as a pandas frame, see `Table.to_pandas`.

        Args:
            analysis: Name of the analysis.
            table: Name of one of its results, a key of ``frames[analysis]``.

        Raises:
            KeyError: There is no such analysis or result.
        """
        from tracekit.model.pandas_frames import to_pandas

        frame = self.frames[analysis][table]
        known = {t.name: t for t in self.tables.get(analysis, ())}
        return known[table].to_pandas(frame) if table in known else to_pandas(frame)

    def __repr__(self) -> str:
        """Return the head and a line a finding."""
        from tracekit.model.outline import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from tracekit.model.outline import as_html

        return as_html(self)
