"""What a change is predicted to bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["WORTH_RANKING", "CombinedGain", "Gain", "combined", "gain_from"]

WORTH_RANKING = 0.01
"""A gain that is certainly a smaller share of the step than this ranks as none."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A predicted gain, as an interval.

    Attributes:
        change: What would be changed, in the imperative.
        lo_ns: Least gain, ns a step.
        hi_ns: Most.
        of_ns: Time of a step now, ns; of the whole capture where `n_steps` is 0.
        n_steps: Steps that would gain; 0 where no steps are marked.
        step_group: Which steps, "" where none are marked.
        gpu: GPU, None when not of one.
        busy_ns: Time of a step in which the device works now, ns.
        removes_busy_ns: Part of `busy_ns` that the change may remove or hide.
        assumptions: What must hold, one sentence each.
        tested: What the rule was compared with; "" for a prediction that nothing has tested.
        confidence: 0..1; at most 0.5 for an untested prediction.
    """

    change: str
    lo_ns: float
    hi_ns: float
    of_ns: float
    n_steps: int = 0
    step_group: str = ""
    gpu: int | None = None
    busy_ns: float = 0.0
    removes_busy_ns: float = 0.0
    assumptions: tuple[str, ...] = ()
    tested: str = ""
    confidence: float = 0.5

    @property
    def total_lo_ns(self) -> float:
        """Least gain over all steps, ns."""
        return self.lo_ns * max(self.n_steps, 1)

    @property
    def total_hi_ns(self) -> float:
        """Most gain over all steps, ns."""
        return self.hi_ns * max(self.n_steps, 1)

    @property
    def worth_ranking(self) -> bool:
        """Whether it may be more than `WORTH_RANKING` of the step."""
        return self.of_ns > 0 and self.hi_ns >= WORTH_RANKING * self.of_ns


def gain_from(row: Mapping[str, Any]) -> Gain:
    """Return a row of the table ``gains`` as a gain."""
    return Gain(
        change=row["change"],
        lo_ns=row["gain_lo_ns"],
        hi_ns=row["gain_hi_ns"],
        of_ns=row["of_ns"],
        n_steps=row["n_steps"],
        step_group=row["step_group"] or "",
        gpu=row["gpu"],
        busy_ns=row["busy_ns"],
        removes_busy_ns=row["removes_busy_ns"],
        assumptions=tuple(row["assumptions"].split("; ")),
        confidence=row["confidence"],
    )


@dataclass(frozen=True)
class CombinedGain:
    """What several changes to the same steps are predicted to bring together.

    Attributes:
        changes: What would be changed.
        gpu: GPU, None when not of one.
        step_group: Which steps, "" where none are marked.
        n_steps: Steps that would gain; 0 where none are marked.
        of_ns: Time of a step now, ns.
        lo_ns: Least gain, ns a step.
        hi_ns: Most.
    """

    changes: tuple[str, ...]
    gpu: int | None
    step_group: str
    n_steps: int
    of_ns: float
    lo_ns: float
    hi_ns: float


def combined(gains: Sequence[Gain]) -> tuple[CombinedGain, ...]:
    """Return what the changes to each group of steps bring together, where there are several.

    Gains do not add: two changes may remove the same waiting. Together they bring at least what
    the better of them brings, and at most their sum, down to the device's remaining work.
    """
    groups: dict[tuple[str, int | None], list[Gain]] = {}
    for gain in gains:
        if gain.worth_ranking:
            groups.setdefault((gain.step_group, gain.gpu), []).append(gain)
    return tuple(_together(own) for own in groups.values() if len({g.change for g in own}) > 1)


def _together(gains: Sequence[Gain]) -> CombinedGain:
    first, of_ns = gains[0], max(g.of_ns for g in gains)
    left_ns = max(g.busy_ns for g in gains) - sum(g.removes_busy_ns for g in gains)
    lo_ns = max(g.lo_ns for g in gains)
    hi_ns = min(sum(g.hi_ns for g in gains), of_ns - max(left_ns, 0.0))
    return CombinedGain(
        changes=tuple(g.change for g in gains),
        gpu=first.gpu,
        step_group=first.step_group,
        n_steps=first.n_steps,
        of_ns=of_ns,
        lo_ns=lo_ns,
        hi_ns=max(lo_ns, hi_ns),
    )
