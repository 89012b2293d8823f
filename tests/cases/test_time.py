"""Times that are missing, inverted, absurd, on another clock, or outside the window."""

from __future__ import annotations

import pytest

from tests.support.builders import Export
from tracekit.errors import EmptyWindowError
from tracekit.model.finding import Level
from tracekit.views.launches.attribution import attribution

S = 1_000_000_000


def test_records_without_a_time_or_inverted_are_left_out_and_counted(diagnose):
    e = Export()
    for start, end in ((1000, 2000), (0, 0), (5000, 4000), (6000, 7000)):
        e.kernel(start, end, "nvjet_tst_64x8")
    d = diagnose(e)
    assert d.overview.gpus[0].busy_ns == 2000
    assert d.overview.span_ns == 6000
    assert d.reports[0].dropped["kernels"] == {"end before start": 1, "no timestamp": 1}
    assert sum(q.count or 0 for q in d.quality if "kernels rows left out" in q.text) == 2


def test_absurd_times_neither_overflow_nor_stretch_the_span(diagnose):
    e = Export().kernel(1000, 2000, "nvjet_tst_64x8")
    e.kernel(3000, (1 << 63) - 1, "nvjet_tst_64x8").kernel(-(1 << 63), 4000, "nvjet_tst_64x8")
    d = diagnose(e)
    assert d.overview.span_ns == 1000
    assert d.reports[0].dropped["kernels"] == {"absurd time": 2}


@pytest.mark.parametrize("start_time", [515396806359142, 1_500_000_000])
def test_analysis_details_are_on_another_clock_and_clip_nothing(diagnose, start_time):
    e = Export().kernel(1 * S, 2 * S, "nvjet_tst_64x8")
    e.add(
        "ANALYSIS_DETAILS",
        globalVid=0,
        duration=3 * S,
        startTime=start_time,
        stopTime=start_time + 3 * S,
    )
    d = diagnose(e)
    assert d.overview.n_kernels == 1
    assert d.reports[0].duration_ns == 3 * S


def test_a_window_without_events_is_refused_with_the_capture_s_span(diagnose):
    e = Export().kernel(155 * S, 156 * S, "nvjet_tst_64x8")
    with pytest.raises(EmptyWindowError, match=r"capture covers 155\.000000-156\.000000 s"):
        diagnose(e, window_ns=(0, 10 * S))


def test_a_window_keeps_what_touches_it_and_the_ranges_around(diagnose):
    e = Export().range(0, 10, "step 0")
    for i in range(4):
        e.kernel(100 * i, 100 * i + 100, "nvjet_tst_64x8", launch=i)
    d = diagnose(e, window_ns=(100, 300))
    assert d.overview.n_kernels == 2
    assert d.overview.span_ns == 200


def test_lost_records_come_first(diagnose):
    e = Export().kernel(0, 100, "nvjet_tst_64x8")
    e.add("DIAGNOSTIC_EVENT", timestamp=1, severity=3, text="CUDA events were lost in /home/ann/x")
    first = diagnose(e).quality[0]
    assert first.level is Level.CRITICAL
    assert first.text == "the profiler reported an error: CUDA events were lost in <path>"


def test_a_range_before_the_window_still_names_the_work_inside_it(trace_of):
    e = Export().range(0, 50, "step 0").range(10, 40, "layer=7")
    e.kernel(1_000, 1_100, "nvjet_tst_64x8", launch=20).kernel(5_000, 5_100, "x", launch=5_000)
    found = attribution(trace_of(e, window_ns=(900, 2_000)))
    assert found.select("step", "layer").rows() == [(0, 7)]
