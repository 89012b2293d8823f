"""Time that must not count twice: GPUs, streams, clocks, interned strings that repeat."""

from __future__ import annotations

import pytest

from tests.support.builders import Export

DEQUANT, GEMM = "dequantize_int4_kernel", "nvjet_tst_64x8"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
HOUR = 3_600_000_000_000


def shares(found):
    """Exposed share of each group."""
    groups = found.frames["dequant_stall"]["groups"]
    return dict(groups.select("group", "share_frac").iter_rows())


@pytest.mark.parametrize("n_gpus", [1, 2, 8])
@pytest.mark.parametrize("processes", [True, False])
def test_a_share_of_the_capture_is_one_of_all_gpus(diagnose, n_gpus, processes):
    e = Export()
    for d in range(n_gpus):
        pid = 100 + d * processes
        e.gpu(d).kernel(0, 900, DEQUANT, device=d, pid=pid).kernel(
            900, 1000, GEMM, device=d, pid=pid
        )
    assert shares(diagnose(e)) == {"whole capture": 0.9}


@pytest.mark.parametrize("n_gpus", [1, 2, 8])
def test_a_share_of_a_step_is_one_of_all_its_gpus(diagnose, n_gpus):
    e = Export().range(-100, 2_000, "step 1")
    for d in range(n_gpus):
        e.gpu(d).kernel(0, 900, DEQUANT, device=d, launch=-50)
        e.kernel(900, 1_000, GEMM, device=d, launch=-40)
    assert shares(diagnose(e)) == {"step N": 0.9, "all steps": 0.9}


def test_stages_of_a_pipeline_are_not_charged_for_each_other(diagnose):
    e = Export().gpu(0).gpu(1).range(-100, 2_000, "step 1")
    e.kernel(0, 500, GEMM, launch=-50)
    e.kernel(500, 900, DEQUANT, device=1, launch=-40).kernel(900, 1_000, GEMM, device=1, launch=-30)
    assert shares(diagnose(e))["step N"] == 0.4


def test_dequantisation_on_two_streams_hides_nothing_and_counts_once(diagnose):
    e = Export().gpu()
    for stream in (7, 8):
        e.kernel(0, 900, DEQUANT, stream=stream).kernel(900, 1_000, GEMM, stream=stream)
    found = diagnose(e)
    periods = found.frames["dequant_stall"]["periods"]
    assert periods["dequant_ns"].to_list() == [900, 900]
    assert sum(periods["exposed_ns"]) == 900
    assert shares(found) == {"whole capture": 0.9}


def test_kernels_of_one_stream_may_lie_inside_each_other(diagnose):
    e = Export().gpu()
    for start, end in ((0, 100), (10, 20), (15, 30), (90, 120)):
        e.kernel(start, end, DEQUANT)
    e.kernel(120, 200, GEMM)
    e.kernel(0, 60, GEMM, stream=9)
    row = diagnose(e).frames["dequant_stall"]["periods"].row(0, named=True)
    assert (row["n_kernels"], row["dequant_ns"], row["exposed_ns"]) == (4, 120, 60)


def rank(offset: int, utc: int | None, uuid: str) -> Export:
    """Thirty matrix products, one a millisecond, on a GPU of their own."""
    e = Export().gpu(uuid=uuid)
    if utc is not None:
        e.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=utc)
    for i in range(30):
        e.kernel(offset + i * 1_000_000, offset + i * 1_000_000 + 300_000, GEMM)
    return e


@pytest.mark.parametrize(
    ("offsets", "clocks"), [((0, 5 * HOUR), (None, None)), ((0, 0), (10**18, 10**18 + 5 * HOUR))]
)
def test_time_between_clocks_that_do_not_match_is_nobodys_idle_time(diagnose, offsets, clocks):
    found = diagnose(*map(rank, offsets, clocks, ("a", "b")))
    assert [a.aligned for a in found.alignment] == [True, False]
    assert found.overview.span_ns == 29_300_000
    spans = [(g.gpu, g.span_ns, g.busy_ns, g.idle_ns) for g in found.overview.gpus]
    assert spans == [(0, 29_300_000, 9_000_000, 20_300_000), (1, 29_300_000, 9_000_000, 20_300_000)]


def test_a_gpu_that_two_clocks_saw_has_the_sum_of_both(diagnose):
    found = diagnose(rank(0, None, "a"), rank(5 * HOUR, None, "a"))
    (gpu,) = found.overview.gpus
    assert (gpu.span_ns, gpu.busy_ns, gpu.n_kernels) == (58_600_000, 18_000_000, 60)


def copying(rank: int, *, stepped: bool) -> Export:
    """A rank whose cache of a GiB moves once a step of 9 ms."""
    e = Export().gpu(uuid=f"u{rank}", memoryBandwidth=4_000_000_000_000)
    for i in range(10):
        begin = 1_000 + i * 10_000_000
        if stepped:
            e.range(begin, begin + 9_500_000, f"step {i}")
        e.kernel(begin + 100, begin + 9_000_100, GEMM, launch=begin + 50)
        place = f"addr={(1 << 45) + i * (1 << 33):#x} bytes={1 << 30}"
        e.mark(begin + 60, f"KV_REALLOC layer=0 kind=k {place}")
    return e


@pytest.mark.parametrize("stepped", [True, False])
def test_a_cache_is_compared_with_the_steps_of_its_own_rank(diagnose, stepped):
    alone = diagnose(copying(0, stepped=stepped)).frames["kv_fragmentation"]["copies"]
    both = diagnose(*(copying(rank, stepped=stepped) for rank in (0, 1)))
    copies = both.frames["kv_fragmentation"]["copies"]
    assert copies.height == 2
    assert set(copies["copy_frac"]) == set(alone["copy_frac"])
    assert alone["copy_frac"].item() > 0.04


def test_strings_given_twice_do_not_multiply_what_they_name(diagnose):
    e = Export().gpu().range(0, 10, "step 1").kernel(0, 100, DEQUANT, launch=1)
    e.kernel(100, 200, GEMM, launch=2).kernel(200, 300, GEMM, launch=3)
    plain = diagnose(e)
    for i in range(1, 6):
        e.add("StringIds", id=i, value="another")
    doubled = diagnose(e)
    assert doubled.overview.n_kernels == 3
    assert doubled.overview.classes == plain.overview.classes
    assert any("strings" in n and "twice" in n for n in doubled.reports[0].notes)
