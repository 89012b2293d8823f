"""Peaks: what is in the table, what is not, and which figure a share of peak refers to."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from tracekit.errors import UsageError
from tracekit.model.hardware import (
    HARDWARE,
    Hardware,
    is_mig,
    lookup,
    pcie_gb_per_s,
    peak_bandwidth,
)

GIB = 2**30


def _row(name: str) -> Hardware:
    row = lookup(name)
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA H100 SXM5", "H100 SXM5"),
        ("H100", "H100 SXM5"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80 PCIe"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L20", "L20"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("Gaudi2", "Gaudi2"),
    ],
)
def test_reported_names_are_found(name: str, key: str) -> None:
    assert _row(name).key == key


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA GH200 480GB",
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA H20",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA H100 64GB HBM2",
    ],
)
def test_unlisted_devices_are_unknown(name: str | None) -> None:
    assert lookup(name) is None


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H200 MIG 2g.35gb", "NVIDIA A100-SXM4-80GB MIG"],
)
def test_a_mig_slice_has_no_peak(name: str) -> None:
    assert is_mig(name)
    assert lookup(name, "GH100", sm_count=132, memory_bytes=150109880320) is None
    assert peak_bandwidth(lookup(name), reported_bytes_per_s=4.8e12) is None
    own = peak_bandwidth(lookup(name), achievable_gb_per_s=400.0)
    assert own is not None
    assert (own.gb_per_s, own.source) == (400.0, "user")


def test_no_gpu_information_is_no_ceiling() -> None:
    assert lookup(None) is None
    assert peak_bandwidth(None, reported_bytes_per_s=4.8e12) is None


@pytest.mark.parametrize(
    ("name", "chip", "sm_count", "memory_bytes", "key"),
    [
        (None, "GH100", 132, 150109880320, "H200 SXM"),
        ("Graphics Device", "GH100", 132, 150109880320, "H200 SXM"),
        (None, "GH100", 132, 85 * 10**9, "H100 SXM5"),
        (None, "GH100", 114, 85 * 10**9, "H100 PCIe"),
        (None, "GH100", 132, 96 * GIB, None),
        (None, "GA100", 108, 80 * GIB, None),
        (None, "GH100", None, 80 * GIB, None),
        (None, "GH100", 132, None, None),
        ("NVIDIA H200 NVL", "GH100", 132, 150109880320, None),
        (None, "XX999", 132, 150109880320, None),
    ],
)
def test_chip_decides_only_where_it_is_one_product(
    name: str | None,
    chip: str | None,
    sm_count: int | None,
    memory_bytes: int | None,
    key: str | None,
) -> None:
    row = lookup(name, chip, sm_count=sm_count, memory_bytes=memory_bytes)
    assert (row.key if row else None) == key


@pytest.mark.parametrize(
    ("key", "dram", "fp16", "fp8", "tdp", "one_way"),
    [
        ("H100 SXM5", 3350, 989.4, 1978.9, 700, 450),
        ("H100 PCIe", 2000, 756, 1513, 350, 300),
        ("H200 SXM", 4800, 989.4, 1978.9, 700, 450),
        ("A100 80 SXM", 2039, 312, None, 400, 300),
        ("A100 80 PCIe", 1935, 312, None, 300, 300),
        ("L40S", 864, 362.05, 733, 350, 31.507692),
        ("L4", 300, 121, 242.5, 72, 31.507692),
        ("L20", 864, 119.5, 239, 275, 31.507692),
        ("B200", 8000, 2250, 4500, 1000, 900),
        ("GB200", 8000, 2500, 5000, 1200, 900),
        ("MI300X", 5300, 1307.4, 2614.9, 750, 448),
        ("Gaudi2", 2450, 432, 865, 600, 300),
    ],
)
def test_figures_of_every_row(
    key: str, dram: float, fp16: float, fp8: float | None, tdp: float, one_way: float
) -> None:
    row = next(row for row in HARDWARE if row.key == key)
    assert (row.dram_gb_per_s, row.fp16_tflops, row.fp8_tflops, row.tdp_w) == (
        *(dram, fp16, fp8),
        tdp,
    )
    assert row.link_one_way_gb_per_s == pytest.approx(one_way, rel=1e-6)


def test_rows_are_consistent() -> None:
    names = {field.name for field in fields(Hardware)}
    assert len({row.key for row in HARDWARE}) == len(HARDWARE) == 12
    for row in HARDWARE:
        assert row.unverified <= names, row.key
        assert row.unsupported <= names, row.key
        assert not row.unsupported & row.unverified, row.key
        assert all(getattr(row, field) is None for field in row.unsupported), row.key
        assert all(getattr(row, field) is not None for field in row.unverified), row.key
        assert row.source, row.key
        assert len(row.as_of) == len("2026-11-30"), row.key
        assert lookup(row.key) in (row, None), row.key


def test_runtime_values_override_the_table() -> None:
    row = _row("NVIDIA L4").at_runtime(sm_count=60, l2_bytes=50331648)
    assert (row.sm_count, row.l2_bytes) == (60, 50331648)
    assert row.unverified == {"int8_tops"}
    absent = _row("NVIDIA L4").at_runtime(sm_count=0)
    assert absent == _row("NVIDIA L4")


@pytest.mark.parametrize(
    ("reported", "gb_per_s", "source"),
    [
        (4814304000000, 4814.304, "device"),
        (4320000000000, 4320.0, "device"),
        (4319000000000, 4800.0, "table"),
        (5281000000000, 4800.0, "table"),
        (0, 4800.0, "table"),
        (None, 4800.0, "table"),
    ],
)
def test_reported_bandwidth_counts_within_ten_percent(
    reported: float | None, gb_per_s: float, source: str
) -> None:
    peak = peak_bandwidth(_row("NVIDIA H200"), reported_bytes_per_s=reported)
    assert peak is not None
    assert peak.gb_per_s == pytest.approx(gb_per_s, rel=1e-9)
    assert (peak.source, peak.verified) == (source, True)


def test_a_measurement_of_the_user_comes_first() -> None:
    peak = peak_bandwidth(
        _row("NVIDIA H200"), achievable_gb_per_s=4200.0, reported_bytes_per_s=4814304000000
    )
    assert peak is not None
    assert (peak.gb_per_s, peak.source) == (4200.0, "user")


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_achievable_bandwidth_must_be_positive(value: float) -> None:
    with pytest.raises(UsageError, match="must be positive"):
        peak_bandwidth(None, achievable_gb_per_s=value)


@pytest.mark.parametrize(("generation", "gb_per_s"), [(3, 15.75), (4, 31.51), (5, 63.02)])
def test_pcie_peak_one_way(generation: int, gb_per_s: float) -> None:
    assert pcie_gb_per_s(generation) == pytest.approx(gb_per_s, abs=5e-3)
    assert pcie_gb_per_s(generation, lanes=8) == pytest.approx(pcie_gb_per_s(generation) / 2)


def test_pcie_generation_is_checked() -> None:
    with pytest.raises(UsageError, match="generation 7"):
        pcie_gb_per_s(7)
