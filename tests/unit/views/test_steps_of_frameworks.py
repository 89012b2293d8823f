"""Steps as serving and training frameworks mark them, and graph replays where nothing does."""

from __future__ import annotations

import polars as pl
import pytest

from tests.support.builders import Export
from tracekit.engine import analyze
from tracekit.views.launches.attribution import steps
from tracekit.views.launches.graph_replays import GROUP
from tracekit.views.launches.step_ranges import step_provenance, step_ranges

US = 1_000
GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT"


def _run(texts, **values):
    """One range of 1 ms each with a kernel of 100 us launched inside."""
    e = Export().gpu()
    for i, text in enumerate(texts):
        at = (i + 1) * 1_000 * US
        e.range(at, at + 900 * US, text, **values)
        e.kernel(at + 50 * US, at + 150 * US, GEMM, launch=at + 10 * US)
    return e


def _groups(trace):
    rows = steps(trace)
    assert rows["n_work"].to_list() == [1] * rows.height
    return rows["group"].to_list()


@pytest.mark.parametrize(
    ("texts", "groups", "source"),
    [
        (
            [
                "execute_context_1(2048)_generation_31(31)",
                "execute_context_0(0)_generation_32(32)",
                "execute_context_2(4096)_generation_0(0)",
            ],
            ["vLLM mixed", "vLLM decode", "vLLM prefill"],
            "framework",
        ),
        (
            ["execute_7_context_1(sq128sk128)_generation_3(sq3sk90)"],
            ["vLLM mixed"],
            "framework",
        ),
        (
            ["step[DECODE bs=4]", "step[EXTEND bs=1 toks=107]", "step[MIXED bs=2]"],
            ["SGLang decode", "SGLang prefill", "SGLang mixed"],
            "framework",
        ),
        (
            [
                "[Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs",
                "[Executor] _forward_step 13: 2 ctx reqs, 900 ctx tokens, 0 gen reqs",
                "[Executor] _forward_step 14: 1 ctx reqs, 8 gen reqs",
            ],
            ["TensorRT-LLM decode", "TensorRT-LLM prefill", "TensorRT-LLM mixed"],
            "framework",
        ),
        (
            [
                "XlaModule:#hlo_module=jit_train_step,program_id=12#",
                "XlaModule:#prefix=jit(f)/jit(main),hlo_module=jit_eval,program_id=3#",
            ],
            ["XLA jit_train_step", "XLA jit_eval"],
            "framework",
        ),
        (["ProfilerStep#10", "ProfilerStep#11"], ["ProfilerStep#N", "ProfilerStep#N"], "framework"),
        (
            ["megatron.training.training.train_step", "train_step"],
            ["megatron.training.training.train_step", "train_step"],
            "framework",
        ),
        (["iteration7", "iteration_8"], ["iterationN", "iteration_N"], "text"),
        (["gpu_model_runner: forward"] * 2, ["gpu_model_runner: forward"] * 2, "function"),
        (["decode step 7", "STEP decode"], ["step=N"], "marker"),
    ],
)
def test_ranges_that_are_steps(traced, texts, groups, source):
    trace = traced(_run(texts))
    assert _groups(trace) == groups
    assert set(step_ranges(trace)["source"]) == {source}


@pytest.mark.parametrize(
    "text", ["timestep 4", "substep_3", "prefill", "execute_model", "layer 3", "stepwise"]
)
def test_ranges_that_are_none(traced, text):
    assert step_ranges(traced(_run([text]))).is_empty()


def test_xla_marks_its_modules_in_a_domain_of_its_own(traced):
    e = _run(["XlaModule:#hlo_module=jit_f,program_id=1#"], domain=3).domain(3, "TSL")
    assert _groups(traced(e)) == ["XLA jit_f"]


def test_a_named_step_goes_before_the_functions_inside_it(traced):
    e = Export().gpu()
    for i in range(3):
        at = (i + 1) * 1_000 * US
        e.range(at, at + 900 * US, "scheduler.run_batch")
        e.range(at + 5 * US, at + 800 * US, "step[DECODE bs=4]")
        e.kernel(at + 50 * US, at + 150 * US, GEMM, launch=at + 10 * US)
    assert _groups(traced(e)) == ["SGLang decode"] * 3


