"""Predicted against measured bytes, bandwidth and time, on recordings of H200s."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from tracekit.opening import open_trace
from tracekit.sizing.bounds.against_bound import against_bound
from tracekit.sizing.bounds.roofline import Setting, decode
from tracekit.sizing.bounds.traffic import step_traffic
from tracekit.sizing.measured.bandwidth import bus_bandwidths, step_traffic_of
from tracekit.sizing.measured.phases import phases
from tracekit.sizing.models import AttentionLayers, ModelShape, parse_config

H200_BYTES_PER_S = 4_814_304_000_000
BF16 = {"weight_bytes_per_value": 2, "cache_bytes_per_value": 2}


def setting(tp=1):
    return Setting(**BF16, dram_bytes_per_s=H200_BYTES_PER_S, flop_per_s=989.4e12, tp=tp)


def matrices(depth, width, layers):
    """Layers of one matrix each, without a cache: what the INT4 workload multiplies."""
    nothing = AttentionLayers(
        kind="full",
        n_layers=layers,
        n_heads=1,
        n_kv_heads=1,
        decode_dim=0,
        prefill_dim=0,
        cache_values_per_token=0,
    )
    return ModelShape(name="matrices", n_params=depth * width * layers, attention=(nothing,))


HIDDEN, INNER, LAYERS, HEADS = 4096, 11008, 16, 32
SHARDED = ModelShape(
    name="tensor_parallel.py",
    n_params=LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER),
    hidden_size=HIDDEN,
    attention=(
        AttentionLayers(
            kind="full",
            n_layers=LAYERS,
            n_heads=HEADS,
            n_kv_heads=HEADS,
            decode_dim=2 * 128,
            prefill_dim=2 * 128,
            cache_values_per_token=2 * HEADS * 128,
        ),
    ),
)
SMALL_LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="module")
def measured(fixture_path):
    """Return a function from the names of reports to their steps, by group and GPU."""

    def steps(*names):
        with ExitStack() as stack:
            trace = stack.enter_context(open_trace([fixture_path(n) for n in names]))
            return {(p.group, p.gpu): p for p in phases(trace)}

    return steps


def test_bf16_matrices_move_what_they_hold(measured):
    step = measured("int4_dequant")["decode step=N path=bf16", 0]
    bound = decode(matrices(4096, 11008, 8), [0] * 4, setting())
    found = against_bound(bound, step.time_s, step.dram_bytes, H200_BYTES_PER_S)
    assert bound.bytes == 8 * 4096 * 11008 * 2 == 721_420_288
    assert found.bytes_ratio == pytest.approx(1.003, abs=0.001)
    assert found.time_ratio == pytest.approx(1.377, abs=0.001)
    assert found.bandwidth_frac == pytest.approx(0.729, abs=0.001)
    assert found.verdict == "slower"
    (reason,) = found.reasons
    assert reason == "73% of the bandwidth: launch gaps, small kernels or communication"


def test_the_matrix_products_do_not_fill_the_gpu(fixture_path):
    with open_trace([fixture_path("int4_dequant")]) as trace:
        products = trace.frame("kernels").filter(grid_y=22)
        assert trace.gpus[0].sm_count == 132
    blocks = (products["grid_x"] * products["grid_y"] * products["grid_z"]).unique().to_list()
    assert (products.height, blocks) == (160, [88])


def test_separate_dequantisation_moves_four_and_a_half_bytes_a_weight(measured):
    step = measured("int4_dequant")["decode step=N path=dequant_then_gemm", 0]
    weights = 8 * 4096 * 11008
    predicted = weights * (0.5 + 2 + 2) + weights / 128 * 4
    assert step.dram_bytes / predicted == pytest.approx(0.977, abs=0.001)


@pytest.mark.parametrize(
    ("mode", "gpu", "bytes_ratio"),
    [("clean", 0, 1.037), ("clean", 1, 1.047), ("offload", 0, 1.045), ("offload", 1, 1.043)],
)
def test_tensor_parallel_decode_moves_weights_and_cache(measured, mode, gpu, bytes_ratio):
    step = measured("tp_decode_rank0", "tp_decode_rank1")[f"decode step=N mode={mode}", gpu]
    bound = decode(SHARDED, [2048] * 32, setting(tp=2), writes=False)
    assert bound.weight_bytes == 2_516_582_400
    assert bound.cache_bytes == 8_589_934_592
    assert step.dram_bytes / bound.bytes == pytest.approx(bytes_ratio, abs=0.001)


def test_tensor_parallel_decode_is_slower_by_launch_gaps_and_waiting(measured):
    step = measured("tp_decode_rank0", "tp_decode_rank1")["decode step=N mode=clean", 0]
    bound = decode(SHARDED, [2048] * 32, setting(tp=2), writes=False)
    found = against_bound(bound, step.time_s, step.dram_bytes, H200_BYTES_PER_S)
    assert found.time_ratio == pytest.approx(4.02, abs=0.01)
    assert found.bandwidth_frac == pytest.approx(0.258, abs=0.001)
    assert found.verdict == "slower"


def test_all_reduces_are_as_many_and_as_large_as_predicted(fixture_path):
    reports = [fixture_path(f"tp_decode_rank{r}") for r in (0, 1)]
    with open_trace(reports) as trace:
        rows, bandwidth = step_traffic_of(trace).to_dicts(), bus_bandwidths(trace).to_dicts()
    predicted = step_traffic(SHARDED, "decode", 32, 2)
    assert predicted.n_all_reduces == 32
    assert {row["all_reduces_per_step"] for row in rows} == {32}
    assert {row["sent_bytes_per_step"] for row in rows} == {predicted.sent_bytes}
    (one,) = bandwidth
    assert one["transfer_ns"] == pytest.approx(7840, abs=1)
    assert one["bus_gb_per_s"] == pytest.approx(33.44, abs=0.01)
    assert one["link_frac"] == pytest.approx(0.0743, abs=0.0001)


def test_bandwidth_of_large_messages(fixture_path):
    with open_trace([fixture_path("allreduce_2gpu")]) as trace:
        rows = bus_bandwidths(trace).to_dicts()
    assert [row["bytes"] for row in rows] == [1 << 20, 16 << 20, 64 << 20]
    assert [round(row["bus_gb_per_s"]) for row in rows] == [33, 189, 192]
    assert {row["link_gb_per_s"] for row in rows} == {450}


def test_one_rank_alone_gives_sizes_but_no_bandwidth(fixture_path):
    with open_trace([fixture_path("tp_decode_rank0")]) as trace:
        assert bus_bandwidths(trace).is_empty()
        assert {r["all_reduces_per_step"] for r in step_traffic_of(trace).to_dicts()} == {32}


def test_a_step_that_is_mostly_idle(measured):
    step = measured("hf_dynamic_cache")["decode step=N", 0]
    shape = parse_config(json.dumps(SMALL_LLAMA))
    bound = decode(shape, [66], setting())
    found = against_bound(bound, step.time_s, step.dram_bytes, H200_BYTES_PER_S)
    assert bound.weight_bytes == 2 * (shape.n_params - 32000 * 2048)
    assert bound.bytes == pytest.approx(311.8e6, rel=0.001)
    assert found.verdict == "slower"
    assert found.time_ratio == pytest.approx(57.3, abs=0.1)
    assert found.bytes_ratio == pytest.approx(1.492, abs=0.001)
    assert found.bandwidth_frac == pytest.approx(0.026, abs=0.001)
    one_percent_bytes = 0.01 * H200_BYTES_PER_S * step.time_s
    assert one_percent_bytes == pytest.approx(178.6e6, rel=0.001)
    assert "whole percent" in found.reasons[0]
