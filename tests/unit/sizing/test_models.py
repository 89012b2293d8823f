"""Shapes of models: published counts, every kind of layer, configurations that lack something."""

from __future__ import annotations

import json

import pytest

from tracekit.errors import InputError, UsageError
from tracekit.sizing.models import known_models, known_shape, parse_config
from tracekit.sizing.models.known import published_params, source_of

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


def parsed(**changes):
    fields = {k: v for k, v in {**LLAMA, **changes}.items() if v is not None}
    return parse_config(json.dumps(fields))


@pytest.mark.parametrize("name", known_models())
def test_weights_counted_from_fields_equal_the_published_count(name):
    assert known_shape(name).n_params == published_params(name)
    assert source_of(name)


@pytest.mark.parametrize(
    ("name", "kv_bytes_per_token"),
    [("llama-3-70b", 327680), ("llama-3-8b", 131072), ("deepseek-v2", 69120)],
)
def test_cache_of_a_token(name, kv_bytes_per_token):
    assert known_shape(name).kv_bytes_per_token(2) == kv_bytes_per_token


def test_tied_embeddings_are_read_in_every_step():
    tied, separate = parsed(tie_word_embeddings=True), parsed()
    embedding = 128256 * 4096
    assert separate.n_params - tied.n_params == embedding
    assert (tied.lookup_params, separate.lookup_params) == (0, embedding)
    assert tied.active_params == separate.active_params == separate.n_params - embedding


def test_an_absent_tie_is_an_assumption():
    (text,) = parsed(tie_word_embeddings=None).assumptions
    assert text == "input embedding separate from the output head (the field is absent)"


def test_experts_that_no_token_visits_are_not_read():
    shape = known_shape("mixtral-8x7b")
    experts = shape.experts
    assert (experts.n_layers, experts.n_experts, experts.top_k) == (32, 8, 2)
    assert experts.params_per_expert == 3 * 4096 * 14336
    assert experts.expected_hit(1) == pytest.approx(2)
    assert experts.expected_hit(8) == pytest.approx(8 * (1 - 0.75**8))
    assert shape.touched_params(1) == pytest.approx(shape.active_params)
    assert shape.touched_params(10_000) == pytest.approx(shape.n_params - shape.lookup_params)
    assert known_shape("deepseek-v3").experts.n_layers == 58


def test_a_sliding_layer_keeps_its_window():
    shape = known_shape("gemma-2-9b")
    full, window = shape.attention
    assert (full.n_layers, window.n_layers, window.window_tokens) == (21, 21, 4096)
    a_token = 2 * 8 * 256 * 2
    assert shape.kv_bytes([8192], 2) == 21 * a_token * (8192 + 4096)
    assert shape.kv_bytes([1024], 2) == 42 * a_token * 1024
    assert window.causal_pairs(4096) == 4096**2 / 2
    assert window.causal_pairs(8192) == 4096 * 8192 - 4096**2 / 2


def test_layer_types_name_each_layer():
    types = ["sliding_attention"] * 3 + ["full_attention"]
    shape = parsed(num_hidden_layers=4, layer_types=types, sliding_window=512)
    assert [(g.kind, g.n_layers) for g in shape.attention] == [("full", 1), ("window", 3)]


def test_a_pattern_of_sliding_layers():
    shape = parsed(num_hidden_layers=12, sliding_window=1024, sliding_window_pattern=6)
    assert [(g.kind, g.n_layers) for g in shape.attention] == [("full", 2), ("window", 10)]


def test_an_unused_window_is_none():
    assert [g.kind for g in known_shape("qwen2.5-7b").attention] == ["full"]


def test_hybrid_layers_keep_a_state_and_no_tokens():
    shape = known_shape("jamba-v0_1")
    full, state = shape.attention
    assert (full.n_layers, state.n_layers) == (4, 28)
    assert state.state_values == 8192 * 16 + 8192 * 3
    assert shape.kv_bytes_per_token(2) == 4 * 2 * 8 * 128 * 2
    assert shape.kv_bytes([1000, 1000], 2) == 2 * (4 * 4096 * 1000 + 28 * state.state_values * 2)


def test_linear_attention_between_full_layers():
    shape = parsed(
        num_hidden_layers=8,
        full_attention_interval=4,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
    )
    full, state = shape.attention
    assert (full.n_layers, state.n_layers) == (2, 6)
    assert state.state_values == 32 * 128 * 128 + (2 * 2048 + 4096) * 3


def test_latent_attention_is_not_split_over_gpus():
    shape = known_shape("deepseek-v2")
    assert shape.kv_bytes([100], 2, shards=8) == shape.kv_bytes([100], 2) == 6912000
    (group,) = shape.attention
    assert (group.decode_dim, group.prefill_dim) == (2 * 512 + 64, 128 + 64 + 128)


def test_the_cache_is_split_over_at_most_the_kv_heads():
    shape = known_shape("llama-3-8b")
    assert shape.kv_bytes([1000], 2, shards=8) == 131072 * 1000 / 8
    assert shape.kv_bytes([1000], 2, shards=16) == 131072 * 1000 / 8


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16"}, "fp16"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "int4"),
        ({"quantization_config": {"quant_method": "fp8"}, "torch_dtype": "bfloat16"}, "fp8"),
        ({}, None),
    ],
)
def test_the_format_that_the_configuration_states(changes, dtype):
    assert parsed(**changes).weight_dtype == dtype


def test_the_language_model_of_a_multimodal_one():
    shape = parse_config(json.dumps({"model_type": "llava", "text_config": LLAMA}))
    assert shape.n_params == 8030261248
    assert shape.assumptions == ("only the language model of a multimodal one (text_config)",)


def test_names_of_fields_that_older_models_use():
    config = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    shape = parse_config(json.dumps(config))
    positions = 1024 * 768  # learned positions are not counted
    assert shape.n_params == 124439808 - positions


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": None}, r"has no hidden_size \(nor n_embd, d_model\)"),
        ({"vocab_size": None}, "has no vocab_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, not a positive whole number"),
        ({"num_attention_heads": -4}, "num_attention_heads is -4"),
        ({"intermediate_size": "big"}, "intermediate_size is 'big'"),
        ({"num_hidden_layers": float("nan")}, "num_hidden_layers is nan"),
        ({"num_attention_heads": 33}, "hidden_size 4096 is no multiple of 33 heads"),
        ({"layer_types": ["full_attention"]}, "layer_types does not name 32 layers"),
        ({"layer_types": ["hyena"] * 32}, "layer type 'hyena' is not known"),
        ({"num_local_experts": 8}, "has no num_experts_per_tok"),
        ({"num_local_experts": 2, "num_experts_per_tok": 3}, "3 experts a token, but only 2"),
        ({"model_type": "t5"}, r"an encoder-decoder \(t5\) is not known here"),
        ({"is_encoder_decoder": True}, "an encoder-decoder"),
        ({"kv_lora_rank": 512}, "has no qk_rope_head_dim"),
    ],
)
def test_a_configuration_that_lacks_something(changes, said):
    with pytest.raises(InputError, match=said):
        parsed(**changes)


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_what_is_no_configuration(text):
    with pytest.raises(InputError, match="not a"):
        parse_config(text)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"no built-in model named 'gpt-9'.*llama-3-8b"):
        known_shape("gpt-9")
