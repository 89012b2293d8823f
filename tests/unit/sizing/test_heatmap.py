"""Heatmaps from traces, copies by process, and rates from link counters."""

from __future__ import annotations

import csv
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import Export
from tracekit.errors import InputError
from tracekit.sizing.measured.copies import tenants
from tracekit.sizing.measured.heatmap import heatmap
from tracekit.sizing.runs.links import counter_rates, drop_frac

READ = "DRAM Read Bandwidth [Throughput %]"
WRITE = "DRAM Write Bandwidth [Throughput %]"


def sampled():
    """100 samples of 1000 ns: reading 80 % in the first half, then 20 %; writing 10 %."""
    times = range(0, 100_000, 1000)
    export = Export().gpu()
    export.kernel(0, 100_000)
    export.metric(READ, times, [80] * 50 + [20] * 50)
    export.metric(WRITE, times, [10] * 100)
    export.metric("PCIe RX Throughput [Throughput %]", times, [0] * 100)
    return export.metric("SMs Active [Throughput %]", times, [99] * 100)


def test_bins_hold_time_weighted_means(traced):
    found = heatmap(traced(sampled()), bin_ns=20_000)
    read = found.cells.filter(metric=READ)
    assert read["mean_pct"].to_list() == pytest.approx([80, 80, 50, 20, 20])
    assert read["bin_start_ns"].to_list() == [0, 20_000, 40_000, 60_000, 80_000]
    assert read["coverage_frac"].to_list() == [1] * 5
    assert set(found.cells["metric"]) == {READ, WRITE}
    assert found.silent == ((0, "PCIe RX Throughput [Throughput %]"),)


def test_totals_add_reads_and_writes_and_know_their_rate(traced):
    (row,) = heatmap(traced(sampled()), bin_ns=10_000).totals.to_dicts()
    assert row["group"] == "DRAM"
    assert row["mean_frac"] == pytest.approx(0.6)
    assert row["busiest_frac"] == pytest.approx(0.9)
    assert row["mean_bytes_per_s"] == pytest.approx(0.6 * 4_814_304_000_000)


def test_a_gap_is_no_zero(traced):
    export = Export().gpu()
    export.kernel(0, 100_000)
    times = [*range(0, 20_000, 1000), *range(60_000, 80_000, 1000)]
    export.metric(READ, times, [50] * 40)
    cells = heatmap(traced(export), bin_ns=20_000).cells
    assert cells["mean_pct"].to_list() == [50, None, None, 50]
    assert cells["coverage_frac"].to_list() == pytest.approx([1, 0, 0, 1])


def test_bins_hold_ten_samples_at_least(traced):
    trace = traced(sampled())
    with pytest.raises(InputError, match="9999 ns is shorter than ten sampling periods, 10000 ns"):
        heatmap(trace, bin_ns=9_999)
    assert heatmap(trace, bins=10_000).bin_ns == 10_000
    assert heatmap(trace, bins=4).bin_ns == 25_000


def test_without_counters_there_is_no_heatmap(traced):
    export = Export().gpu()
    export.kernel(0, 10)
    with pytest.raises(InputError, match="no counter of DRAM, NVLink or PCIe"):
        heatmap(traced(export))


def copies():
    export = Export().gpu()
    export.kernel(0, 10)
    for i in range(100):
        length = 200_000 if i == 99 else 100_000
        export.memcpy(i * 10**6, i * 10**6 + length, kind=1, nbytes=5_000_000, pid=100)
    export.memcpy(0, 1000, kind=2, nbytes=100, pid=200)
    export.memcpy(0, 1000, kind=8, nbytes=10**7, pid=200)
    return export


def test_copies_by_process(traced):
    mine, other = tenants(traced(copies()), peak_bytes_per_s=62.5e9).to_dicts()
    assert (mine["pid"], mine["direction"], mine["n"], mine["n_small"]) == (100, "HtoD", 100, 0)
    assert mine["median_bytes_per_s"] == pytest.approx(50e9)
    assert mine["drop_frac"] == pytest.approx(0.2)
    per_mb = [20_000.0] * 99 + [40_000.0]
    assert mine["p99_ns_per_mb"] == pytest.approx(float(np.percentile(per_mb, 99)))
    assert mine["jitter_ns_per_mb"] == pytest.approx(float(np.percentile(per_mb, 99)) - 20_000)
    assert not mine["insufficient_n"]
    assert (other["direction"], other["n"], other["n_small"]) == ("DtoH", 0, 1)
    assert other["median_bytes_per_s"] is None
    assert other["insufficient_n"]


def test_without_a_peak_nothing_is_below_it(traced):
    assert tenants(traced(copies()))["drop_frac"].to_list() == [None, None]


def test_rate_of_a_counter():
    assert counter_rates([0, 0.1], [1_000_000, 5_000_000])[0] == pytest.approx(40.96e9, rel=1e-6)


def test_below_the_peak():
    assert drop_frac(52.3, 64) == pytest.approx(0.1828125, rel=1e-6)
    assert drop_frac(52.3, 63) == pytest.approx(0.16984127, rel=1e-6)


def test_a_counter_that_starts_anew_has_no_rate_there():
    found = counter_rates([0, 1, 2, 3, 4], [0, 10, 5, math.nan, 20])
    assert found[0] == 10 * 1024
    assert np.isnan(found[1:]).all()


@pytest.mark.parametrize(
    ("time", "values", "said"), [([0], [1], "fewer than two"), ([1, 1], [0, 1], "do not rise")]
)
def test_counters_that_cannot_be_used(time, values, said):
    with pytest.raises(InputError, match=said):
        counter_rates(time, values)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=20))
def test_rates_are_never_negative(counter):
    found = counter_rates(range(len(counter)), counter)
    assert np.all(found[np.isfinite(found)] >= 0)
    assert np.isnan(found).sum() == sum(b < a for a, b in itertools.pairwise(counter))


def test_the_command(said, answered, fixture_path, tmp_path):
    report = fixture_path("allreduce_2gpu")
    code, out, _ = said(
        *("heatmap", report, "--bins", 50, "-o", tmp_path / "h.svg", "-o", tmp_path / "h.csv")
    )
    assert code == 0
    assert "CXL traffic is not measurable from these inputs" in out
    assert "  1  NVLink RX" in out
    with (tmp_path / "h.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("gpu", "bin_start_ns", "bin_end_ns", "metric", "mean_pct", "coverage_frac")
    ]
    assert {row["gpu"] for row in rows} == {"0", "1"}
    assert (tmp_path / "h.svg").stat().st_size > 1000
    found = answered("heatmap", report, "--bins", 50)
    assert len(found["cells"]) == len(rows)
    assert found["unknown"]


def test_a_report_without_counters(said, fixture_path):
    code, out, error = said("heatmap", fixture_path("kv_stride_l2"))
    assert (code, out) == (3, "")
    assert "record with --gpu-metrics-devices=all" in error
