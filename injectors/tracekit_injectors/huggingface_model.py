"""Hugging Face models: a ``STEP`` range a forward pass, a ``LAYER`` range a decoder layer."""

from __future__ import annotations

import itertools
import re
import threading
from types import ModuleType
from typing import Any

from . import moe
from .emitter import Token, emitter
from .grammar import row
from .huggingface_cache import held_tokens
from .patching import around

__all__ = ["attach_layers", "attach_models"]

MODELS = "transformers.modeling_utils"
LAYERS = "transformers.modeling_layers"
_INDEX = "_tracekit_layer"
_NUMBER = re.compile(r"(?:^|\.)(\d+)$")

_steps = itertools.count()


class _Depth(threading.local):
    """Whether this thread is inside a model already: models nest, steps do not."""

    inside = False


_depth = _Depth()


def attach_models(module: ModuleType) -> None:
    """Mark forward passes.

    Args:
        module: ``transformers.modeling_utils``.
    """
    model = getattr(module, "PreTrainedModel", None)
    around(model, "__call__", "Hugging Face step ranges", _enter, _leave)


def attach_layers(module: ModuleType) -> None:
    """Mark decoder layers.

    Args:
        module: ``transformers.modeling_layers``.
    """
    layer = getattr(module, "GradientCheckpointingLayer", None)
    around(layer, "__call__", "Hugging Face layer ranges", _enter_layer, emitter.pop)


def _enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Token, bool] | None:
    if _depth.inside or not emitter.active:
        return None
    model = args[0]
    number_layers(model)
    number = next(_steps)
    moe.begin_step(number)
    token = emitter.push("STEP", row("STEP", {"step": number, **_shape(model, args, kwargs)}))
    _depth.inside = True
    return token, True


def _leave(entered: tuple[Token, bool]) -> None:
    _depth.inside = False
    emitter.pop(entered[0])
    moe.collect()


def _shape(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what the arguments say about the batch without reading any tensor."""
    inputs = kwargs.get("input_ids")
    if inputs is None:
        inputs = kwargs.get("inputs_embeds")
    if inputs is None and len(args) > 1:
        inputs = args[1]
    shape = getattr(inputs, "shape", None)
    if shape is None or len(shape) < 2:
        return {}
    batch, tokens = int(shape[0]), int(shape[1])
    facts: dict[str, Any] = {"n_seq": batch, "n_tok": batch * tokens}
    cache = kwargs.get("past_key_values", kwargs.get("cache"))
    if cache is not None and not getattr(model, "training", False):
        held = held_tokens(cache)
        # Several tokens on top of held ones: a chunk of a prompt or drafts to verify; unknown.
        if tokens == 1 or not held:
            facts["phase"] = "decode" if tokens == 1 else "prefill"
        if held is not None:
            facts["kv_tokens"] = batch * (held + tokens)
    return facts


def number_layers(model: Any) -> None:
    """Give each member of a module list its index, once a model."""
    if vars(model).get(_INDEX) is not None:
        return
    vars(model)[_INDEX] = -1
    for name, module in model.named_modules():
        number = _NUMBER.search(name)
        if number is not None:
            vars(module)[_INDEX] = int(number.group(1))
    moe.watch(model)


def _enter_layer(args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Token:
    if not emitter.active:
        return None
    index = vars(args[0]).get(_INDEX)
    return emitter.push("LAYER", (index,)) if index is not None else None
