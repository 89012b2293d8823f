"""The answer does not depend on which thread comes first."""

from __future__ import annotations

import json

import pytest

from tests.support.builders import Export
from tracekit import engine
from tracekit.report.document import document


def _flawed() -> Export:
    """Records that are left out of several tables, and values that do not fit."""
    e = Export().gpu()
    e.kernel(100, 200, "dequantize_int4_kernel", launch=10)
    e.kernel(300, 200, "nvjet_tst_64x8", launch=20)
    e.kernel(400, 450, "nvjet_tst_64x8", launch=30, grid=(1 << 40, 1, 1))
    e.memcpy(0, 0)
    e.memcpy(500, 400)
    e.memcpy(500, 600, kind=1 << 40)
    e.call(700, 600, "cudaLaunchKernel_v7000", correlation=9)
    e.call(800, 0, "cudaMalloc_v3020", correlation=10)
    return e.range(0, 500, "step 1")


@pytest.mark.parametrize("order", [1, -1])
def test_notes_and_findings_come_in_one_order(diagnose, monkeypatch, order):
    def one_after_another(function, items, **_):
        items = list(items)
        done = {i: function(items[i]) for i in range(len(items))[::order]}
        return [done[i] for i in range(len(items))]

    expected = json.dumps(document(diagnose(_flawed())), default=str)
    monkeypatch.setattr(engine, "each", one_after_another)
    again = diagnose(_flawed())
    assert json.dumps(document(again), default=str) == expected
    report = again.reports[0]
    assert list(report.dropped) == sorted(report.dropped)
    assert len(report.dropped) >= 3
    assert report.notes == sorted(report.notes)
    assert report.notes
