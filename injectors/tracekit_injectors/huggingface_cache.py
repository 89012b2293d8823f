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

from .api import kv_block, kv_free, kv_realloc
from .emitter import emitter
from .patching import after

__all__ = ["attach", "held_tokens"]

MODULE = "transformers.cache_utils"
_FEATURE = "Hugging Face cache markers"
_RESCANNED = ("reorder_cache", "crop", "batch_repeat_interleave", "batch_select_indices", "reset")

_numbers = itertools.count()


class _Seen:
    """What was last told of one cache."""

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
    """After an operation on the whole cache: tell what moved or went."""
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
    for kind, tensor in (("k", layer.keys), ("v", layer.values)):
        start_ns = time.monotonic_ns()
        before = seen.blocks.get((index, kind))
        if tensor is None or tensor.numel() == 0:
            if before is not None:
                del seen.blocks[index, kind]
                kv_free(layer=index, kind=kind, seq=seen.seq, addr=before[0], device=before[1])
            continue
        addr = tensor.data_ptr()
        if addr == 0:
            continue
        storage = tensor.untyped_storage()
        size = storage.nbytes() - tensor.storage_offset() * tensor.element_size()
        device = tensor.device.index
        seen.blocks[index, kind] = (addr, device)
        tokens, used = _filled(seen, layer, index, tensor)
        emitter.spend("kv", time.monotonic_ns() - start_ns)
        if (before is None and _is_static(layer)) or (before is not None and before[0] == addr):
            kv_block(
                layer=index,
                seq=seen.seq,
                block=0,
                kind=kind,
                addr=addr,
                bytes=size,
                used=used,
                op="alloc" if before is None else "append",
                device=device,
            )
        else:
            kv_realloc(
                layer=index,
                kind=kind,
                seq=seen.seq,
                addr=addr,
                bytes=size,
                used=used,
                seq_len=tokens,
                device=device,
            )


def _filled(seen: _Seen, layer: Any, index: int, tensor: Any) -> tuple[int, int]:
    """Return (tokens held, bytes that hold them) of one layer's tensor."""
    whole = tensor.numel() * tensor.element_size()
    capacity = tensor.shape[-2]
    if not _is_static(layer):
        return capacity, whole
    tokens = min(seen.tokens[index], capacity)
    return tokens, whole * tokens // capacity
