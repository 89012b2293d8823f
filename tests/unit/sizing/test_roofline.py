"""Roofline: the worked examples, monotony, and claims above the bound."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import UsageError
from tracekit.model.hardware import HARDWARE, find
from tracekit.sizing.bounds.precision import compute_rate, default_compute
from tracekit.sizing.bounds.roofline import (
    Setting,
    balance_batch,
    bandwidth_needed,
    decode,
    prefill,
    token_rate_bound,
)
from tracekit.sizing.bounds.workload import Workload, assess, claim, target
from tracekit.sizing.models import AttentionLayers, ModelShape, known_shape

EXACT = 1e-6
H100 = Setting(
    weight_bytes_per_value=2,
    cache_bytes_per_value=2,
    dram_bytes_per_s=3350e9,
    flop_per_s=989.4e12,
)


def gqa(n_params, n_layers, n_heads, kv_heads=8, size=128):
    """A model of which only the sums matter: no look-ups, every weight multiplied."""
    group = AttentionLayers(
        kind="full",
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=kv_heads,
        decode_dim=2 * size,
        prefill_dim=2 * size,
        cache_values_per_token=2 * kv_heads * size,
    )
    return ModelShape(name="model", n_params=n_params, attention=(group,))


LLAMA_8B, LLAMA_70B = gqa(8_030_000_000, 32, 32), gqa(70_550_000_000, 80, 64)


def test_decode_of_70b_on_four_gpus():
    step = decode(LLAMA_70B, [4096] * 8, replace(H100, tp=4), writes=False)
    assert step.cache_bytes * 4 == 10737418240
    assert step.bytes == pytest.approx((141.1e9 + 10737418240) / 4, rel=EXACT)
    assert step.memory_s == pytest.approx(0.011331, rel=1e-4)
    assert step.tokens_per_s == pytest.approx(8 / (37.95935456e9 / 3350e9), rel=EXACT)
    assert round(step.tokens_per_s) == 706


def test_decode_of_8b():
    step = decode(LLAMA_8B, [2048] * 16, H100, writes=False)
    assert step.bytes == 16_060_000_000 + 4_294_967_296
    assert step.memory_s == pytest.approx(20_354_967_296 / 3350e9, rel=EXACT)
    assert step.flops == pytest.approx(274.139869184e9, rel=EXACT)
    assert step.intensity == pytest.approx(274.139869184 / 20.354967296, rel=EXACT)
    assert step.ridge == pytest.approx(989.4e12 / 3350e9, rel=EXACT)
    assert step.compute_s == pytest.approx(0.277e-3, rel=1e-3)
    assert step.bound == "memory"


def test_prefill_of_8b():
    step = prefill(LLAMA_8B, [2048], H100)
    assert step.flops == pytest.approx(33.990e12, rel=1e-4)
    assert step.time_s == pytest.approx(34.35e-3, rel=1e-3)
    assert step.intensity == pytest.approx(2081.7, rel=1e-4)
    assert step.bound == "compute"


@pytest.mark.parametrize(
    ("gpu", "bytes_per_weight", "batch"),
    [
        ("H100 SXM5", 2, 989.4e12 / 3350e9),
        ("H100 SXM5", 0.5, 989.4e12 / 3350e9 / 4),
        ("A100 80 SXM", 2, 312e12 / 2039e9),
        ("L40S", 2, 362.05e12 / 864e9),
    ],
)
def test_batch_of_balance(gpu, bytes_per_weight, batch):
    device = find(gpu)
    found = balance_batch(
        compute_rate(device, "fp16"), device.dram_gb_per_s * 1e9, bytes_per_weight
    )
    assert found == pytest.approx(batch, rel=EXACT)
    assert round(found, 1) in (295.3, 73.8, 153.0, 419.0)


@pytest.mark.parametrize(("gpu", "bound"), [("L4", 78.7), ("L40S", 226.8), ("H100", 879.3)])
def test_token_rate_that_weights_allow(gpu, bound):
    found = token_rate_bound(7.62e9, 0.5, find(gpu).dram_gb_per_s * 1e9)
    assert round(found, 1) == bound


@pytest.mark.parametrize(
    ("n_params", "target_s", "needed"), [(7e9, 0.05, 280e9), (70e9, 0.05, 2800e9)]
)
def test_bandwidth_follows_from_the_target(n_params, target_s, needed):
    assert bandwidth_needed(2 * n_params, target_s) == pytest.approx(needed, rel=EXACT)
    assert bandwidth_needed(2 * n_params, 0.04375) == pytest.approx(needed * 0.05 / 0.04375)


def test_the_output_head_multiplies_one_token_of_a_prompt():
    shape = known_shape("llama-3-8b")
    last, every = prefill(shape, [2048], H100), prefill(shape, [2048], H100, all_logits=True)
    assert every.flops - last.flops == pytest.approx(2 * 2047 * 128256 * 4096)
    assert prefill(shape, [1], H100).flops == prefill(shape, [1], H100, all_logits=True).flops


def test_new_tokens_are_written():
    shape = known_shape("llama-3-8b")
    step = decode(shape, [2048] * 16, H100)
    assert step.cache_bytes == 131072 * (2048 * 16 + 16)


def test_latent_attention_multiplies_latents_in_decode():
    shape = known_shape("deepseek-v2")
    step = decode(shape, [1000], H100)
    attention = 2 * 60 * 128 * (2 * 512 + 64) * 1000
    assert step.flops == pytest.approx(2 * shape.active_params + attention)


def test_a_claim_above_the_bound_is_implausible():
    found = assess(known_shape("llama-3-8b"), find("L4"), Workload())
    bound = found.decode.tokens_per_s
    assert claim(found, bound * 1.01).verdict == "implausible"
    assert claim(found, bound).verdict == "possible"


def test_without_a_compute_peak_a_claim_is_only_refuted():
    device = replace(find("Gaudi2"), int8_tops=None)
    load = Workload(dtype="int8", compute_dtype="int8")
    found = assess(known_shape("llama-3-8b"), device, load)
    assert (found.decode.time_s, found.decode.bound, found.balance_batch) == (None, "unknown", None)
    assert "int8 rate of Gaudi2" in str(found.missing[0])
    by_memory = found.decode.tokens / found.decode.memory_s
    assert claim(found, by_memory * 2).verdict == "implausible"
    assert claim(found, by_memory / 2).verdict == "unknown"
    assert target(found, found.decode.memory_s / 2, HARDWARE).met is False
    assert target(found, found.decode.memory_s * 2, HARDWARE).met is None


def test_a_rate_that_a_device_has_not():
    with pytest.raises(UsageError, match="A100 80 SXM has no fp8 tensor rate"):
        compute_rate(find("A100 80 SXM"), "fp8")
    with pytest.raises(UsageError, match=r"H100 SXM5 has no int4 tensor rate.*W4A16 runs as fp16"):
        compute_rate(find("H100"), "int4")


@pytest.mark.parametrize(
    ("weights", "computed"), [("int4", "fp16"), ("fp8", "fp8"), ("fp32", "fp16")]
)
def test_four_bit_weights_are_multiplied_as_fp16(weights, computed):
    assert default_compute(weights) == computed


def test_experts_move_the_balance():
    load = Workload(dtype="fp8", compute_dtype="fp8")
    shape = known_shape("deepseek-v3")
    found = assess(shape, find("H200"), load).balance_batch
    dense = 1978.9e12 / 4800e9 / 2
    weights = shape.n_params - shape.lookup_params
    assert found == pytest.approx(dense * weights / shape.active_params)
    at = replace(H100, weight_bytes_per_value=1, dram_bytes_per_s=4800e9, flop_per_s=1978.9e12)
    step = decode(shape, [0] * round(found), at, writes=False)
    assert step.memory_s == pytest.approx(step.compute_s, rel=0.01)


def test_capacity():
    load = Workload(batch=200, context_tokens=4096)
    found = assess(known_shape("llama-3-8b"), find("H100"), load).capacity
    assert found.weight_bytes == 2 * 8030261248
    assert found.allowed_bytes == 72e9
    assert found.max_batch == math.floor((72e9 - 2 * 8030261248) / (131072 * 4096)) == 104
    assert not found.fits
    alone = assess(known_shape("llama-3-70b"), find("H100"), load).capacity
    assert (alone.fits, alone.max_batch) == (False, 0)


def test_a_target_names_the_devices_that_are_fast_enough():
    load = Workload(context_tokens=1)
    found = target(assess(LLAMA_8B, find("L4"), load), 2 * 8.03e9 / 2000e9 * 1.001, HARDWARE)
    assert not found.met
    assert set(found.too_slow) == {"A100 80 PCIe", "L40S", "L4", "L20"}


@given(
    batch=st.integers(1, 64),
    context=st.integers(1, 32768),
    name=st.sampled_from(["llama-3-8b", "mixtral-8x7b", "deepseek-v2", "gemma-2-9b", "jamba-v0_1"]),
)
def test_more_work_never_takes_less(batch, context, name):
    shape = known_shape(name)
    step = decode(shape, [context] * batch, H100)
    more = decode(shape, [context + 1] * batch, H100)
    wider = decode(shape, [context] * (batch + 1), H100)
    assert step.bytes <= more.bytes
    assert step.flops <= more.flops
    assert step.bytes < wider.bytes
    assert step.flops < wider.flops
    assert step.time_s == max(step.memory_s, step.compute_s)
