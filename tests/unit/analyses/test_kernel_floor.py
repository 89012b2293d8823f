"""The floor of kernels on traces whose limits are known."""

from __future__ import annotations

import polars as pl
import pytest

from tests.support.builders import Export
from tracekit import engine
from tracekit.analyses import load
from tracekit.analyses.kernel_floor.limits import Limit, judged
from tracekit.model.finding import Level
from tracekit.report import summary

US = 1_000
GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT"
READ, WRITE = "DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]"
TENSOR, SMS = "Tensor Active [Throughput %]", "SMs Active [Throughput %]"


def _row(**values):
    base = {
        "n_pure": 0,
        "dram_frac": None,
        "tensor_frac": None,
        "sms_active_frac": None,
        "median_ns": 50_000.0,
        "few_blocks_frac": 0.0,
        "time_ns": 1_000_000,
    }
    return base | values


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"dram_frac": 0.80, "tensor_frac": 0.1}, Limit.DRAM),
        ({"dram_frac": 0.1, "tensor_frac": 0.80}, Limit.TENSOR),
        ({"dram_frac": 0.79, "tensor_frac": 0.1}, Limit.NEAR_DRAM),
        ({"dram_frac": 0.1, "tensor_frac": 0.6}, Limit.NEAR_TENSOR),
        ({"dram_frac": 0.59, "tensor_frac": 0.1, "sms_active_frac": 0.59}, Limit.LOW_OCCUPANCY),
        ({"dram_frac": 0.59, "tensor_frac": 0.1, "sms_active_frac": 0.60}, Limit.UNSATURATED),
        ({"dram_frac": 0.59, "tensor_frac": None, "sms_active_frac": 0.60}, Limit.UNKNOWN),
    ],
)
def test_the_table_of_verdicts(values, limit):
    assert judged(_row(n_pure=5, **values)).limit is limit
    assert judged(_row(n_pure=4, **values), period_ns=10).limit is Limit.UNKNOWN


def test_small_kernels_need_no_samples_but_a_slow_one_on_few_blocks_proves_nothing():
    assert judged(_row(median_ns=9_999.0, few_blocks_frac=1.0)).limit is Limit.LATENCY
    assert judged(_row(median_ns=27_600.0, few_blocks_frac=1.0)).limit is Limit.UNKNOWN
    assert judged(_row(median_ns=9_999.0, few_blocks_frac=None)).limit is Limit.UNKNOWN


def test_the_bound_at_a_limit():
    assert judged(_row(n_pure=9, dram_frac=0.884)).bound_ns == pytest.approx(
        1_000_000 * (1 - 0.884 / 0.94)
    )
    assert judged(_row(n_pure=9, dram_frac=0.99)).bound_ns == 0
    assert judged(_row(n_pure=9, dram_frac=0.9), 0.9).bound_ns == 0
    near = judged(_row(n_pure=9, dram_frac=0.75))
    assert near.speedup_most_frac == pytest.approx(1 / 3)


def _sampled(values, covered):
    """Cells of 100 us of which a kernel covers a share each; DRAM read in percent."""
    e = Export().gpu()
    for i, (share, value) in enumerate(zip(covered, values, strict=True)):
        at = (i + 1) * 100 * US
        e.kernel(at, at + round(share * 100 * US), GEMM, grid=(500, 1, 1))
        e.metric(READ, [at], [value])
        for name, constant in ((WRITE, 0), (TENSOR, 5), (SMS, 95)):
            e.metric(name, [at], [constant])
    return e


def _floor(traced, export, **params):
    analysis = load("kernel_floor")
    frames, findings = engine.run(analysis, traced(export), analysis.params(**params))
    return frames, findings


def test_five_pure_cells_are_a_verdict_and_four_are_none(traced):
    values, covered = [90, 90, 80, 80, 60, 10], [1, 1, 0.95, 0.9, 0.9, 0.5]
    frames, (finding,) = _floor(traced, _sampled(values, covered))
    row = frames["classes"].row(0, named=True)
    assert (row["n_pure"], row["dram_frac"]) == (5, pytest.approx(0.80))
    assert (row["verdict"], finding.level) == ("at the DRAM limit", Level.OK)
    frames, (finding,) = _floor(traced, _sampled(values[1:], covered[1:]))
    assert frames["classes"]["verdict"].to_list() == ["unknown"]
    assert finding.level is Level.UNKNOWN


def test_a_gpu_at_the_dram_limit_is_fine_and_says_so(traced):
    _, (finding,) = _floor(traced, _sampled([88] * 30, [1] * 30))
    assert finding.level is Level.OK
    assert finding.title.startswith("at the DRAM limit: 88.0% of peak bandwidth (read 88.0%,")
    assert finding.confidence.label == "high"


def test_few_busy_multiprocessors_are_a_warning_only_where_they_take_much_of_the_span(traced):
    e = Export().gpu()
    for i in range(20):
        at = (i + 1) * 100 * US
        e.kernel(at, at + 100 * US, GEMM, grid=(8, 1, 1))
        for name, value in ((READ, 20), (WRITE, 1), (TENSOR, 5), (SMS, 6)):
            e.metric(name, [at], [value])
    _, (finding,) = _floor(traced, e)
    assert (finding.level, finding.title.partition(":")[0]) == (Level.WARN, "low occupancy")
    _, (finding,) = _floor(traced, e, warn_frac=1.0)
    assert finding.level is Level.OK


