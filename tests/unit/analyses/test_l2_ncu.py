"""L2 misses that Nsight Compute counted: ratios, matching with the timeline, what stays unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import Export
from tests.support.ncu_pages import Page
from tracekit.analyses import load
from tracekit.engine import run
from tracekit.model.finding import Finding, Level
from tracekit.model.ncu import CACHE_CAVEAT
from tracekit.opening import open_trace
from tracekit.trace.analysis import Frames

US = 1_000
BASE = 0x7F0000000000
UNITS = {
    "gpu__time_duration.sum": "us",
    "dram__bytes_read.sum": "byte",
    "lts__t_sectors.sum": "sector",
    "lts__t_sector_hit_rate.pct": "%",
    "lts__t_sectors_srcunit_tex.sum": "sector",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum": "sector",
    "lts__t_sectors_srcunit_tex_lookup_hit.sum": "sector",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
    "sm__maximum_warps_per_active_cycle_pct": "%",
}
TEX = "lts__t_sectors_srcunit_tex"
Judge = Callable[..., tuple[Frames, dict[str, Finding]]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Return a function that runs the analysis on a page and, if given, a timeline."""

    def go(page: Page, export: Export | None = None, **params: Any):
        analysis = load("l2_miss")
        paths = [page.write(tmp_path / "k.csv")]
        paths += [] if export is None else [export.write(tmp_path / "r.sqlite")]
        with open_trace(paths) as trace:
            frames, findings = run(analysis, trace, analysis.params(**params))
            return frames, {f.id.partition("/")[2]: f for f in findings}

    return go


def counted(page: Page, name: str, misses: int, lookups: int, **more: Any) -> Page:
    """Add an execution with its misses."""
    dotted = {f"{TEX}.sum": lookups, f"{TEX}_lookup_miss.sum": misses}
    known = {"inside", "grid", "block"}
    dotted |= {k: v for k, v in more.items() if k not in known}
    values = {k.replace(".", "__dot__"): v for k, v in dotted.items()}
    return page.kernel(name, **{k: v for k, v in more.items() if k in known}, **values)


def layered(misses: list[int]) -> tuple[Export, Page]:
    """A kernel a layer of 1000 look-ups; the KV cache of layer i is broken i times in ten."""
    e, page = Export().gpu(), Page(UNITS)
    for layer, miss in enumerate(misses):
        begin = (1 + layer) * 200 * US
        e.range(begin - 100 * US, begin - 60 * US, f"layer={layer} x")
        e.kernel(begin, begin + 100 * US, "void read<int>(A)", launch=begin - 80 * US)
        counted(page, "read", miss, 1000, inside=["step 1", f"layer={layer} x"])
        at = BASE
        for block in range(11):
            e.mark(
                begin - 90 * US + block,
                f"KV_BLOCK layer={layer} seq=0 block={block} addr={at:#x} bytes=4096",
            )
            at += 8192 if block < layer else 4096
    return e, page


def numbers(finding: Finding) -> dict[str, Any]:
    return {m.name: m.value for m in finding.metrics}


def test_misses_over_look_ups_alone(judge):
    frames, found = judge(counted(Page(UNITS), "a", 237_000, 1_000_000))
    row = frames["ncu_kernels"].row(0, named=True)
    assert (row["miss_frac"], row["n_profiled"]) == (pytest.approx(0.237), 1)
    assert row["miss_source"] == f"{TEX}_lookup_miss"
    assert row["all_miss_frac"] is None
    finding = found["ncu"]
    assert finding.level is Level.UNKNOWN
    assert "23.7% over 1 kernels (Nsight Compute); no timeline" in finding.title
    assert [m.tables for m in finding.missing] == [("kernels", "nvtx")]


def test_a_kernel_s_rate_is_a_ratio_of_sums(judge):
    page = counted(counted(Page(UNITS), "a", 100, 1000), "a", 10, 20)
    assert judge(page)[0]["ncu_kernels"]["miss_frac"].to_list() == [
        pytest.approx(0.107843, abs=1e-6)
    ]
    e = Export().kernel(0, 10, "a").kernel(20, 30, "a")
    e.range(0, 50, "layer=0")
    frames = judge(page, e)[0]
    assert frames["ncu_match"]["matched_by"].to_list() == ["order"]


@pytest.mark.parametrize(("useful", "a"), [(1_500_000_000, 1.34), (0, None)])
def test_dram_amplification_where_useful_bytes_are_stated(judge, useful, a):
    page = counted(Page(UNITS), "a", 1, 2, **{"dram__bytes_read.sum": 2.01e9})
    frames, found = judge(page, useful_bytes=useful)
    assert frames["ncu_kernels"]["dram_amplification"].to_list() == [
        None if a is None else pytest.approx(a)
    ]
    assert ("dram_amplification" in numbers(found["ncu"])) == (a is not None)


def test_requests_of_any_source_come_from_their_own_counter(judge):
    rates = {"lts__t_sectors.sum": 2000, "lts__t_sector_hit_rate.pct": 64}
    more = {"lts__t_sectors.sum": 1000, "lts__t_sector_hit_rate.pct": 40}
    page = counted(Page(UNITS), "a", 330, 1000, **rates)
    row = judge(counted(page, "a", 330, 1000, **more))[0]["ncu_kernels"].row(0, named=True)
    assert row["all_miss_frac"] == pytest.approx((0.36 * 2000 + 0.6 * 1000) / 3000)
    assert row["miss_frac"] == pytest.approx(0.33)


