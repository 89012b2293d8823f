"""The shape of a decoder: groups of equal layers, its weights, and what a step reads of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AttentionLayers", "ExpertLayers", "ModelShape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayers:
    """Layers that mix tokens in the same way.

    Attributes:
        kind: ``full``, ``window`` (sliding), ``latent`` (MLA) or ``state`` (recurrent: linear
            attention, Mamba).
        n_layers: How many.
        n_heads: Query heads.
        n_kv_heads: Key and value heads; tensor parallelism splits the cache over at most so many.
        decode_dim: Multiply-adds per head, cached token and query token in decode: head size of
            keys plus that of values; with MLA, latent plus position plus latent (absorbed form).
        prefill_dim: The same in prefill, where MLA multiplies per-head keys and values.
        cache_values_per_token: Values that one token leaves in the cache of one layer.
        window_tokens: How many tokens back the layer sees and keeps; None for all.
        state_values: Values of the state that one sequence keeps in one layer; read and written
            in every step.
    """

    kind: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    decode_dim: int
    prefill_dim: int
    cache_values_per_token: int
    window_tokens: int | None = None
    state_values: int = 0

    def seen_tokens(self, context_tokens: float) -> float:
        """Return how many of `context_tokens` a new token attends to."""
        if self.window_tokens is None:
            return context_tokens
        return min(context_tokens, self.window_tokens)

    def causal_pairs(self, n_tokens: float) -> float:
        """Return the (query, key) pairs of a causal prompt of `n_tokens`: T²/2, or the band.

        The diagonal's half is left out, as in ``2·L·H·D·T²`` FLOPs.
        """
        if self.window_tokens is None or n_tokens <= self.window_tokens:
            return n_tokens**2 / 2
        return self.window_tokens * n_tokens - self.window_tokens**2 / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayers:
    """Mixture-of-experts layers.

    Attributes:
        n_layers: How many layers have experts.
        n_experts: Routed experts of one layer.
        top_k: Experts that a token visits.
        params_per_expert: Weights of one expert.
    """

    n_layers: int
    n_experts: int
    top_k: int
    params_per_expert: int

    def expected_hit(self, n_tokens: float) -> float:
        """Return how many experts of a layer `n_tokens` visit on average under even routing.

        ``E·(1-(1-k/E)^n)``; real routing is less even and visits fewer.
        """
        missed: float = (1 - self.top_k / self.n_experts) ** n_tokens
        return self.n_experts * (1 - missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder-only language model.

    Attributes:
        name: For the reader.
        n_params: All weights.
        lookup_params: Weights that are only looked up, a row a token: the input embedding, unless
            it is tied to the output head.
        head_params: Weights of the output head, which multiplies only tokens that need logits.
        hidden_size: Width of the residual stream, values.
        attention: Groups of layers by kind.
        experts: Expert layers; None for a dense model.
        weight_dtype: Type that the configuration states, as in ``--dtype``; None if none.
        assumptions: What the configuration left open, and how it was read.
    """

    name: str
    n_params: int
    lookup_params: int = 0
    head_params: int = 0
    hidden_size: int = 0
    attention: tuple[AttentionLayers, ...]
    experts: ExpertLayers | None = None
    weight_dtype: str | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return sum(group.n_layers for group in self.attention)

    @property
    def active_params(self) -> int:
        """Weights that a token is multiplied with: experts not visited and look-ups left out."""
        idle = 0
        if self.experts is not None:
            one = self.experts
            idle = one.n_layers * (one.n_experts - one.top_k) * one.params_per_expert
        return self.n_params - self.lookup_params - idle

    def touched_params(self, n_tokens: float) -> float:
        """Return the weights that a step over `n_tokens` reads, each once.

        Look-ups are left out: they read a row a token. Experts count as far as even routing hits
        them.
        """
        read = float(self.n_params - self.lookup_params)
        if self.experts is None:
            return read
        one = self.experts
        missed = one.n_experts - one.expected_hit(n_tokens)
        return read - one.n_layers * missed * one.params_per_expert

    def kv_bytes_per_token(self, bytes_per_value: float) -> float:
        """Return what a token adds to the cache of all layers, bytes."""
        return bytes_per_value * sum(
            group.n_layers * group.cache_values_per_token for group in self.attention
        )

    def kv_bytes(
        self, contexts: Sequence[float], bytes_per_value: float, *, shards: int = 1
    ) -> float:
        """Return what the caches of sequences hold on one GPU, bytes.

        Args:
            contexts: Length of each sequence, tokens.
            bytes_per_value: Size of one cached value.
            shards: Tensor-parallel GPUs. A group's cache is split over at most its KV heads, and
                copied beyond that; recurrent state over its heads likewise.
        """
        total = 0.0
        for group in self.attention:
            split = min(shards, group.n_kv_heads)
            tokens = sum(group.seen_tokens(c) for c in contexts)
            values = group.cache_values_per_token * tokens + group.state_values * len(contexts)
            total += group.n_layers * values * bytes_per_value / split
        return total
