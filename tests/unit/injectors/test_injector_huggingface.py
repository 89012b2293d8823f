"""The Hugging Face hooks on stand-ins with the signatures of transformers 5."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tracekit_injectors import huggingface_cache, huggingface_model


class Layer:
    """A dynamic layer: every update puts keys and values somewhere new."""

    def __init__(self, make: Callable[..., Any], **attributes: Any) -> None:
        self.keys: Any = None
        self.values: Any = None
        self.make = make
        vars(self).update(attributes)

    next_addr = 0x1000

    def update(self, tokens: int) -> None:
        held = 0 if self.keys is None else self.keys.shape[-2]
        self.keys, self.values = self._new(held + tokens), self._new(held + tokens)

    def _new(self, tokens: int) -> Any:
        Layer.next_addr += 0x1000
        return self.make((1, 2, tokens, 4), Layer.next_addr)


class StaticLayer(Layer):
    """Allocated once, filled in place; says its capacity."""

    def update(self, tokens: int) -> None:
        if self.keys is None:
            self.keys, self.values = self._new(self.max_cache_len), self._new(self.max_cache_len)


@pytest.fixture
def cache_class(monkeypatch: pytest.MonkeyPatch) -> type:
    monkeypatch.setattr(Layer, "next_addr", 0x1000)
    monkeypatch.setattr(huggingface_cache, "_numbers", iter(range(100)))

    class Cache:
        def __init__(self, layers: list[Layer]) -> None:
            self.layers = layers

        def update(self, key_states: Any, value_states: Any, layer_idx: int, *args: Any) -> str:
            self.layers[layer_idx].update(key_states.shape[-2])
            return "result"

        def reorder_cache(self, beam_idx: Any) -> None:
            for layer in self.layers:
                layer.update(0)

        def reset(self) -> None:
            for layer in self.layers:
                layer.keys = layer.values = None

    module = ModuleType("transformers.cache_utils")
    module.Cache = Cache
    huggingface_cache.attach(module)
    return Cache


def decode(cache: Any, tensor: Callable[..., Any], *lengths: int) -> None:
    for length in lengths:
        states = tensor((1, 2, length, 4), 1)
        for index in range(len(cache.layers)):
            assert cache.update(states, states, index, {}) == "result"


def test_a_dynamic_cache_moves_at_every_step(cache_class, tensor, tool) -> None:
    cache = cache_class([Layer(tensor)])
    decode(cache, tensor, 3, 1)
    assert tool.texts("KV_REALLOC", "KV_BLOCK") == [
        "KV_REALLOC layer=0 kind=k seq=0 addr=0x2000 bytes=48 used=48 seq_len=3 device=0",
        "KV_REALLOC layer=0 kind=v seq=0 addr=0x3000 bytes=48 used=48 seq_len=3 device=0",
        "KV_REALLOC layer=0 kind=k seq=0 addr=0x4000 bytes=64 used=64 seq_len=4 device=0",
        "KV_REALLOC layer=0 kind=v seq=0 addr=0x5000 bytes=64 used=64 seq_len=4 device=0",
    ]
    assert huggingface_cache.held_tokens(cache) == 4


def test_growth_by_256_tokens_copies_30720(cache_class, tensor, tool) -> None:
    cache = cache_class([Layer(tensor)])
    decode(cache, tensor, *[256] * 16)
    lengths = [int(t.partition("seq_len=")[2].split()[0]) for t in tool.texts("KV_REALLOC")][::2]
    assert lengths == list(range(256, 4097, 256))
    assert sum(lengths[:-1]) == 256 * sum(range(16)) == 30_720


def test_a_static_cache_is_allocated_once_and_filled(cache_class, tensor, tool) -> None:
    cache = cache_class([StaticLayer(tensor, max_cache_len=4)])
    decode(cache, tensor, 3, 1, 1)
    assert [t for t in tool.texts("KV_REALLOC", "KV_BLOCK") if "kind=k" in t] == [
        "KV_BLOCK layer=0 seq=0 block=0 kind=k addr=0x2000 bytes=64 used=48 op=alloc device=0",
        "KV_BLOCK layer=0 seq=0 block=0 kind=k addr=0x2000 bytes=64 used=64 op=append device=0",
        "KV_BLOCK layer=0 seq=0 block=0 kind=k addr=0x2000 bytes=64 used=64 op=append device=0",
    ]


def test_a_sliding_window_keeps_the_views_own_address(cache_class, tensor, tool) -> None:
    class Sliding(Layer):
        def _new(self, tokens: int) -> Any:
            Layer.next_addr += 0x1000
            return self.make((1, 2, min(tokens, 3), 4), Layer.next_addr + 8, offset=4, spare=8)

    decode(cache_class([Sliding(tensor)]), tensor, 9)
    first = tool.texts("KV_REALLOC")[0]
    # 24 elements and 4 before them, 2 bytes each, and 8 bytes behind: 64 - 8 from the address on.
    assert first.endswith("addr=0x2008 bytes=56 used=48 seq_len=3 device=0")


def test_beam_search_moves_every_layer(cache_class, tensor, tool) -> None:
    cache = cache_class([Layer(tensor), Layer(tensor)])
    decode(cache, tensor, 2)
    cache.reorder_cache(None)
    assert len(tool.texts("KV_REALLOC")) == 8


def test_a_cache_that_is_reset_or_dropped_gives_its_memory_up(cache_class, tensor, tool) -> None:
    cache = cache_class([Layer(tensor)])
    decode(cache, tensor, 2)
    cache.reset()
    assert tool.texts("KV_FREE") == [
        "KV_FREE layer=0 kind=k seq=0 addr=0x2000 device=0",
        "KV_FREE layer=0 kind=v seq=0 addr=0x3000 device=0",
    ]
    decode(cache, tensor, 2)
    del cache
    gc.collect()
    assert [t.split()[-2] for t in tool.texts("KV_FREE")[2:]] == ["addr=0x4000", "addr=0x5000"]
    assert huggingface_cache._caches == {}


def test_two_caches_are_two_sequences(cache_class, tensor, tool) -> None:
    caches = [cache_class([Layer(tensor)]) for _ in range(2)]
    for cache in caches:
        decode(cache, tensor, 1)
    assert [t.split()[3] for t in tool.texts("KV_REALLOC")] == ["seq=0", "seq=0", "seq=1", "seq=1"]


def test_meta_tensors_have_no_address(cache_class, tensor, tool) -> None:
    layer = Layer(lambda shape, _addr: tensor(shape, 0))
    decode(cache_class([layer]), tensor, 2)
    assert tool.texts("KV_REALLOC", "KV_BLOCK") == []


def test_unknown_layers_switch_the_hook_off_and_nothing_else(
    cache_class, tensor, tool, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = cache_class([SimpleNamespace(update=lambda _n: None)])
    states = tensor((1, 2, 1, 4), 1)
    assert cache.update(states, states, 0) == "result"
    assert cache.update(states, states, 0) == "result"
    assert capsys.readouterr().err.count("Hugging Face cache markers: off") == 1


def test_a_module_without_the_class_is_left_alone() -> None:
    huggingface_cache.attach(ModuleType("transformers.cache_utils"))
    huggingface_model.attach_models(ModuleType("transformers.modeling_utils"))
    huggingface_model.attach_layers(ModuleType("transformers.modeling_layers"))


class Module:
    """What the hooks use of ``torch.nn.Module``."""

    training = False

    def __init__(self, **children: Any) -> None:
        vars(self).update(children)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def named_modules(self) -> list[tuple[str, Any]]:
        return [("", self), *((f"layers.{i}", layer) for i, layer in enumerate(self.layers))]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(huggingface_model, "_steps", iter(range(100)))

    class GradientCheckpointingLayer(Module):
        def forward(self, value: int) -> int:
            if value < 0:
                raise ZeroDivisionError
            return value + 1

    class PreTrainedModel(Module):
        def forward(self, input_ids: Any, past_key_values: Any = None, value: int = 0) -> int:
            for layer in self.layers:
                value = layer(value)
            return value

    class Outer(PreTrainedModel):
        def forward(self, input_ids: Any, **kwargs: Any) -> int:
            return self.inner(input_ids, **kwargs)

    models, layers = ModuleType("m"), ModuleType("l")
    models.PreTrainedModel, layers.GradientCheckpointingLayer = (
        PreTrainedModel,
        GradientCheckpointingLayer,
    )
    huggingface_model.attach_models(models)
    huggingface_model.attach_layers(layers)
    inner = PreTrainedModel(layers=[GradientCheckpointingLayer() for _ in range(2)])
    return Outer(inner=inner, layers=inner.layers)


def test_one_step_around_nested_models_and_one_range_a_layer(model, tensor, tool) -> None:
    assert model(tensor((2, 5), 1), past_key_values=object()) == 2
    assert model(tensor((2, 1), 1), past_key_values=object()) == 2
    assert tool.texts("STEP", "LAYER") == [
        "STEP step=0 phase=prefill n_seq=2 n_tok=10",
        "LAYER layer=0",
        "LAYER layer=1",
        "STEP step=1 phase=decode n_seq=2 n_tok=2",
        "LAYER layer=0",
        "LAYER layer=1",
    ]
    kinds = [kind for kind, _ in tool.events[2:]]
    assert kinds.count("push") == kinds.count("pop") == 6


def test_ranges_close_when_the_model_fails(model, tensor, tool) -> None:
    with pytest.raises(ZeroDivisionError):
        model(tensor((1, 1), 1), value=-1)
    kinds = [kind for kind, _ in tool.events[2:]]
    assert kinds == ["push", "push", "pop", "pop"]
    model(tensor((1, 1), 1))
    assert len(tool.texts("STEP")) == 2


def test_training_has_no_phase(model, tensor, tool) -> None:
    model.training = True
    model(tensor((2, 5), 1), past_key_values=object())
    assert tool.texts("STEP") == ["STEP step=0 n_seq=2 n_tok=10"]


def test_without_a_tool_the_model_is_not_even_looked_at(model, tensor, no_tool) -> None:
    model.named_modules = None
    assert model(tensor((2, 5), 1)) == 2
