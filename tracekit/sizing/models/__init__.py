"""Shapes of language models: how many weights, which of them a step reads, what a token caches."""

from __future__ import annotations

from tracekit.sizing.models.config import parse_config
from tracekit.sizing.models.known import known_models, known_shape
from tracekit.sizing.models.shape import AttentionLayers, ExpertLayers, ModelShape

__all__ = [
    "AttentionLayers",
    "ExpertLayers",
    "ModelShape",
    "known_models",
    "known_shape",
    "parse_config",
]
