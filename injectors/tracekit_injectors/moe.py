"""Mixture-of-experts routing: how many tokens each expert got.

Routing lives on the device, and a hook must not wait for the device. So the counts are made by a
small extra kernel, copied to pinned host memory without blocking, and stated once the copy has
finished, usually a step later. That adds device work, hence it is off unless requested:
``TRACEKIT_MOE=1``.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections import deque
from typing import Any

from .api import moe_route
from .emitter import emitter
from .patching import guarded, is_compiling

__all__ = ["begin_step", "collect", "count", "watch"]

_LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
_MOST_WAITING = 4096
_step = 0
_waiting: deque[tuple[Any, Any, int, int, int | None]] = deque()


def wanted() -> bool:
    """Return whether counts were requested."""
    return os.environ.get("TRACEKIT_MOE") == "1"


def begin_step(number: int) -> None:
    """Note the step that coming counts belong to."""
    global _step
    _step = number


def watch(model: Any) -> None:
    """Have the routing of every expert block of a Hugging Face model counted.

    Args:
        model: The model; its expert blocks are the modules whose forward takes ``top_k_index``.
    """
    if not wanted():
        return
    look = guarded("expert counts", _before_experts)
    for name, module in model.named_modules():
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        names = getattr(code, "co_varnames", ())
        wrapped = getattr(type(module).forward, "__wrapped__", None)
        names += getattr(getattr(wrapped, "__code__", None), "co_varnames", ())
        number = _LAYER.search(name)
        if "top_k_index" not in names or number is None or not hasattr(module, "num_experts"):
            continue
        layer = int(number.group(1))

        def hook(experts: Any, args: Any, kwargs: Any, layer: int = layer) -> None:
            if not is_compiling():
                look(experts, args, kwargs, layer)

        module.register_forward_pre_hook(hook, with_kwargs=True)


def _before_experts(experts: Any, args: tuple[Any, ...], kwargs: Any, layer: int) -> None:
    chosen = kwargs["top_k_index"] if "top_k_index" in kwargs else args[1]
    count(chosen, int(experts.num_experts), layer)


def count(chosen: Any, experts: int, layer: int) -> None:
    """Start counting one routing decision; never waits.

    Args:
        chosen: Integer tensor of expert numbers, ``[tokens, k]``; stays where it is.
        experts: Number of experts; greater numbers mean no expert.
        layer: Layer index.
    """
    torch: Any = sys.modules["torch"]
    on_gpu = chosen.device.type == "cuda"
    if not emitter.active or len(_waiting) >= _MOST_WAITING:
        return
    if on_gpu and torch.cuda.is_current_stream_capturing():
        return
    with torch.no_grad():
        flat = chosen.reshape(-1).long().clamp(max=experts)
        counts = torch.zeros(experts + 1, dtype=torch.int64, device=chosen.device)
        counts.scatter_add_(0, flat, torch.ones_like(flat))
        copied = None
        if on_gpu:
            host = torch.empty(experts + 1, dtype=torch.int64, pin_memory=True)
            host.copy_(counts, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
            counts = host
    if not _waiting:
        atexit.unregister(collect)
        atexit.register(collect)
    _waiting.append((counts, copied, layer, _step, chosen.shape[-1] if chosen.dim() > 1 else None))


def collect() -> None:
    """Emit the counts whose copies have finished."""
    while _waiting and (_waiting[0][1] is None or _waiting[0][1].query()):
        counts, _, layer, step, k = _waiting.popleft()
        moe_route(layer=layer, step=step, k=k, counts=counts.tolist()[:-1])