def test_small_kernels_are_a_warning_only_where_they_take_much_of_the_span(traced):
    busy, idle = Export().gpu(), Export().gpu()
    for i in range(50):
        busy.kernel(1 + i * 6 * US, 1 + (i * 6 + 5) * US, GEMM, grid=(8, 1, 1))
        idle.kernel(1 + i * 60 * US, 1 + (i * 60 + 5) * US, GEMM, grid=(8, 1, 1))
    for export, level in ((busy, Level.WARN), (idle, Level.OK)):
        _, (finding,) = _floor(traced, export)
        assert finding.level is level
        assert finding.title.startswith("latency-bound: median 5.00 us on fewer blocks than 132")
        assert finding.advice.startswith("Fuse these kernels")


def test_dram_counters_of_a_partitioned_gpu_read_zero_and_are_unknown(traced):
    e = _sampled([0] * 10, [1] * 10)
    frames, (finding,) = _floor(traced, e)
    row = frames["classes"].row(0, named=True)
    assert (row["dram_frac"], row["verdict"]) == (None, "unknown")
    assert finding.level is Level.UNKNOWN


def test_one_combined_dram_counter_has_a_total_and_no_split(traced):
    e = Export().gpu()
    for i in range(10):
        at = (i + 1) * 100 * US
        e.kernel(at, at + 100 * US, GEMM)
        e.metric("DRAM Bandwidth [Throughput %]", [at], [85])
    frames, (finding,) = _floor(traced, e)
    row = frames["classes"].row(0, named=True)
    assert (row["dram_read_frac"], row["dram_frac"]) == (None, pytest.approx(0.85))
    assert finding.title.startswith("at the DRAM limit: 85.0% of peak bandwidth in")


def test_an_invalid_sample_is_no_pure_cell(traced):
    frames, _ = _floor(traced, _sampled([90, 90, -5, 90, 90, 120], [1] * 6))
    row = frames["classes"].row(0, named=True)
    assert row["dram_read_frac"] == pytest.approx((4 * 0.9 + 1.0) / 5)


def test_communication_has_no_limit_but_is_listed(traced):
    e = Export().gpu().kernel(0, 100 * US, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)")
    frames, (finding,) = _floor(traced, e)
    assert frames["top_kernels"]["verdict"].to_list() == ["communication"]
    assert finding.level is Level.UNKNOWN


def test_one_kernel_in_four_spellings_is_one_row(traced):
    spellings = [
        "void ns::(anonymous namespace)::scale<(int)128, float>(float*, int)",
        "void ns::<unnamed>::scale<128, float>(float*, int)",
        "ns::(anonymous namespace)::scale<128, float>(float *, int)",
        "void ns::(anonymous namespace)::scale<(int)128,float>(float*,int)",
    ]
    e = Export().gpu()
    for i, name in enumerate(spellings):
        e.kernel(1 + i * 100 * US, 1 + (i * 100 + 10 * (i + 1)) * US, name)
    frames, _ = _floor(traced, e)
    row = frames["top_kernels"].row(0, named=True)
    assert frames["top_kernels"].height == 1
    assert (row["n"], row["time_ns"], row["median_ns"]) == (4, 100 * US, 25 * US)
    assert row["share_frac"] == 1.0


def test_shares_are_of_all_work_of_the_gpu_copies_included(traced):
    e = Export().gpu().kernel(1, 1 + 4 * US, "mystery_fwd").memcpy(10 * US, 106 * US, kind=1)
    frames, _ = _floor(traced, e)
    row = frames["top_kernels"].row(0, named=True)
    assert (row["kind"], row["share_frac"]) == ("unclassified", pytest.approx(0.04))


def test_kernels_of_an_unknown_gpu_are_not_judged(traced):
    e = Export().gpu().kernel(1, 1 + 50 * US, GEMM)
    e.drop_columns("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId")
    e.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0].pop("deviceId")
    frames, (finding,) = _floor(traced, e)
    assert frames["gpus"].is_empty()
    assert finding.level is Level.UNKNOWN


def test_each_gpu_has_its_own_rows(traced):
    e = Export().gpu(0).gpu(1)
    for device, length in ((0, 10), (1, 30)):
        for i in range(3):
            e.kernel(1 + i * 100 * US, 1 + (i * 100 + length) * US, GEMM, device=device)
    frames, _ = _floor(traced, e)
    top = frames["top_kernels"].select("gpu", "n", "median_ns")
    assert top.rows() == [(0, 3, 10_000.0), (1, 3, 30_000.0)]
    assert frames["gpus"].select(pl.col("kernel_ns").cast(pl.Int64)).to_series().to_list() == [
        30_000,
        90_000,
    ]


def test_the_first_line_says_that_a_run_is_at_the_limit(tmp_path):
    path = _sampled([88] * 30, [1] * 30).write(tmp_path / "a.sqlite")
    diagnosis = engine.analyze([path])
    said = summary.verdict(diagnosis)
    assert said.startswith("GPU 0 is at the DRAM limit, 88.0% of peak. No problem found")
    path = _sampled([88] * 30, [0.4] * 25 + [1] * 5).write(tmp_path / "b.sqlite")
    assert summary.verdict(engine.analyze([path])).startswith("No problem found")
