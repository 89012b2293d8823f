"""The hardware table as a data file: a source and a date in each cell, and files of one's own."""

from __future__ import annotations

import re

import pytest

from tracekit.errors import InputError, UsageError
from tracekit.model.hardware import HARDWARE, find, merged, parse_devices

OWN = """
[sources]
bench = "our benchmark"
[[device]]
key = "H100 SXM5"
dram_gb_per_s = { value = 3000, source = "bench", as_of = "2026-12-01" }
price_usd_per_hour = { value = 2.5, source = "contract", as_of = "2026-12-01" }
[[device]]
key = "X1"
memory_nominal_gb = { value = 64, source = "bench", as_of = "2026-12-01" }
dram_gb_per_s = { value = 1000, source = "bench", as_of = "2026-12-01", checked = false }
fp16_tflops = { value = 100, source = "bench", as_of = "2026-12-01" }
fp8_tflops = { unsupported = true, source = "bench", as_of = "2026-12-01" }
tdp_w = { value = 200, source = "bench", as_of = "2026-12-01" }
"""


def test_every_cell_has_a_source_and_a_date():
    for row in HARDWARE:
        named = {cell.field for cell in row.cells}
        assert {"memory_nominal_gb", "dram_gb_per_s", "fp16_tflops", "tdp_w"} <= named, row.key
        assert row.unverified | row.unsupported <= named, row.key
        for cell in row.cells:
            assert len(cell.source) > 10, (row.key, cell)
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", cell.as_of), (row.key, cell)


def test_a_file_of_ones_own_changes_single_figures_and_adds_devices():
    table = merged(HARDWARE, parse_devices(OWN, HARDWARE))
    assert len(table) == len(HARDWARE) + 1
    h100 = find("h100 sxm5", table)
    assert (h100.dram_gb_per_s, h100.price_usd_per_hour) == (3000, 2.5)
    assert h100.fp16_tflops == find("H100 SXM5").fp16_tflops
    assert {c.field: c.source for c in h100.cells}["dram_gb_per_s"] == "our benchmark"
    own = find("X1", table)
    assert own.unsupported == {"fp8_tflops"}
    assert own.unverified == {"dram_gb_per_s"}
    assert own.as_of == "2026-12-01"


def test_the_tables_own_prices_are_unknown():
    assert {row.price_usd_per_hour for row in HARDWARE} == {None}


@pytest.mark.parametrize("name", ["H200", "h200 sxm", "NVIDIA H200", " H200   SXM "])
def test_a_device_is_found_by_key_or_reported_name(name):
    assert find(name).key == "H200 SXM"


@pytest.mark.parametrize("name", ["H900", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""])
def test_what_is_not_in_the_table(name):
    with pytest.raises(UsageError, match=r"--hardware FILE"):
        find(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("= {", "not a TOML file"),
        ("", "describes no device"),
        ('[[device]]\nchip = "A"', "a device has no key"),
        ('[[device]]\nkey = "A"\nspeed = 3', "device 'A' has an unknown figure 'speed'"),
        ('[[device]]\nkey = "A"\ntdp_w = 3', "device 'A', tdp_w: a figure is"),
        ('[[device]]\nkey = "A"\ntdp_w = { value = 3 }', "device 'A', tdp_w: no source"),
        ('[[device]]\nkey = "A"\ntdp_w = { value = 3, source = "s" }', "as_of is no date"),
        (
            '[[device]]\nkey = "A"\ntdp_w = { value = -3, source = "s", as_of = "2026-01-01" }',
            "tdp_w: value must be positive",
        ),
        (
            '[[device]]\nkey = "A"\ntdp_w = { value = nan, source = "s", as_of = "2026-01-01" }',
            "tdp_w: value must be positive",
        ),
        (
            '[[device]]\nkey = "A"\ntdp_w = { value = 3, source = "s", as_of = "2026-01-01" }',
            "device 'A' has no memory_nominal_gb",
        ),
        ('[[device]]\nkey = "L4"\npattern = "("', "pattern '\\(' is no regular expression"),
    ],
)
def test_a_table_that_cannot_be_used(change, said):
    with pytest.raises(InputError, match=said):
        parse_devices(change, HARDWARE)
