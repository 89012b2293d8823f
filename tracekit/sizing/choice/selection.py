"""Devices ranked for a model and its objectives, with what rules the others out.

Bounds rule a device out for certain: what the bound cannot meet, no engine will. They cannot rule
one in: latencies that the bound allows are ``possible`` until they are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.errors import UsageError
from tracekit.model.hardware import Hardware
from tracekit.sizing.bounds.workload import Assessment, Workload, assess
from tracekit.sizing.models import ModelShape

__all__ = ["RANKINGS", "Candidate", "Constraint", "Objectives", "select"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What a deployment must keep; None where there is no such objective.

    Attributes:
        tpot_s: Time per output token.
        ttft_s: Time to the first token of a prompt.
        p99_s: 99th percentile of a whole request's latency.
        output_tokens: Tokens that a request produces; for ``p99_s``.
        max_w: Power of all GPUs of one instance, watts.
        max_usd_per_hour: Price of all GPUs of one instance.
        measured_p99_s: Measured 99th percentile by device key.
    """

    tpot_s: float | None = None
    ttft_s: float | None = None
    p99_s: float | None = None
    output_tokens: int = 256
    max_w: float | None = None
    max_usd_per_hour: float | None = None
    measured_p99_s: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """One objective on one device.

    Attributes:
        name: ``capacity``, ``tpot``, ``ttft``, ``p99``, ``power`` or ``price``.
        verdict: ``met``; ``possible`` (a bound allows it, only a measurement shows it); ``failed``;
            ``unknown``.
        value: What the device has; None if unknown.
        limit: What it may have.
        unit: Of both.
        kind: ``bound``, ``measured`` or ``figure``.
    """

    name: str
    verdict: str
    value: float | None
    limit: float
    unit: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One device, in the smallest number that meets what can be checked.

    Attributes:
        device: Key of the device.
        gpus: Tensor-parallel GPUs of one instance.
        rejected: Whether a constraint failed, or none could be computed.
        failing: Names of the constraints that failed.
        constraints: Every constraint.
        tokens_per_s: Bound of the decode rate of the instance; None if unknown.
        tokens_per_j: That rate over the power limit of the GPUs: a bound of the energy, not a
            measurement; None if unknown.
        usd_per_million_tokens: Price of a million decoded tokens at that rate; None if unknown.
        note: Why nothing could be computed; "" otherwise.
    """

    device: str
    gpus: int
    rejected: bool
    failing: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    tokens_per_s: float | None = None
    tokens_per_j: float | None = None
    usd_per_million_tokens: float | None = None
    note: str = ""


RANKINGS: Mapping[str, Callable[[Candidate], float | None]] = {
    "tokens_per_s": lambda c: None if c.tokens_per_s is None else -c.tokens_per_s / c.gpus,
    "tokens_per_j": lambda c: None if c.tokens_per_j is None else -c.tokens_per_j,
    "price": lambda c: c.usd_per_million_tokens,
}
"""What devices can be ranked by: less is better. A rate counts per GPU."""


def select(
    shape: ModelShape,
    devices: Sequence[Hardware],
    load: Workload,
    wanted: Objectives,
    *,
    max_gpus: int = 1,
    rank_by: str = "tokens_per_s",
) -> tuple[Candidate, ...]:
    """Return every device: those that are not ruled out first, best first.

    Args:
        shape: The model.
        devices: Rows of the table.
        load: Batch, context, formats; its ``tp`` is the smallest instance that is tried.
        wanted: Objectives.
        max_gpus: Largest instance that is tried; sizes double from ``load.tp``.
        rank_by: A key of :data:`RANKINGS`; devices without the value come last.

    Raises:
        UsageError: `rank_by` is not known.
    """
    if rank_by not in RANKINGS:
        message = f"cannot rank by {rank_by!r}"
        raise UsageError(message, hint=f"there are: {', '.join(RANKINGS)}")
    found = [_smallest(shape, device, load, wanted, max_gpus) for device in devices]

    def order(candidate: Candidate) -> tuple[bool, bool, float]:
        value = RANKINGS[rank_by](candidate)
        return candidate.rejected, value is None, 0.0 if value is None else value

    return tuple(sorted(found, key=order))


def _smallest(
    shape: ModelShape, device: Hardware, load: Workload, wanted: Objectives, max_gpus: int
) -> Candidate:
    """The smallest instance that nothing rules out; else the last one that more GPUs could help."""
    gpus = load.tp
    while True:
        candidate = _candidate(shape, device, replace(load, tp=gpus), wanted)
        grows = {"power", "price"}.intersection(candidate.failing)
        if not candidate.rejected or grows or gpus * 2 > max_gpus:
            return candidate
        gpus *= 2


def _candidate(
    shape: ModelShape, device: Hardware, load: Workload, wanted: Objectives
) -> Candidate:
    try:
        found = assess(shape, device, load)
    except UsageError as error:
        return Candidate(device=device.key, gpus=load.tp, rejected=True, note=error.message)
    checks = tuple(c for c in _constraints(found, device, load.tp, wanted) if c is not None)
    failing = tuple(c.name for c in checks if c.verdict == "failed")
    speed = found.decode.tokens_per_s
    price = device.price_usd_per_hour
    per_s = None if price is None else price * load.tp / 3600
    return Candidate(
        device=device.key,
        gpus=load.tp,
        rejected=bool(failing),
        failing=failing,
        constraints=checks,
        tokens_per_s=speed,
        tokens_per_j=None if speed is None else speed / (device.tdp_w * load.tp),
        usd_per_million_tokens=None if speed is None or per_s is None else per_s / speed * 1e6,
    )


def _constraints(
    found: Assessment, device: Hardware, gpus: int, wanted: Objectives
) -> tuple[Constraint | None, ...]:
    room = found.capacity
    need = room.weight_bytes + room.cache_bytes
    price = device.price_usd_per_hour
    return (
        _figure("capacity", need, room.allowed_bytes, "bytes"),
        _bound("tpot", found.decode.time_s, found.decode.memory_s, wanted.tpot_s),
        _bound("ttft", found.prefill.time_s, found.prefill.memory_s, wanted.ttft_s),
        _p99(found, device.key, wanted),
        _figure("power", device.tdp_w * gpus, wanted.max_w, "W"),
        _figure("price", None if price is None else price * gpus, wanted.max_usd_per_hour, "USD/h"),
    )


def _figure(name: str, value: float | None, limit: float | None, unit: str) -> Constraint | None:
    if limit is None:
        return None
    verdict = "unknown" if value is None else "met" if value <= limit else "failed"
    return Constraint(
        name=name, verdict=verdict, value=value, limit=limit, unit=unit, kind="figure"
    )


def _bound(
    name: str, time_s: float | None, at_least_s: float, limit: float | None
) -> Constraint | None:
    if limit is None:
        return None
    verdict = "unknown" if time_s is None else "possible"
    if (at_least_s if time_s is None else time_s) > limit:
        verdict = "failed"
    return Constraint(name=name, verdict=verdict, value=time_s, limit=limit, unit="s", kind="bound")


def _p99(found: Assessment, key: str, wanted: Objectives) -> Constraint | None:
    """A measured percentile decides; without one the bound of an undisturbed request may refute."""
    if wanted.p99_s is None:
        return None
    measured = (wanted.measured_p99_s or {}).get(key)
    if measured is not None:
        verdict = "met" if measured <= wanted.p99_s else "failed"
        return Constraint(
            name="p99",
            verdict=verdict,
            value=measured,
            limit=wanted.p99_s,
            unit="s",
            kind="measured",
        )
    first, each = found.prefill, found.decode
    whole = None
    if first.time_s is not None and each.time_s is not None:
        whole = first.time_s + (wanted.output_tokens - 1) * each.time_s
    at_least = first.memory_s + (wanted.output_tokens - 1) * each.memory_s
    return _bound("p99", whole, at_least, wanted.p99_s)
