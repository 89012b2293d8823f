"""vLLM V1 workers: the KV pools' geometry, and a ``STEP`` range a model execution."""

from __future__ import annotations

import itertools
import re
from types import ModuleType
from typing import Any

from .api import kv_pool
from .emitter import Token, emitter
from .kv_geometry import Spec, pools
from .patching import after, around

__all__ = ["attach", "engine_name"]

MODULES = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner")
_POOLS = "vLLM KV pool markers"
_STEPS = "vLLM step ranges"
_INDEX = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")

_steps = itertools.count()


def attach(module: ModuleType) -> None:
    """Hook a model runner.

    Args:
        module: A module that holds ``GPUModelRunner``.
    """
    runner = getattr(module, "GPUModelRunner", None)
    after(runner, "initialize_kv_cache", _POOLS, _initialized)
    around(runner, "execute_model", _STEPS, _begin, emitter.pop)


def engine_name(config: Any) -> str | None:
    """Return what joins workers and scheduler of one engine: instance and data-parallel rank.

    Args:
        config: vLLM's configuration, which travels to every process of an engine.
    """
    instance = getattr(config, "instance_id", None)
    if not instance:
        return None
    rank = getattr(getattr(config, "parallel_config", None), "data_parallel_rank", 0)
    return f"{instance}-{rank}"


def _initialized(_result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if kwargs.get("is_profiling") or not emitter.active:
        return
    runner = args[0]
    config = getattr(runner, "kv_cache_config", None) or args[1]
    layers = runner.vllm_config.compilation_config.static_forward_context
    engine = engine_name(runner.vllm_config)
    several = len(config.kv_cache_groups) > 1
    for place, group in enumerate(config.kv_cache_groups):
        for name in group.layer_names:
            tensor = getattr(layers.get(name), "kv_cache", None)
            if isinstance(tensor, (list, tuple)):
                tensor = tensor[0] if tensor else None
            number = _INDEX.search(name)
            if hasattr(tensor, "data_ptr") and number is not None:
                spec = _spec(group.kv_cache_spec, name, config.num_blocks)
                _tell(tensor, int(number.group(1)), spec, engine, place if several else None)


def _spec(found: Any, layer: str, blocks: int) -> Spec:
    found = getattr(found, "kv_cache_specs", {}).get(layer, found)
    return Spec(
        blocks=blocks,
        block_tokens=found.block_size,
        heads=getattr(found, "num_kv_heads", None),
        head_size=getattr(found, "head_size", None),
        head_size_v=getattr(found, "head_size_v", None),
    )


def _tell(tensor: Any, layer: int, spec: Spec, engine: str | None, group: int | None) -> None:
    """Emit a layer's pools; a tensor whose axes are ambiguous is left out."""
    item_bytes = tensor.element_size()
    for pool in pools(tuple(tensor.shape), tuple(tensor.stride()), item_bytes, spec):
        addr = tensor.data_ptr() + pool.offset
        kv_pool(
            layer=layer,
            kind=pool.kind,
            addr=addr,
            bytes=(pool.blocks - 1) * pool.stride + pool.block_bytes,
            stride=pool.stride,
            blocks=pool.blocks,
            block_bytes=pool.block_bytes,
            block_tokens=pool.block_tokens,
            token_pitch=pool.token_pitch,
            row_bytes=pool.row_bytes,
            head_pitch=pool.head_pitch,
            device=tensor.device.index,
            engine=engine,
            group=group,
        )


def _begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Token:
    output = args[1] if len(args) > 1 else kwargs.get("scheduler_output")
    if not emitter.active or kwargs.get("dummy_run") or output is None:
        return None
    scheduled = output.num_scheduled_tokens
    total = output.total_num_scheduled_tokens
    if not total:
        return None
    decoding = sum(1 for count in scheduled.values() if count == 1)
    phase = "decode" if decoding == len(scheduled) else "mixed" if decoding else "prefill"
    return emitter.push("STEP", (next(_steps), phase, len(scheduled), total, None))
