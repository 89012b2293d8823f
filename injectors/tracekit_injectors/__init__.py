"""Markers for LLM runs: what the model's own process states about its KV cache and its steps.

Standard library only, so that it can be imported into any process. Three ways to switch it on:

- ``tracekit run -- COMMAND`` (also records);
- ``python -m tracekit_injectors COMMAND ...`` (hooks only, e.g. under a profiler of your own);
- ``tracekit_injectors.install()`` at the top of a program.

Hugging Face caches, vLLM V1, torch's allocator and NCCL through ctypes are hooked when the program
imports them. Other engines call `kv_pool`, `kv_table`, `kv_block`, `kv_realloc`, `kv_free`,
`moe_route`, `step` and `layer` themselves. Hooks never wait for a device, never read a tensor,
never change a result. `channel` says where the markers go: ``nvtx``, ``sidecar`` or ``none``.
"""

from __future__ import annotations

from .api import kv_block, kv_free, kv_pool, kv_realloc, kv_table, layer, moe_route, step

__all__ = [
    "channel",
    "install",
    "kv_block",
    "kv_free",
    "kv_pool",
    "kv_realloc",
    "kv_table",
    "layer",
    "moe_route",
    "step",
]
__version__ = "0.1.0"


def channel() -> str:
    """Return where markers go: ``nvtx``, ``sidecar`` or ``none``."""
    from .emitter import emitter

    return emitter.channel


def install() -> None:
    """Install all hooks; a second call does nothing."""
    from .install import install as install_hooks

    install_hooks()
