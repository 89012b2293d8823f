"""Predictions against a second recording."""

from __future__ import annotations

import pytest

from benchmarks.pairs import as_markdown, outcome
from tests.support.builders import Export

US = 1_000


def steps(pause_us: int) -> Export:
    """Ten steps of ten kernels of 20 us each, launched `pause_us` after the one before ended."""
    e = Export().gpu()
    period = 10 * (20 + pause_us) * US
    for step in range(10):
        at = step * period
        e.range(at - 15 * US, at + period - 20 * US, f"step {step}")
        for k in range(10):
            start = at + k * (20 + pause_us) * US
            launch = start - 6 * US if pause_us > 6 else at - 14 * US + k * 10
            e.kernel(start, start + 20 * US, "a", launch=launch)
    return e


def test_a_graph_that_brings_what_was_predicted(tmp_path):
    before = steps(80).write(tmp_path / "before.sqlite")
    after = steps(1).write(tmp_path / "after.sqlite")
    found = outcome("graph", before, after)
    # 200 us of work; 10 gaps of 0.1 to 1.3 us remain.
    assert found.before_ns == 920 * US
    assert found.predicted_ns == pytest.approx((707 * US, 719 * US))
    assert found.measured_ns == 711 * US
    assert found.is_inside
    assert as_markdown([("CUDA graph", found)]).splitlines()[-1] == (
        "| CUDA graph | 920 us | 707 us to 719 us | 711 us | yes |"
    )


def test_what_was_not_predicted_is_no_hit(tmp_path):
    before = steps(80).write(tmp_path / "before.sqlite")
    after = steps(1).write(tmp_path / "after.sqlite")
    found = outcome("fuse", before, after)
    assert found.predicted_ns is None
    assert not found.is_inside
