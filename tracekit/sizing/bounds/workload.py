"""A model under a load on a device: both phases, capacity, and what a target would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.errors import UsageError
from tracekit.model.hardware import Hardware, PeakBandwidth, peak_bandwidth
from tracekit.sizing.bounds import roofline
from tracekit.sizing.bounds.precision import bytes_per_value, compute_rate
from tracekit.sizing.bounds.roofline import Phase
from tracekit.sizing.models import ModelShape
from tracekit.sizing.unknown import Missing

__all__ = ["Assessment", "Capacity", "Claim", "Target", "Workload", "assess", "claim", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the model is to do, and in which formats.

    Attributes:
        batch: Sequences decoded together.
        context_tokens: Tokens in the cache of each.
        prompt_tokens: Tokens of one prompt.
        tp: Tensor-parallel GPUs.
        dtype: Format of the weights.
        compute_dtype: Format that is multiplied.
        kv_dtype: Format of the cache.
        memory_frac: Share of a GPU's memory that weights and cache may take.
    """

    batch: int = 1
    context_tokens: int = 2048
    prompt_tokens: int = 2048
    tp: int = 1
    dtype: str = "bf16"
    compute_dtype: str = "bf16"
    kv_dtype: str = "bf16"
    memory_frac: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Whether weights and cache fit into the memory of one GPU.

    Attributes:
        weight_bytes: Weights on one GPU.
        cache_bytes: Cache on one GPU.
        allowed_bytes: What they may take: nominal memory, decimal, times the share.
        fits: Whether they do.
        max_batch: Sequences that fit; 0 if the weights alone do not.
    """

    weight_bytes: float
    cache_bytes: float
    allowed_bytes: float
    fits: bool
    max_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What a device can at most do with a workload.

    Attributes:
        device: Key of the device.
        peak: Memory bandwidth that was used, and where it comes from.
        flop_per_s: Compute peak; None if it is not known.
        prefill: One prompt.
        decode: One step of the batch.
        capacity: Memory.
        balance_batch: Batch at which decode of the weights turns compute bound; None if unknown.
        missing: What is not known, and what it would take.
    """

    device: str
    peak: PeakBandwidth
    flop_per_s: float | None
    prefill: Phase
    decode: Phase
    capacity: Capacity
    balance_batch: float | None
    missing: tuple[Missing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a target time per output token takes.

    Attributes:
        target_s: Time per output token.
        needed_bytes_per_s: Memory bandwidth of each of the GPUs.
        met: Whether the device has it, and enough compute.
        enough: Keys of the devices of the table whose memory bandwidth suffices.
        too_slow: Keys of the others.
    """

    target_s: float
    needed_bytes_per_s: float
    met: bool | None
    enough: tuple[str, ...]
    too_slow: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claimed decode rate against its upper bound.

    Attributes:
        tokens_per_s: The claim.
        bound_tokens_per_s: The bound; None if it is not known.
        verdict: ``implausible`` above the bound, ``possible`` below, ``unknown`` without one.
    """

    tokens_per_s: float
    bound_tokens_per_s: float | None
    verdict: str


def assess(
    shape: ModelShape,
    device: Hardware,
    load: Workload,
    *,
    achievable_gb_per_s: float | None = None,
) -> Assessment:
    """Return what `device` can at most do with `load`.

    Args:
        shape: The model.
        device: A row of the table.
        load: Batch, context, formats.
        achievable_gb_per_s: A measured memory bandwidth in place of the table's peak, GB/s.

    Raises:
        UsageError: A format is not known, or the device has no hardware for it.
    """
    peak = peak_bandwidth(device, achievable_gb_per_s=achievable_gb_per_s)
    if peak is None:
        message = f"the memory bandwidth of {device.key} is not known"
        raise UsageError(message, hint="give --achievable-bw GB/S")
    flop_per_s = compute_rate(device, load.compute_dtype)
    weight, cache = bytes_per_value(load.dtype), bytes_per_value(load.kv_dtype)
    setting = roofline.Setting(
        weight_bytes_per_value=weight,
        cache_bytes_per_value=cache,
        dram_bytes_per_s=peak.gb_per_s * 1e9,
        flop_per_s=flop_per_s,
        tp=load.tp,
    )
    balance = None
    missing = []
    if flop_per_s is None:
        needs = f"the {load.compute_dtype} rate of {device.key}; give it with --hardware FILE"
        missing.append(Missing("compute time", needs))
    else:
        # A batch of that size hits every expert, but multiplies each token with few of them.
        read = (shape.n_params - shape.lookup_params) / shape.active_params
        balance = read * roofline.balance_batch(flop_per_s, setting.dram_bytes_per_s, weight)
    return Assessment(
        device=device.key,
        peak=peak,
        flop_per_s=flop_per_s,
        prefill=roofline.prefill(shape, [load.prompt_tokens], setting),
        decode=roofline.decode(shape, [load.context_tokens] * load.batch, setting),
        capacity=_capacity(shape, device, load, weight, cache),
        balance_batch=balance,
        missing=tuple(missing),
    )


def _capacity(
    shape: ModelShape, device: Hardware, load: Workload, weight: float, cache: float
) -> Capacity:
    weights = shape.n_params * weight / load.tp
    one = shape.kv_bytes([load.context_tokens], cache, shards=load.tp)
    allowed = device.memory_nominal_gb * 1e9 * load.memory_frac
    left = allowed - weights
    return Capacity(
        weight_bytes=weights,
        cache_bytes=one * load.batch,
        allowed_bytes=allowed,
        fits=weights + one * load.batch <= allowed,
        max_batch=max(0, int(left // one)),
    )


def target(found: Assessment, target_s: float, devices: Sequence[Hardware]) -> Target:
    """Return what decoding a token of every sequence in `target_s` takes.

    Args:
        found: Result of :func:`assess`.
        target_s: Time per output token, seconds.
        devices: Devices to name as sufficient or not.
    """
    needed = roofline.bandwidth_needed(found.decode.bytes, target_s)
    met = None if found.decode.time_s is None else found.decode.time_s <= target_s
    if found.decode.memory_s > target_s:
        met = False
    fast = [d.dram_gb_per_s * 1e9 >= needed for d in devices]
    return Target(
        target_s=target_s,
        needed_bytes_per_s=needed,
        met=met,
        enough=tuple(d.key for d, ok in zip(devices, fast, strict=True) if ok),
        too_slow=tuple(d.key for d, ok in zip(devices, fast, strict=True) if not ok),
    )


def claim(found: Assessment, tokens_per_s: float) -> Claim:
    """Return what a claimed decode rate of the whole group is worth.

    Without a compute peak the memory alone still refutes a claim, but cannot support one.
    """
    bound = found.decode.tokens_per_s
    by_memory = found.decode.tokens / found.decode.memory_s
    if not roofline.claim_is_plausible(tokens_per_s, by_memory if bound is None else bound):
        verdict = "implausible"
    else:
        verdict = "unknown" if bound is None else "possible"
    return Claim(tokens_per_s=tokens_per_s, bound_tokens_per_s=bound, verdict=verdict)
