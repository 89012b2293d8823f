"""Shares of copies: sums, levels and the chart."""

from __future__ import annotations

import pytest
from tracekit_copy_share import ANALYSIS, Params

from tests.support.builders import Export
from tracekit.engine import run
from tracekit.model.finding import Level

HTOD, DTOD = 1, 8


@pytest.fixture
def copies(traced):
    """10 us of work, 2 us of it in two copies from the host and 1 us in one on the device."""
    export = Export().gpu().kernel(0, 7_000, "gemm")
    export.memcpy(7_000, 8_000, kind=HTOD, nbytes=100).memcpy(8_000, 9_000, kind=HTOD, nbytes=50)
    return traced(export.memcpy(9_000, 10_000, kind=DTOD, nbytes=7))


def test_copies_are_summed_by_direction(copies):
    frames, _ = run(ANALYSIS, copies, Params())
    assert frames["copies"].rows() == [
        (0, "HtoD", 2, 150, 2_000, 0.2),
        (0, "DtoD", 1, 7, 1_000, 0.1),
    ]


@pytest.mark.parametrize(("warn_frac", "level"), [(0.3, Level.WARN), (0.31, Level.OK)])
def test_the_share_decides_the_level(copies, warn_frac, level):
    _, [finding] = run(ANALYSIS, copies, Params(warn_frac=warn_frac))
    assert finding.level is level
    assert finding.title == "copies take 3.00 us, 30.0% of the time of GPU 0"


def test_the_chart_has_a_bar_a_direction(copies):
    frames, _ = run(ANALYSIS, copies, Params())
    [panel] = ANALYSIS.chart(frames).panels
    assert panel.y.labels == ("GPU 0, HtoD", "GPU 0, DtoD")
    assert [(bar.end, bar.label) for bar in panel.marks] == [(2_000, "2.00 us"), (1_000, "1.00 us")]
    assert ANALYSIS.chart({"copies": frames["copies"].clear()}) is None
