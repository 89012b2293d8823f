"""Hugging Face caches: where each layer's keys and values lie, and when they move.

A dynamic cache concatenates, so every step puts each layer's tensors somewhere new:
``KV_REALLOC``. A static cache is allocated once and filled in place: ``KV_BLOCK op=alloc``, then
``op=append``. A sliding window is a view of a concatenation; its address is that of the view.

``bytes`` reaches from the address to the end of the tensor's storage; ``used`` is what holds
tokens. How full a static cache is comes from counting the tokens handed in, because its own
counter lives on the device.
"""

from __future__ import annotations

import itertools
import time
import weakref
from types import ModuleType
from typing import Any

from .api import kv_free
from .emitter import emitter
from .patching import after

__all__ = ["attach", "held_tokens"]

MODULE = "transformers.cache_utils"
_FEATURE = "Hugging Face cache markers"
_RESCANNED = ("reorder_cache", "crop", "batch_repeat_interleave", "batch_select_indices", "reset")

_numbers = itertools.count()


class _Seen:
    """What was last stated of one cache."""

    def __init__(self) -> None:
        self.seq = next(_numbers)
        self.blocks: dict[tuple[int, str], tuple[int, int | None]] = {}
        self.tokens: dict[int, int] = {}


_caches: dict[int, _Seen] = {}


def attach(module: ModuleType) -> None:
    """Hook the cache classes.

    Args:
        module: ``transformers.cache_utils``.
    """
    cache = getattr(module, "Cache", None)
    if not after(cache, "update", _FEATURE, _updated):
        return
    for name in _RESCANNED:
        after(cache, name, _FEATURE, _rescan)


def held_tokens(cache: Any) -> int | None:
    """Return how many tokens a sequence holds in `cache`, as counted here; None if unknown."""
    seen = _caches.get(id(cache))
    return max(seen.tokens.values(), default=None) if seen is not None else None


def _updated(_result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not emitter.active:
        return
    cache = args[0]
    keys = args[1] if len(args) > 1 else kwargs["key_states"]
    index = args[3] if len(args) > 3 else kwargs["layer_idx"]
    seen = _seen(cache)
    seen.tokens[index] = seen.tokens.get(index, 0) + keys.shape[-2]
    _look(seen, cache.layers[index], index)


def _rescan(_result: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """After an operation on the whole cache: state what moved or went."""
    cache = args[0]
    seen = _caches.get(id(cache))
    if seen is None or not emitter.active:
        return
    for index, layer in enumerate(cache.layers):
        if index not in seen.tokens:
            continue
        if not _is_static(layer):
            held = getattr(layer, "keys", None)
            seen.tokens[index] = held.shape[-2] if held is not None else 0
        _look(seen, layer, index)


def _seen(cache: Any) -> _Seen:
    seen = _caches.get(id(cache))
    if seen is None:
        seen = _caches[id(cache)] = _Seen()
        weakref.finalize(cache, _gone, id(cache)).atexit = False
    return seen


def _gone(identity: int) -> None:
    seen = _caches.pop(identity, None)
    if seen is not None:
        for (layer, kind), (addr, device) in seen.blocks.items():
            kv_free(layer=layer, kind=kind, seq=seen.seq, addr=addr, device=device)


def _is_static(layer: Any) -> bool:
    return getattr(layer, "max_cache_len", None) is not None


def _look(seen: _Seen, layer: Any, index: int) -> None:
    static = _is_static(layer)
    for kind, tensor in (("k", layer.keys), ("v", layer.values)):
        start_ns = time.monotonic_ns()
        before = seen.blocks.get((index, kind))
        addr = 0 if tensor is None else tensor.data_ptr()
        if addr == 0:
            if before is not None:
                del seen.blocks[index, kind]
                kv_free(layer=index, kind=kind, seq=seen.seq, addr=before[0], device=before[1])
            continue
        whole = tensor.nbytes
        capacity = tensor.shape[-2]
        size = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
        device = tensor.device.index
        seen.blocks[index, kind] = (addr, device)
        tokens = min(seen.tokens[index], capacity) if static else capacity
        used = whole * tokens // capacity
        emitter.spend("kv", time.monotonic_ns() - start_ns)
        if (before is None and static) or (before is not None and before[0] == addr):
            op = "alloc" if before is None else "append"
            emitter.mark("KV_BLOCK", (index, seen.seq, 0, kind, addr, size, used, op, device))
        else:
            emitter.mark("KV_REALLOC", (index, kind, seen.seq, addr, size, used, tokens, device))
