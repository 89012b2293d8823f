"""NVTX rows that are no ranges, never close, cross, or belong to another thread or domain."""

from __future__ import annotations

from tests.support.builders import Export
from tracekit.model.finding import Level
from tracekit.views.device.activity import activity
from tracekit.views.launches.attribution import attribution, steps
from tracekit.views.nvtx.ranges import described, marks, ranges


def test_only_range_types_are_ranges(trace_of):
    e = Export().domain(3, "CCCL")
    for event_type in (76, 33, 39):
        e.range(0, None, "other", event_type=event_type)
    e.mark(5, "mark").range(10, 20, "normal")
    trace = trace_of(e)
    assert ranges(trace)["text"].to_list() == ["normal"]
    assert marks(trace)["text"].to_list() == ["mark"]


def test_open_inverted_duplicate_and_unsorted(trace_of, diagnose):
    e = Export().add("ANALYSIS_DETAILS", duration=1_000)
    e.range(50, 60, "late").range(10, None, "open").range(30, 20, "inverted")
    e.range(5, 7, "twin").range(5, 7, "twin")
    found = ranges(trace_of(e))
    assert found.select("text", "end_ns", "open").rows() == [
        ("late", 60, False),
        ("open", 1_000, True),
        ("twin", 7, False),
        ("twin", 7, False),
    ]
    said = {q.text.split(" ", 1)[1]: (q.level, q.count) for q in diagnose(e).quality if q.count}
    assert said["NVTX ranges never closed; taken to last until the end of the capture"][1] == 1
    assert said["NVTX ranges end before they start; left out"] == (Level.WARN, 1)
    assert said["NVTX ranges are exact duplicates of another"] == (Level.OK, 1)


def test_ten_thousand_unclosed_ranges(trace_of, diagnose):
    e = Export()
    for i in range(10_000):
        e.range(i, None, f"r{i}")
    found = ranges(trace_of(e))
    assert found["depth"].max() == 9_999
    assert found["parent"].to_list()[1:4] == [0, 1, 2]
    assert any("grows without bound (10,000)" in q.text for q in diagnose(e).quality)


def test_work_of_another_thread_is_not_put_in_the_range(trace_of, diagnose):
    e = Export().range(0, 100, "step 0", tid=1)
    e.kernel(60, 70, "nvjet_tst_64x8", launch=50, launch_tid=2)
    found = attribution(trace_of(e))
    assert found.select("range", "step", "reason").rows() == [(None, None, "other_thread")]
    assert any("(100% of device time) are unattributed" in q.text for q in diagnose(e).quality)


def test_step_time_is_device_time_not_the_host_range(trace_of):
    e = Export().range(0, 35_000, "step 0")
    e.kernel(200_000, 276_000, "nvjet_tst_64x8", launch=10)
    step = steps(trace_of(e)).row(0, named=True)
    assert step["end_ns"] - step["start_ns"] == 35_000
    assert (step["gpu_start_ns"], step["gpu_end_ns"]) == (200_000, 276_000)


def test_domains_have_their_own_stacks_and_names(trace_of):
    e = Export().range(0, 100, "step", domain=0).range(10, 120, "step", domain=2)
    trace = trace_of(e)
    found = described(trace, ranges(trace))
    assert found["domain_name"].to_list() == ["", "domain#2"]
    assert found["parent"].to_list() == [None, None]


def test_a_library_s_range_is_nobody_s_layer(trace_of):
    e = Export().domain(1, "NCCL").range(0, 100, "layer=3").range(10, 90, "layer=9", domain=1)
    e.kernel(200, 210, "nvjet_tst_64x8", launch=50)
    trace = trace_of(e)
    assert attribution(trace)["layer"].to_list() == [3]
    assert activity(trace).height == 1


def test_inner_ranges_that_have_ended_do_not_hide_the_outer_one(trace_of):
    e = Export().range(0, 100, "layer=1").range(10, 20, "inner layer=2")
    e.kernel(200, 210, "nvjet_tst_64x8", launch=50)
    assert attribution(trace_of(e))["layer"].to_list() == [1]


def test_explicit_step_markers_win_over_texts_that_look_like_steps(trace_of):
    e = Export().range(0, 100, "warm-up step 5").range(10, 90, "STEP step=7 phase=decode")
    e.kernel(200, 210, "nvjet_tst_64x8", launch=50)
    assert steps(trace_of(e)).select("label", "group", "n_work").rows() == [
        ("STEP step=7 phase=decode", "step=N phase=decode", 1)
    ]


def test_the_outermost_range_that_reads_like_a_step_is_the_step(trace_of):
    e = Export().range(0, 100, "iteration: 3").range(10, 90, "micro step 0")
    e.kernel(200, 210, "nvjet_tst_64x8", launch=50)
    assert steps(trace_of(e)).select("group", "n_work").rows() == [("iteration: N", 1)]
