"""The feed-forward part of the layers: dense, or experts of which a token visits a few."""

from __future__ import annotations

from tracekit.errors import InputError
from tracekit.sizing.models.fields import Fields
from tracekit.sizing.models.shape import ExpertLayers

__all__ = ["feedforward"]

_UNGATED = ("gpt2", "gpt_neox", "falcon", "opt", "bloom", "phi", "starcoder2", "nemotron")
_GATED_TOO = ("phi3", "phi4")
_BIASED = ("gpt2", "gpt_neox", "opt", "bloom", "phi", "starcoder2")


def feedforward(fields: Fields, n_layers: int, hidden: int) -> tuple[int, ExpertLayers | None]:
    """Return the weights of all feed-forward layers, and the expert layers among them.

    Raises:
        InputError: A field is missing or wrong.
    """
    n_experts = fields.optional("num_experts")
    if n_experts is None or n_experts == 1:
        return n_layers * _dense(fields, hidden, _intermediate(fields, hidden)), None
    top_k = fields.count("num_experts_per_tok")
    if top_k > n_experts:
        message = f"config.json: {top_k} experts a token, but only {n_experts} of them"
        raise InputError(message)
    width = fields.count("moe_intermediate_size", fields.optional("intermediate_size"))
    each = _dense(fields, hidden, width)
    if fields.model_type == "gpt_oss":
        each += 2 * width + hidden
    n_sparse = _sparse_layers(fields, n_layers)
    always = _always(fields, hidden, width, n_experts)
    n_dense = n_layers - n_sparse
    dense = n_dense * _dense(fields, hidden, _intermediate(fields, hidden)) if n_dense else 0
    experts = ExpertLayers(
        n_layers=n_sparse, n_experts=n_experts, top_k=top_k, params_per_expert=each
    )
    return dense + n_sparse * (always + n_experts * each), experts


def _intermediate(fields: Fields, hidden: int) -> int:
    if fields.raw("intermediate_size") is None and fields.model_type in ("gpt2", "bloom", "falcon"):
        return 4 * hidden
    return fields.count("intermediate_size")


def _dense(fields: Fields, hidden: int, width: int) -> int:
    family = fields.model_type
    gated = family.startswith(_GATED_TOO) or not family.startswith(_UNGATED)
    weights = (3 if gated else 2) * hidden * width
    biased = family.startswith(_BIASED) and not family.startswith(_GATED_TOO)
    return weights + (width + hidden if biased or fields.raw("mlp_bias") else 0)


def _always(fields: Fields, hidden: int, width: int, n_experts: int) -> int:
    """Weights of an expert layer that every token meets: the router and shared experts."""
    weights = hidden * n_experts
    if shared := fields.optional("n_shared_experts"):
        weights += _dense(fields, hidden, shared * width)
    if shared_width := fields.optional("shared_expert_intermediate_size"):
        weights += _dense(fields, hidden, shared_width) + hidden  # its gate
    if fields.model_type == "gpt_oss" or fields.raw("topk_method") == "noaux_tc":
        weights += n_experts  # a bias an expert
    return weights


def _sparse_layers(fields: Fields, n_layers: int) -> int:
    """How many layers have experts."""
    dense_first = fields.raw("first_k_dense_replace") or 0
    if period := fields.optional("expert_layer_period"):
        offset = fields.raw("expert_layer_offset") or 0
        return sum(i % period == offset for i in range(n_layers))
    every = fields.count("decoder_sparse_step", fields.count("moe_layer_freq", 1))
    dense = set(fields.raw("mlp_only_layers") or ())
    if fields.raw("decoder_sparse_step") is not None:
        return sum(i not in dense and (i + 1) % every == 0 for i in range(n_layers))
    return sum(i >= dense_first and i % every == 0 for i in range(n_layers))
