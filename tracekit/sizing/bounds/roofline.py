"""Roofline of a model on a device: bytes, FLOPs, the bound, and what a claim is worth.

Source of the counts: two FLOPs a weight and token; four FLOPs a head, head size, cached token and
query token of attention (half in a causal prompt); every weight that a step touches is read once,
so are the caches, and new tokens are written. Activations, communication and launch gaps are not
counted: times are lower bounds, token rates upper ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.sizing.models import ModelShape

__all__ = [
    "Phase",
    "Setting",
    "balance_batch",
    "bandwidth_needed",
    "claim_is_plausible",
    "decode",
    "prefill",
    "token_rate_bound",
]

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One step of a phase on one of the tensor-parallel GPUs.

    Attributes:
        name: ``prefill`` or ``decode``.
        tokens: Tokens that the step produces (decode) or takes in (prefill).
        flops: Floating-point operations of one GPU.
        weight_bytes: Weights that one GPU reads.
        cache_bytes: Cache that one GPU reads and writes.
        bytes: Both together.
        intensity: FLOPs a byte.
        ridge: FLOPs a byte at which the device turns from memory to compute bound; None if the
            compute peak is not known.
        memory_s: Bytes over the memory bandwidth.
        compute_s: FLOPs over the compute peak; None if it is not known.
        time_s: The larger of both; None if it is not known.
        bound: ``memory``, ``compute`` or ``unknown``.
        tokens_per_s: Upper bound of the token rate of the whole group of GPUs; None if unknown.
    """

    name: str
    tokens: float
    flops: float
    weight_bytes: float
    cache_bytes: float
    bytes: float
    intensity: float
    ridge: float | None
    memory_s: float
    compute_s: float | None
    time_s: float | None
    bound: str
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Formats and peaks that a step runs with.

    Attributes:
        weight_bytes_per_value: Size of a weight, bytes.
        cache_bytes_per_value: Size of a cached value, bytes.
        dram_bytes_per_s: Memory bandwidth of one GPU, bytes/s.
        flop_per_s: Compute peak of one GPU, FLOP/s; None if it is not known.
        tp: Tensor-parallel GPUs.
    """

    weight_bytes_per_value: float
    cache_bytes_per_value: float
    dram_bytes_per_s: float
    flop_per_s: float | None
    tp: int = 1


def _phase(
    name: str,
    tokens: float,
    flops: float,
    weight_bytes: float,
    cache_bytes: float,
    setting: Setting,
) -> Phase:
    flop_per_s, dram_bytes_per_s = setting.flop_per_s, setting.dram_bytes_per_s
    total = weight_bytes + cache_bytes
    memory_s = total / dram_bytes_per_s
    compute_s = None if flop_per_s is None else flops / flop_per_s
    time_s = None if compute_s is None else max(memory_s, compute_s)
    bound = "unknown" if compute_s is None else "memory" if memory_s >= compute_s else "compute"
    return Phase(
        name=name,
        tokens=tokens,
        flops=flops,
        weight_bytes=weight_bytes,
        cache_bytes=cache_bytes,
        bytes=total,
        intensity=flops / total,
        ridge=None if flop_per_s is None else flop_per_s / dram_bytes_per_s,
        memory_s=memory_s,
        compute_s=compute_s,
        time_s=time_s,
        bound=bound,
        tokens_per_s=None if time_s is None else tokens / time_s,
    )


def decode(
    shape: ModelShape,
    contexts: Sequence[float],
    setting: Setting,
    *,
    writes: bool = True,
) -> Phase:
    """Return one decode step: one new token for each sequence.

    Args:
        shape: The model.
        contexts: Tokens in the cache of each sequence; its length is the batch.
        setting: Formats and peaks.
        writes: Whether to count the write of the new tokens and of recurrent state.
    """
    batch, tp = len(contexts), setting.tp
    cache = shape.kv_bytes(contexts, setting.cache_bytes_per_value, shards=tp)
    attention = 0.0
    for group in shape.attention:
        seen = sum(group.seen_tokens(c) for c in contexts)
        attention += 2 * group.n_layers * group.n_heads * group.decode_dim * seen
        attention += 4 * group.n_layers * group.state_values * batch
        if writes:
            split = min(tp, group.n_kv_heads)
            values = group.cache_values_per_token + group.state_values
            cache += group.n_layers * values * batch * setting.cache_bytes_per_value / split
    return _phase(
        "decode",
        batch,
        (2 * shape.active_params * batch + attention) / tp,
        shape.touched_params(batch) * setting.weight_bytes_per_value / tp,
        cache,
        setting,
    )


def prefill(
    shape: ModelShape,
    lengths: Sequence[float],
    setting: Setting,
    *,
    all_logits: bool = False,
) -> Phase:
    """Return one prefill of causal prompts.

    Args:
        shape: The model.
        lengths: Tokens of each prompt.
        setting: Formats and peaks.
        all_logits: Whether the output head multiplies every token; serving engines multiply only
            the last one of each prompt.
    """
    tokens, tp = sum(lengths), setting.tp
    flops = 2.0 * shape.active_params * tokens
    if not all_logits:
        flops -= 2.0 * shape.head_params * (tokens - len(lengths))
    for group in shape.attention:
        pairs = sum(group.causal_pairs(t) for t in lengths)
        flops += 2 * group.n_layers * group.n_heads * group.prefill_dim * pairs
        flops += 4 * group.n_layers * group.state_values * tokens
    return _phase(
        "prefill",
        tokens,
        flops / tp,
        shape.touched_params(tokens) * setting.weight_bytes_per_value / tp,
        shape.kv_bytes(lengths, setting.cache_bytes_per_value, shards=tp),
        setting,
    )


def balance_batch(flop_per_s: float, dram_bytes_per_s: float, bytes_per_weight: float) -> float:
    """Return the batch at which decode of the weights alone turns compute bound.

    ``P/BW·s_w/2`` with P of the format that is multiplied (FP16 for W4A16).
    """
    return flop_per_s / dram_bytes_per_s * bytes_per_weight / 2


def bandwidth_needed(total_bytes: float, target_s: float) -> float:
    """Return the memory bandwidth that reads `total_bytes` in `target_s`, bytes/s."""
    return total_bytes / target_s


def token_rate_bound(
    n_params: float, bytes_per_weight: float, dram_bytes_per_s: float, batch: int = 1
) -> float:
    """Return the token rate that reading the weights alone allows, tokens/s."""
    return batch * dram_bytes_per_s / (n_params * bytes_per_weight)


def claim_is_plausible(claimed: float, bound: float) -> bool:
    """Whether a claimed rate does not exceed its bound, equality apart from rounding included."""
    return claimed <= bound or math.isclose(claimed, bound, rel_tol=_ROUNDING)