def test_more_misses_than_look_ups_take_another_counter_and_are_flagged(judge):
    page = counted(Page(UNITS), "a", 1390, 1000, **{f"{TEX}_lookup_hit.sum": 43})
    frames, found = judge(page)
    row = frames["ncu_kernels"].row(0, named=True)
    assert (row["miss_frac"], row["inconsistent"]) == (pytest.approx(0.957), True)
    assert any("1 kernels counted more misses" in c for c in found["ncu"].caveats)


def test_achieved_occupancy_far_below_theoretical_is_counted(judge):
    warps, most = list(UNITS)[-2:]
    page = counted(Page(UNITS), "a", 1, 2, **{warps: 48, most: 100})
    counted(page, "b", 1, 2, **{warps: 95, most: 100})
    frames, found = judge(page)
    gaps = dict(frames["ncu_kernels"].select("name", "occupancy_gap_pp").iter_rows())
    assert gaps == {"a": pytest.approx(52), "b": pytest.approx(5)}
    assert numbers(found["ncu"])["n_occupancy_gaps"] == 1


def test_layers_of_both_runs_meet_and_an_association_is_judged(judge):
    e, page = layered([120, 150, 130, 200, 220, 210, 300, 330])
    frames, found = judge(page, e)
    assert frames["ncu_layers"].sort("layer")["miss_frac"].to_list() == pytest.approx(
        [0.12, 0.15, 0.13, 0.20, 0.22, 0.21, 0.30, 0.33]
    )
    assert frames["ncu_match"].select("name", "n_timeline", "n_profiled", "matched_by").rows() == [
        ("read", 8, 8, "layer")
    ]
    finding = found["ncu-gpu0"]
    assert finding.level is Level.WARN
    assert "misses are associated with" in finding.title
    assert numbers(finding)["matched_frac"] == 1.0
    assert numbers(finding)["rho"] == pytest.approx(0.952381, rel=1e-6)
    assert "not-sampled" not in found


def test_unknown_cache_control_is_said_and_caps_the_confidence(judge):
    e, page = layered([120, 150, 130, 200, 220, 210, 300, 330])
    finding = judge(page, e)[1]["ncu-gpu0"]
    assert CACHE_CAVEAT in finding.caveats
    assert finding.confidence is not None
    assert finding.confidence.value <= 0.5


def test_what_was_not_profiled_is_unknown_and_below_80_percent_nothing_is_judged(judge):
    e, page = layered([120, 150, 130, 200, 220, 210, 300, 330])
    e.kernel(5_000 * US, 5_300 * US, "ncclDevKernel_AllReduce_Sum_f16_RING_LL(args)")
    frames, found = judge(page, e)
    status = dict(frames["ncu_match"].select("name", "status").iter_rows())
    assert status == {"read": "matched", "ncclDevKernel_AllReduce_Sum_f16_RING_LL": "not profiled"}
    finding = found["ncu-gpu0"]
    assert finding.level is Level.UNKNOWN
    assert "not judged: 72.7% of kernel time profiled" in finding.title
    assert numbers(finding)["matched_frac"] == pytest.approx(800 / 1100)
    assert any("27.3% of kernel time) were not profiled" in c for c in finding.caveats)
    assert finding.missing[0].command.startswith("ncu --cache-control none")
    assert set(frames["associations"].filter(source="ncu")["severity"].drop_nulls()) == {"unknown"}


def test_subsets_match_by_shape_and_strangers_are_said(judge):
    e = Export()
    for i in range(100):
        e.kernel(i * 100, i * 100 + 40, "void a<int>(A*)", grid=(4, 1, 1))
    for i in range(50):
        e.kernel(50_000 + i * 100, 50_000 + i * 100 + 20, "b")
    page = Page(UNITS)
    for _ in range(5):
        counted(page, "a", 10, 100, grid=(4, 1, 1))
    counted(page, "c", 10, 100)
    frames, found = judge(page, e)
    columns = ("name", "n_timeline", "n_profiled", "status", "matched_by")
    assert frames["ncu_match"].select(columns).rows() == [
        ("a", 100, 5, "matched", "shape"),
        ("b", 50, 0, "not profiled", ""),
        ("c", 0, 1, "only in ncu", ""),
    ]
    finding = found["ncu"]
    assert numbers(finding)["matched_frac"] == pytest.approx(0.8)
    said = " ".join(finding.caveats)
    assert "80.0% of kernel time is matched by name and launch shape alone" in said
    assert "1 profiled kernels are not in the timeline" in said


def test_another_launch_shape_is_another_kernel(judge):
    e = Export().kernel(0, 40, "a", grid=(4, 1, 1))
    frames, _ = judge(counted(Page(UNITS), "a", 10, 100, grid=(8, 1, 1)), e)
    assert sorted(frames["ncu_match"]["status"]) == ["not profiled", "only in ncu"]


def test_counters_that_were_not_collected_are_unknown(judge):
    frames, found = judge(Page({"gpu__time_duration.sum": "us"}).kernel("a"))
    row = frames["ncu_kernels"].row(0, named=True)
    assert [row[c] for c in ("misses", "miss_frac", "dram_read_bytes")] == [None, None, None]
    assert found["ncu"].level is Level.UNKNOWN
    assert "no L2 look-ups were counted" in found["ncu"].title
