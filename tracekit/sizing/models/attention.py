"""The layers that mix tokens: which kind stands where, its weights and its cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tracekit.errors import InputError
from tracekit.sizing.models.fields import Fields
from tracekit.sizing.models.shape import AttentionLayers

__all__ = ["attention_groups", "attention_params"]

_FULL, _WINDOW, _LATENT, _LINEAR, _MAMBA = "full", "window", "latent", "linear", "mamba"
_NAMED = {
    "full_attention": _FULL,
    "attention": _FULL,
    "sliding_attention": _WINDOW,
    "linear_attention": _LINEAR,
    "mamba": _MAMBA,
}
_QKV_BIAS = ("qwen2", "gpt2", "phi", "opt", "starcoder2", "gpt_oss")
_OUTPUT_BIAS = ("gpt2", "phi", "opt", "starcoder2", "gpt_oss")
_HEAD_NORMS = ("qwen3", "gemma3")


def attention_groups(fields: Fields) -> tuple[AttentionLayers, ...]:
    """Return the groups of layers of a configuration.

    Raises:
        InputError: A field is missing or wrong, or a layer type is not known.
    """
    return tuple(_BUILDERS[kind](fields, number) for kind, number in sorted(_kinds(fields).items()))


def attention_params(fields: Fields) -> int:
    """Return the weights of all layers that mix tokens, without the norms around them."""
    return sum(_WEIGHTS[kind](fields) * number for kind, number in _kinds(fields).items())


def _kinds(fields: Fields) -> Counter[str]:
    """How many layers are of which kind."""
    n_layers = fields.count("num_hidden_layers")
    if fields.optional("kv_lora_rank"):
        return Counter({_LATENT: n_layers})
    named = fields.raw("layer_types") or fields.raw("layers_block_type")
    if named is not None:
        return _named_kinds(named, n_layers)
    if fields.optional("attn_layer_period"):
        period, offset = fields.count("attn_layer_period"), fields.raw("attn_layer_offset") or 0
        return Counter(_FULL if i % period == offset else _MAMBA for i in range(n_layers))
    if interval := fields.optional("full_attention_interval"):
        return Counter(_LINEAR if (i + 1) % interval else _FULL for i in range(n_layers))
    return _windowed_kinds(fields, n_layers)


def _named_kinds(named: object, n_layers: int) -> Counter[str]:
    if not isinstance(named, list) or len(named) != n_layers:
        message = f"config.json: layer_types does not name {n_layers} layers"
        raise InputError(message)
    if unknown := sorted({str(one) for one in named} - set(_NAMED)):
        message = f"config.json: layer type {unknown[0]!r} is not known here"
        raise InputError(message, hint=f"known are: {', '.join(_NAMED)}")
    return Counter(_NAMED[str(one)] for one in named)


def _windowed_kinds(fields: Fields, n_layers: int) -> Counter[str]:
    """Full and sliding layers, where only a pattern of the family states them."""
    if not fields.optional("sliding_window") or not fields.flag("use_sliding_window", default=True):
        return Counter({_FULL: n_layers})
    if fields.model_type.startswith("qwen2") and fields.raw("use_sliding_window") is None:
        return Counter({_FULL: n_layers})
    if fields.model_type == "gemma2":
        return Counter(_WINDOW if i % 2 == 0 else _FULL for i in range(n_layers))
    if pattern := fields.optional("sliding_window_pattern"):
        return Counter(_WINDOW if (i + 1) % pattern else _FULL for i in range(n_layers))
    if (first := fields.optional("max_window_layers")) is not None:
        full = min(first, n_layers)
        return Counter({_FULL: full, _WINDOW: n_layers - full})
    return Counter({_WINDOW: n_layers})


def _head_dim(fields: Fields) -> int:
    heads, hidden = fields.count("num_attention_heads"), fields.count("hidden_size")
    if fields.optional("head_dim") is None and hidden % heads:
        message = f"config.json: hidden_size {hidden} is no multiple of {heads} heads"
        raise InputError(message)
    return fields.count("head_dim", hidden // heads)


def _kv_heads(fields: Fields) -> int:
    heads = fields.count("num_attention_heads")
    if fields.flag("multi_query", default=False):
        return 1
    return fields.count("num_key_value_heads", heads)


def _full(fields: Fields, n_layers: int) -> AttentionLayers:
    size, kv_heads = _head_dim(fields), _kv_heads(fields)
    return AttentionLayers(
        kind=_FULL,
        n_layers=n_layers,
        n_heads=fields.count("num_attention_heads"),
        n_kv_heads=kv_heads,
        decode_dim=2 * size,
        prefill_dim=2 * size,
        cache_values_per_token=2 * kv_heads * size,
    )


def _window(fields: Fields, n_layers: int) -> AttentionLayers:
    full = _full(fields, n_layers)
    return replace(full, kind=_WINDOW, window_tokens=fields.count("sliding_window"))


def _full_weights(fields: Fields) -> int:
    hidden, size = fields.count("hidden_size"), _head_dim(fields)
    heads, kv_heads = fields.count("num_attention_heads"), _kv_heads(fields)
    query = 2 * heads if _gated_output(fields) else heads
    weights = hidden * size * (query + 2 * kv_heads + heads)
    if fields.flag("attention_bias", default=fields.model_type.startswith(_QKV_BIAS)):
        weights += size * (heads + 2 * kv_heads)
        if fields.raw("attention_bias") or fields.model_type.startswith(_OUTPUT_BIAS):
            weights += hidden
    if fields.model_type.startswith(_HEAD_NORMS):
        weights += 2 * size
    if fields.model_type == "gpt_oss":
        weights += heads  # a sink logit a head
    return weights


def _gated_output(fields: Fields) -> bool:
    return fields.flag("attn_output_gate", default=fields.model_type == "qwen3_next")


def _latent(fields: Fields, n_layers: int) -> AttentionLayers:
    latent, position = fields.count("kv_lora_rank"), fields.count("qk_rope_head_dim")
    return AttentionLayers(
        kind=_LATENT,
        n_layers=n_layers,
        n_heads=fields.count("num_attention_heads"),
        n_kv_heads=1,
        decode_dim=2 * latent + position,
        prefill_dim=fields.count("qk_nope_head_dim") + position + fields.count("v_head_dim"),
        cache_values_per_token=latent + position,
    )


def _latent_weights(fields: Fields) -> int:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    latent, position = fields.count("kv_lora_rank"), fields.count("qk_rope_head_dim")
    plain, value = fields.count("qk_nope_head_dim"), fields.count("v_head_dim")
    query = heads * (plain + position)
    rank = fields.optional("q_lora_rank")
    to_query = hidden * query if rank is None else hidden * rank + rank + rank * query
    to_latent = hidden * (latent + position) + latent
    return to_query + to_latent + latent * heads * (plain + value) + heads * value * hidden


def _linear_sizes(fields: Fields) -> tuple[int, int, int, int, int, int]:
    keys, values = fields.count("linear_num_key_heads"), fields.count("linear_num_value_heads")
    key_size = fields.count("linear_key_head_dim")
    value_size = fields.count("linear_value_head_dim")
    kernel = fields.count("linear_conv_kernel_dim")
    return keys * key_size, values * value_size, values, key_size, value_size, kernel


def _linear(fields: Fields, n_layers: int) -> AttentionLayers:
    key_width, value_width, heads, key_size, value_size, kernel = _linear_sizes(fields)
    state = heads * key_size * value_size + (2 * key_width + value_width) * (kernel - 1)
    fields.assumptions.append("recurrent state in the type of the cache (--kv-dtype)")
    return AttentionLayers(
        kind="state",
        n_layers=n_layers,
        n_heads=heads,
        n_kv_heads=heads,
        decode_dim=0,
        prefill_dim=0,
        cache_values_per_token=0,
        state_values=state,
    )


def _linear_weights(fields: Fields) -> int:
    hidden = fields.count("hidden_size")
    key_width, value_width, heads, _, value_size, kernel = _linear_sizes(fields)
    projected = hidden * (2 * key_width + 2 * value_width + 2 * heads)
    convolved = (2 * key_width + value_width) * kernel
    return projected + convolved + 2 * heads + value_size + value_width * hidden


def _mamba_sizes(fields: Fields) -> tuple[int, int, int, int]:
    hidden = fields.count("hidden_size")
    inner = fields.count("mamba_expand", 2) * hidden
    rank = fields.raw("mamba_dt_rank")
    dt_rank = -(-hidden // 16) if rank in (None, "auto") else fields.count("mamba_dt_rank")
    return inner, fields.count("mamba_d_state", 16), fields.count("mamba_d_conv", 4), dt_rank


def _mamba(fields: Fields, n_layers: int) -> AttentionLayers:
    inner, state, kernel, _ = _mamba_sizes(fields)
    fields.assumptions.append("recurrent state in the type of the cache (--kv-dtype)")
    return AttentionLayers(
        kind="state",
        n_layers=n_layers,
        n_heads=inner,
        n_kv_heads=inner,
        decode_dim=0,
        prefill_dim=0,
        cache_values_per_token=0,
        state_values=inner * state + inner * (kernel - 1),
    )


def _mamba_weights(fields: Fields) -> int:
    hidden = fields.count("hidden_size")
    inner, state, kernel, rank = _mamba_sizes(fields)
    projections = hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    vectors = inner * (kernel + 1) + inner + inner * state + inner  # conv, dt bias, A, D
    norms = rank + 2 * state if fields.model_type == "jamba" else 0
    return projections + vectors + norms


_BUILDERS: dict[str, Callable[[Fields, int], AttentionLayers]] = {
    _FULL: _full,
    _WINDOW: _window,
    _LATENT: _latent,
    _LINEAR: _linear,
    _MAMBA: _mamba,
}
_WEIGHTS: dict[str, Callable[[Fields], int]] = {
    _FULL: _full_weights,
    _WINDOW: _full_weights,
    _LATENT: _latent_weights,
    _LINEAR: _linear_weights,
    _MAMBA: _mamba_weights,
}
