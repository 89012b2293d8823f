"""From a Hugging Face ``config.json`` to the shape of a model.

Weights are counted from the layers' matrices, as the reference implementations build them; the
built-in models check the counts against the published ones.
"""

from __future__ import annotations

from tracekit.errors import InputError
from tracekit.sizing.models.attention import attention_groups, attention_params
from tracekit.sizing.models.feedforward import feedforward
from tracekit.sizing.models.fields import Fields
from tracekit.sizing.models.shape import ModelShape

__all__ = ["parse_config"]

_TWO_PARTS = ("t5", "bart", "whisper", "marian", "mbart")
_TIED = ("gemma", "gpt2", "cohere", "bloom", "falcon", "opt")
_FOUR_NORMS = ("gemma2", "gemma3")
_LAYER_NORM = ("gpt2", "gpt_neox", "falcon", "opt", "bloom", "phi", "starcoder2")
_DTYPES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
}


def parse_config(text: str, *, name: str = "") -> ModelShape:
    """Return the shape that a ``config.json`` describes.

    Args:
        text: The file's text.
        name: For the reader; the configuration's own name if empty.

    Raises:
        InputError: No JSON, a field is missing or wrong, or a layer type is not known.
    """
    fields = Fields.parse(text)
    if fields.flag("is_encoder_decoder", default=fields.model_type in _TWO_PARTS):
        message = f"config.json: an encoder-decoder ({fields.model_type}) is not known here"
        raise InputError(message, hint="decoder-only models are")
    hidden = fields.count("hidden_size")
    vocabulary = fields.count("vocab_size")
    groups = attention_groups(fields)
    n_layers = sum(g.n_layers for g in groups)
    mlp_params, experts = feedforward(fields, n_layers, hidden)
    embedding = vocabulary * hidden
    tied = _is_tied(fields)
    total = attention_params(fields) + mlp_params + _norm_params(fields, n_layers, hidden)
    total += embedding if tied else 2 * embedding
    return ModelShape(
        name=name or str(fields.raw("_name_or_path") or fields.model_type or "model"),
        n_params=total,
        lookup_params=0 if tied else embedding,
        head_params=embedding,
        hidden_size=hidden,
        attention=groups,
        experts=experts,
        weight_dtype=_weight_dtype(fields),
        assumptions=tuple(fields.assumptions),
    )


def _is_tied(fields: Fields) -> bool:
    by_family = any(fields.model_type.startswith(family) for family in _TIED)
    if fields.raw("tie_word_embeddings") is None:
        how = "tied to" if by_family else "separate from"
        fields.assumptions.append(f"input embedding {how} the output head (the field is absent)")
    return fields.flag("tie_word_embeddings", default=by_family)


def _norm_params(fields: Fields, n_layers: int, hidden: int) -> int:
    per_layer = 4 if fields.model_type.startswith(_FOUR_NORMS) else 2
    size = 2 * hidden if fields.model_type.startswith(_LAYER_NORM) else hidden
    return size * (per_layer * n_layers + 1)


def _weight_dtype(fields: Fields) -> str | None:
    quantised = fields.raw("quantization_config")
    if isinstance(quantised, dict):
        method = str(quantised.get("quant_method", "")).lower()
        if method in ("fp8", "fbgemm_fp8"):
            return "fp8"
        if method == "mxfp4":
            return "fp4"
        bits = quantised.get("bits", 4 if quantised.get("load_in_4bit") else None)
        return {4: "int4", 8: "int8"}.get(bits) if isinstance(bits, int) else None
    stated = str(fields.raw("torch_dtype") or fields.raw("dtype") or "").removeprefix("torch.")
    return _DTYPES.get(stated)
