"""The request rate that an objective allows, and why not more."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.sizing.slo.isotonic import crossing, isotonic
from tracekit.sizing.slo.levels import Levels
from tracekit.sizing.slo.queueing import QueueFit, fit_queue
from tracekit.sizing.unknown import Missing

__all__ = ["FEWEST_LEVELS", "Headroom", "Limit", "SloFit", "fit_slo"]

FEWEST_LEVELS = 8
_FULL_CACHE_FRAC = 0.95
_POOR_FIT_FRAC = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A rate that one objective allows.

    Attributes:
        qps: The rate; where `at_least` is set, the largest one observed.
        at_least: Whether the objective was never reached: nothing is said about higher rates.
        low_qps: Lower end of the 95 % interval; None without one.
        high_qps: Upper end.
    """

    qps: float
    at_least: bool
    low_qps: float | None = None
    high_qps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Memory bandwidth left at one level.

    Attributes:
        qps: Rate of the level.
        util_frac: DRAM activity on the isotonic curve, 0..1.
        beta: ``1 - util/achievable``: share of the achievable activity that is left.
    """

    qps: float
    util_frac: float
    beta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFit:
    """What levels of load say about an objective.

    Attributes:
        levels: The levels.
        headroom: Memory bandwidth left at each level; empty without DRAM activity.
        queue: The fitted queue; None where a guard forbids it.
        by_latency: Rate that the latency objective allows; None if unknown.
        by_headroom: Rate that the headroom allows; None if unknown or not wanted.
        qps: The smaller of both; None if either of the wanted ones is unknown.
        guards: What forbids a fit.
        notes: What makes the fit less certain.
        missing: What is not known, and what it would take.
    """

    levels: Levels
    headroom: tuple[Headroom, ...]
    queue: QueueFit | None
    by_latency: Limit | None
    by_headroom: Limit | None
    qps: Limit | None
    guards: tuple[str, ...]
    notes: tuple[str, ...]
    missing: tuple[Missing, ...]


def fit_slo(
    found: Levels,
    *,
    latency_s: float | None,
    beta: float | None = None,
    achievable_frac: float = 0.8,
    any_order: bool = False,
) -> SloFit:
    """Return the request rate that objectives allow.

    Args:
        found: Levels of load.
        latency_s: Latency objective; None for none.
        beta: Share of the achievable DRAM activity to keep free; None for no such objective.
        achievable_frac: DRAM activity that can be reached at most; about 0.8 for DCGM's
            DRAM_ACTIVE.
        any_order: Accept load that rose and fell: a backlog may then inflate lower levels.
    """
    guards = _guards(found, any_order=any_order)
    missing: list[Missing] = []
    queue = by_latency = by_headroom = None
    if guards:
        if latency_s is not None:
            missing.append(Missing("rate for the latency objective", "; ".join(guards)))
    else:
        queue = fit_queue([v.qps for v in found.levels], [v.latency_s for v in found.levels])
        if latency_s is not None:
            by_latency = _by_latency(queue, found.levels[-1].qps, latency_s)
        if queue.capacity_qps is None:
            missing.append(Missing("capacity", "latency did not rise; measure higher rates"))
    headroom = _headroom(found, achievable_frac)
    if beta is not None:
        target = (1 - beta) * achievable_frac
        by_headroom = None if guards else _by_headroom(headroom, target)
        if by_headroom is None:
            needs = "; ".join(guards) or "needs DRAM activity at every level"
            missing.append(Missing("rate for the headroom", needs))
    limits = [by_latency] if latency_s is not None else []
    limits += [by_headroom] if beta is not None else []
    return SloFit(
        levels=found,
        headroom=headroom,
        queue=queue,
        by_latency=by_latency,
        by_headroom=by_headroom,
        qps=_smaller(limits),
        guards=guards,
        notes=_notes(found, queue),
        missing=tuple(missing),
    )


def _guards(found: Levels, *, any_order: bool) -> tuple[str, ...]:
    guards = []
    if (n := len(found.levels)) < FEWEST_LEVELS:
        guards.append(f"{n} distinct levels of load, {FEWEST_LEVELS} are needed")
    if not found.rises and not any_order:
        guards.append("load rose and fell, so a backlog may inflate lower levels; let it only rise")
    return tuple(guards)


def _notes(found: Levels, queue: QueueFit | None) -> tuple[str, ...]:
    notes = []
    if found.n_incomplete:
        notes.append(f"{found.n_incomplete} samples without load or latency left out")
    if found.unsteady_qps:
        rates = ", ".join(f"{q:.4g}" for q in found.unsteady_qps)
        notes.append(f"left out, because latency kept rising there: {rates} requests/s")
    full = [v.qps for v in found.levels if (v.kv_frac or 0.0) >= _FULL_CACHE_FRAC]
    if full:
        where = f"from {full[0]:.4g} requests/s on"
        notes.append(f"the KV cache is full {where}: preemption may set latency there")
    if queue is not None and queue.residual_frac > _POOR_FIT_FRAC:
        notes.append(f"the curve misses levels by {queue.residual_frac:.0%}: it fits poorly")
    return tuple(notes)


def _by_latency(queue: QueueFit, most: float, latency_s: float) -> Limit:
    """Never more than the largest rate observed."""
    rate = queue.rate_at(latency_s)
    if rate is None:
        # Latency stayed level: what matters is only whether it stayed below the objective.
        below = queue.base_s <= latency_s
        return Limit(qps=most if below else 0.0, at_least=below)
    if rate >= most:
        return Limit(qps=most, at_least=True)
    low, high = queue.interval_at(latency_s)
    return Limit(qps=rate, at_least=False, low_qps=low, high_qps=high)


def _headroom(found: Levels, achievable_frac: float) -> tuple[Headroom, ...]:
    known = [(v.qps, v.util_frac, v.n) for v in found.levels if v.util_frac is not None]
    if not known or len(known) < len(found.levels):
        return ()
    curve = isotonic([u for _, u, _ in known], [n for *_, n in known])
    return tuple(
        Headroom(qps=q, util_frac=float(u), beta=1 - float(u) / achievable_frac)
        for (q, _, _), u in zip(known, curve, strict=True)
    )


def _by_headroom(headroom: tuple[Headroom, ...], target_frac: float) -> Limit | None:
    if not headroom:
        return None
    rates = [h.qps for h in headroom]
    curve = isotonic([h.util_frac for h in headroom], [1.0] * len(headroom))
    reached = crossing(rates, curve, target_frac)
    if reached is None:
        return Limit(qps=rates[-1], at_least=True)
    if curve[0] > target_frac:
        return Limit(qps=0.0, at_least=False, high_qps=rates[0])
    return Limit(qps=reached, at_least=False)


def _smaller(limits: list[Limit | None]) -> Limit | None:
    """The tightest limit; unknown where one is, because it may be the tighter one."""
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits):
        return None
    return min(known, key=lambda limit: (limit.qps, limit.at_least))
