"""Budgets of steps on small hand-made traces; times in us."""

from __future__ import annotations

import polars as pl
import pytest

from tests.support.builders import Export
from tracekit.engine import analyze
from tracekit.model.finding import Level

US = 1_000
GEMM, ATTENTION, OTHER = "nvjet_tst_64x8", "flash_fwd_kernel", "void elementwise_kernel<int>"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def work(e: Export, start: float, end: float, name: str, stream: int = 7, rank: int = 0) -> None:
    launch = round(start * US) - 10
    where = {"stream": stream, "device": rank, "pid": 100 + rank}
    e.kernel(round(start * US), round(end * US), name, launch=launch, **where)


def components(d, where: str = "in steps") -> dict[str, int]:
    rows = d.frames["step_budget"]["components"].filter(pl.col("where") == where)
    return {name: time / US for name, time in rows.select("component", "sum_ns").iter_rows()}


def test_the_first_active_class_has_the_time(tmp_path):
    e = Export().gpu()
    e.range(-50, 99 * US, "step 1")
    work(e, 0, 50, GEMM)
    work(e, 40, 90, NCCL, stream=8)
    work(e, 95, 100, OTHER)
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["step_budget"])
    found = components(d)
    assert sum(found.values()) == 100
    idle = sum(time for name, time in found.items() if name.startswith("idle"))
    assert {k: v for k, v in found.items() if not k.startswith("idle")} == {
        "gemm": 50,
        "comm_unsplit": 40,
        "other": 5,
    }
    assert idle == 5
    rows = d.frames["step_budget"]["components"]
    hidden = rows.filter(pl.col("component") == "comm_unsplit")["hidden_ns"].to_list()
    assert hidden == [10 * US]


def test_time_to_the_next_step_is_its_own_part(tmp_path):
    e = Export().gpu()
    for step in range(3):
        at = step * 200
        e.range(at * US - 50, (at + 150) * US, f"step {step}")
        work(e, at, at + 100, GEMM)
        work(e, at + 110, at + 150, ATTENTION)
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["step_budget"])
    frames = d.frames["step_budget"]
    assert frames["steps"]["span_ns"].to_list() == [150 * US] * 3
    assert frames["steps"]["between_ns"].to_list() == [50 * US, 50 * US, None]
    (group,) = frames["groups"].rows(named=True)
    assert (group["span_ns"], group["between_ns"]) == (450 * US, 100 * US)
    assert sum(components(d, "between steps").values()) == 100


def test_steps_that_overlap_end_where_the_next_begins(tmp_path):
    e = Export().gpu()
    for step in range(3):
        e.range(step * 100 * US - 50, (step * 100 + 90) * US, f"step {step}")
        work(e, step * 100, step * 100 + 90, GEMM)
        e.kernel(
            (step * 100 + 50) * US, (step * 100 + 120) * US, OTHER, stream=9, launch=step * 100 * US
        )
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["step_budget"])
    steps = d.frames["step_budget"]["steps"]
    assert steps["span_ns"].to_list() == [100 * US, 100 * US, 120 * US]
    assert steps["cut"].to_list() == [True, True, False]
    # What the step before left over still runs: it is not idle.
    assert steps["idle_ns"].to_list() == [0, 0, 0]
    finding = next(f for f in d.findings if f.id == "step_budget/budget")
    assert "2 steps overlap the next one: their time ends where that begins." in finding.caveats


def test_waiting_and_transfer_of_a_collective_that_all_ranks_recorded(tmp_path):
    e = Export().gpu(0).gpu(1)
    for rank, start in enumerate((40, 70)):
        for step in range(5):
            at, pid = step * 200, 100 + rank
            e.range(at * US - 50, (at + 99) * US, f"step {step}", pid=pid, tid=pid)
            work(e, at, at + 50, GEMM, rank=rank)
            work(e, at + start, at + 90, NCCL, stream=8, rank=rank)
            work(e, at + 95, at + 100, OTHER, rank=rank)
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["step_budget"])
    rows = d.frames["step_budget"]["components"].filter(
        (pl.col("gpu") == 0) & (pl.col("where") == "in steps")
    )
    found = {
        n: (t / US / 5, h / US / 5)
        for n, t, h in rows.select("component", "sum_ns", "hidden_ns").iter_rows()
        if not n.startswith("idle")
    }
    assert found == {
        "gemm": (50, 0),
        "other": (5, 0),
        "comm_transfer": (20, 0),
        "comm_wait": (20, 10),
    }


def test_outliers_name_the_component_that_differs(tmp_path):
    e = Export().gpu()
    for step, length in enumerate((10, 10, 11, 10, 30)):
        at = step * 100
        e.range(at * US - 50, (at + 90) * US, f"step {step}")
        work(e, at, at + length, GEMM)
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["step_budget"])
    rows = d.frames["step_budget"]["outliers"].select("label", "component", "excess_ns").rows()
    assert rows == [("step 2", "gemm", 1 * US), ("step 4", "gemm", 20 * US)]
    finding = next(f for f in d.findings if f.id == "step_budget/outliers")
    assert finding.level is Level.WARN
    assert finding.at_stake_ns == 21 * US
    assert finding.at_stake_frac == pytest.approx(21 / 71)


def test_without_steps_the_whole_span_is_the_budget(tmp_path):
    e = Export().gpu()
    work(e, 0, 50, GEMM)
    work(e, 60, 100, ATTENTION)
    d = analyze([e.write(tmp_path / "t.sqlite")], only=["step_budget"])
    (finding,) = d.findings
    assert "the whole span of 100 us (no steps are marked)" in finding.title
    assert finding.confidence is not None
    assert finding.confidence.value == 0.6
    assert sum(components(d).values()) == 100