def test_mixed_steps_of_vllm_differ_from_decode_steps(tmp_path):
    e = Export().gpu()
    t = 1_000 * US
    for i in range(40):
        mixed = i % 10 == 0
        text = f"execute_context_{int(mixed)}({2048 * mixed})_generation_31(31)"
        length = 4_000 * US if mixed else 300 * US
        e.range(t - 50 * US, t + length, text)
        e.kernel(t, t + length, GEMM, launch=t - 30 * US)
        t += length + 100 * US
    d = analyze([e.write(tmp_path / "a.sqlite")], only=["dequant_stall"])
    assert d.overview.step_groups == {
        "vLLM decode": (36, 300_000.0),
        "vLLM mixed": (4, 4_000_000.0),
    }


def _replays(graphs, *, marked=False):
    """One replay of each graph every 200 us, two kernels of 50 us each."""
    e = Export().gpu()
    for i, graph in enumerate(graphs):
        at = (i + 1) * 200 * US
        if marked:
            e.range(at, at + 100 * US, f"decode step {i}")
        e.call(at, at + 5 * US, "cudaGraphLaunch_v10000", correlation=900 + i)
        for k in range(2):
            begin = at + (10 + 60 * k) * US
            e.kernel(
                begin, begin + 50 * US, GEMM, correlation=900 + i, graphNodeId=(graph << 32) + k
            )
    return e


def test_replays_of_one_graph_are_steps_and_are_said_to_be(traced, tmp_path):
    e = _replays([7] * 5)
    trace = traced(e)
    rows = steps(trace)
    assert rows["group"].to_list() == [GROUP] * 5
    assert rows["n_work"].to_list() == [2] * 5
    assert (rows["gpu_end_ns"] - rows["gpu_start_ns"]).to_list() == [110 * US] * 5
    assert rows["range"].null_count() == 5
    assert step_provenance(trace) == 0.6
    d = analyze([e.write(tmp_path / "a.sqlite")], only=["dequant_stall"])
    assert d.overview.step_groups == {GROUP: (5, 110_000.0)}
    assert any(q.text.startswith("no range marks a step: 5 replays") for q in d.quality)


def test_graphs_that_repeat_in_order_are_one_step_together(traced):
    rows = steps(traced(_replays([7, 8, 9] * 4)))
    assert rows["n_work"].to_list() == [6] * 4


def test_graphs_of_changing_batch_size_are_a_step_each(traced):
    rows = steps(traced(_replays([7, 7, 7, 8, 8, 9, 9, 9])))
    assert rows["n_work"].to_list() == [2] * 8


def test_marked_steps_go_before_replays(traced):
    trace = traced(_replays([7] * 3, marked=True))
    assert step_ranges(trace)["source"].to_list() == ["text"] * 3
    assert step_provenance(trace) == 1.0


def test_whole_graphs_differ_by_what_was_executed(traced):
    e = Export().gpu()
    for i in range(6):
        at = (i + 1) * 200 * US
        e.graph(at + 10 * US, at + 90 * US)
        row = e.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"][-1]
        row["graphExecId"] = i % 2
        e.call(at, at + 5 * US, "cudaGraphLaunch_v10000", correlation=row["correlationId"])
    rows = steps(traced(e))
    assert rows["n_work"].to_list() == [2] * 3


def test_one_launch_of_a_graph_is_no_step(traced):
    assert step_ranges(traced(_replays([7]))).is_empty()


def test_work_between_replays_belongs_to_none(traced):
    e = _replays([7, 8] * 3)
    e.kernel(1_500 * US, 1_510 * US, GEMM, launch=1_490 * US)
    trace = traced(e)
    assert steps(trace)["n_work"].to_list() == [4] * 3
    assert steps(trace).select(pl.col("n_work").sum()).item() == 12
