"""Figures that circulate and do not hold: the table and the formulas give others."""

from __future__ import annotations

import pytest

from tracekit.model.hardware import find, pcie_gb_per_s
from tracekit.sizing.bounds.precision import compute_rate, default_compute
from tracekit.sizing.bounds.roofline import Setting, decode, prefill
from tracekit.sizing.models import known_shape


@pytest.mark.parametrize(
    ("gpu", "tflops"), [("H100 SXM5", 1972), ("MI300X", 1420), ("Gaudi2", 1120)]
)
def test_no_such_effective_int4_rate(gpu, tflops):
    device = find(gpu)
    assert device.int4_tops is None
    assert compute_rate(device, default_compute("int4")) / 1e12 == device.fp16_tflops < tflops


def test_gaudi2_has_not_even_such_an_fp8_rate():
    assert find("Gaudi2").fp8_tflops < 1120 / 1.29


def test_power_and_bandwidth():
    assert (find("Gaudi2").tdp_w, find("MI300X").tdp_w) == (600, 750)
    assert find("MI300X").dram_gb_per_s == 5300


def test_memory_is_not_a_host_link():
    assert find("L40S").dram_gb_per_s == 864
    assert find("H100 PCIe").dram_gb_per_s >= 2000 > 10 * pcie_gb_per_s(5)


def test_an_l40s_has_no_gpu_link_but_pcie():
    device = find("L40S")
    assert device.link_both_gb_per_s is None
    assert device.link_one_way_gb_per_s == pytest.approx(31.51, abs=0.01)


def test_intensity_of_decode_does_not_grow_with_the_sequence():
    setting = Setting(
        weight_bytes_per_value=2, cache_bytes_per_value=2, dram_bytes_per_s=3350e9, flop_per_s=1e15
    )
    shape = known_shape("llama-3-8b")
    short, long = (decode(shape, [t], setting).intensity for t in (512, 4096))
    assert 1 < long / short < 1.1
    assert prefill(shape, [4096], setting).intensity != pytest.approx(2 * 4096 / 1.25, rel=0.2)


@pytest.mark.parametrize("gpu", ["H100 SXM5", "H200 SXM", "L40S", "B200"])
def test_rates_are_dense(gpu):
    device = find(gpu)
    assert device.fp8_tflops == pytest.approx(2 * device.fp16_tflops, rel=0.02)
    assert device.fp16_tflops < 2500
