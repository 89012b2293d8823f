"""Attach every hook to the modules that the program imports, when it imports them."""

from __future__ import annotations

from . import (
    huggingface_cache,
    huggingface_model,
    nccl_ctypes,
    torch_hooks,
    vllm_scheduler,
    vllm_worker,
)
from .postimport import when_imported

__all__ = ["install"]

_installed = False


def install() -> None:
    """Install the hooks; a second call does nothing.

    Nothing is imported that the program does not import: torch, transformers and vllm are looked
    at only once they are there.
    """
    global _installed
    if _installed:
        return
    _installed = True
    when_imported(huggingface_cache.MODULE, huggingface_cache.attach)
    when_imported(huggingface_model.MODELS, huggingface_model.attach_models)
    when_imported(huggingface_model.LAYERS, huggingface_model.attach_layers)
    when_imported(torch_hooks.PROFILER, torch_hooks.attach_profiler)
    when_imported(torch_hooks.CUDA, torch_hooks.attach_allocator)
    for module in vllm_worker.MODULES:
        when_imported(module, vllm_worker.attach)
    when_imported(vllm_scheduler.MANAGER, vllm_scheduler.attach_manager)
    when_imported(vllm_scheduler.SCHEDULER, vllm_scheduler.attach_scheduler)
    nccl_ctypes.attach()
