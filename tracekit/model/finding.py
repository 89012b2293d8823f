"""`Finding`: what an analysis found, how bad it is, and what that rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tracekit.model.gain import Gain

__all__ = ["Confidence", "Evidence", "Finding", "Level", "Metric", "Missing", "cap_by_confidence"]

HIGH_CONFIDENCE, MEDIUM_CONFIDENCE = 0.8, 0.5


class Level(StrEnum):
    """How bad a finding is; `UNKNOWN` when the inputs do not suffice."""

    OK = "ok"
    WARN = "warn"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Metric:
    """One number of a finding.

    Attributes:
        name: snake_case with its unit.
        value: The number; None when not measured.
        unit: Unit for people: "ns", "bytes", "1" (share 0..1), "x" (ratio), "GB/s", "".
        lo: Lower end of the 95% interval, None without one.
        hi: Upper end.
        n: Observations behind it, None where it makes no sense.
        doc: What it is, in a few words; shown next to the number.
    """

    name: str
    value: float | int | str | None
    unit: str = ""
    lo: float | None = None
    hi: float | None = None
    n: int | None = None
    doc: str = ""


@dataclass(frozen=True)
class Confidence:
    """``min(coverage, min(1, n / n_hi), provenance, clock)`` and its parts, each 0..1.

    Attributes:
        coverage: Share of the required data that is present.
        n: Observations.
        n_hi: Observations at which their number no longer limits the confidence.
        provenance: Provenance: markers or NCCL payload 1.0, allocator events 0.8, kernel-name
            heuristics 0.6, guessed shapes 0.5.
        clock: Clock: one session 1.0, aligned on collectives 0.8, UTC only 0.4.
        why: What limits it, in words.
    """

    coverage: float = 1.0
    n: int = 1
    n_hi: int = 1
    provenance: float = 1.0
    clock: float = 1.0
    why: str = ""

    @property
    def value(self) -> float:
        """The confidence, 0..1."""
        return min(self.coverage, min(1.0, self.n / self.n_hi), self.provenance, self.clock)

    @property
    def label(self) -> str:
        """``high`` from 0.8, ``medium`` from 0.5, else ``low``."""
        value = self.value
        return (
            "high"
            if value >= HIGH_CONFIDENCE
            else "medium"
            if value >= MEDIUM_CONFIDENCE
            else "low"
        )


@dataclass(frozen=True)
class Evidence:
    """Rows that a finding rests on.

    Attributes:
        table: Key of the analysis' result frames.
        where: Column values that select the rows; empty for all.
        columns: Columns worth showing, in order; empty for all.
        title: Heading for people.
        headings: Words for columns whose names are none, unit left out.
    """

    table: str
    where: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    title: str = ""
    headings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
    """Data that a finding would need.

    Attributes:
        what: What is missing, in words.
        tables: Catalog tables that would hold it.
        command: Command that records it; the engine fills it from `tables` when empty.
    """

    what: str
    tables: tuple[str, ...] = ()
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One verdict.

    Attributes:
        id: ``<analysis>/<slug>``, stable between runs on the same data.
        level: How bad.
        title: Headline with its numbers, one line.
        metrics: The numbers it rests on, most important first.
        at_stake_ns: Time that removing the cause could save, None when not known. Engine ranks
            by it.
        at_stake_frac: The same as a share of `at_stake_of`.
        at_stake_of: The denominator in words ("step time", "capture span").
        confidence: How sure, and why.
        advice: What to do, one to three sentences.
        caveats: How it can be wrong, one sentence each.
        scope: What it is about: ("gpu", "0"), ("communicator", "0x..") and so on.
        t_range_ns: Worst window, session time.
        thresholds: Metric name to (warn, critical); None for "never".
        evidence: Rows to look at.
        missing: For `Level.UNKNOWN`, what would answer it.
        gain: What the advice is predicted to bring; None when not known.
        downgraded_from: Level before a low confidence lowered it.
    """

    id: str
    level: Level
    title: str
    metrics: tuple[Metric, ...] = ()
    at_stake_ns: int | None = None
    at_stake_frac: float | None = None
    at_stake_of: str = ""
    confidence: Confidence | None = None
    advice: str = ""
    caveats: tuple[str, ...] = ()
    scope: tuple[tuple[str, str], ...] = ()
    t_range_ns: tuple[int, int] | None = None
    thresholds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    gain: Gain | None = None
    downgraded_from: Level | None = None


def cap_by_confidence(finding: Finding) -> Finding:
    """Return `finding` with a critical of low confidence lowered to a warning."""
    low = finding.confidence is not None and finding.confidence.value < MEDIUM_CONFIDENCE
    if finding.level is Level.CRITICAL and low:
        return replace(finding, level=Level.WARN, downgraded_from=Level.CRITICAL)
    return finding
