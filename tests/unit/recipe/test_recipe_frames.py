from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from tests.support.diagnoses import COMMAND, CRITICAL, DEQUANT, STEPS
from tracekit.model.finding import Metric
from tracekit.recipe.outputs import findings, frames, metrics


def test_one_row_a_finding_in_their_order():
    rows = findings(DEQUANT).to_dicts()
    assert [(r["rank"], r["id"], r["level"]) for r in rows] == [
        (1, "dequant_stall/steps", "critical"),
        (2, "kv_fragmentation/copies", "ok"),
        (3, "l2_miss/unsampled", "unknown"),
    ]
    first, _, unknown = rows
    assert first["analysis"] == "dequant_stall"
    assert first["scope"] == "gpu 0, step group dequant_then_gemm"
    assert (first["at_stake_ns"], first["at_stake_frac"]) == (2_557_100, 0.344)
    assert first["at_stake_of"] == "all steps' GPU span"
    assert first["confidence"] == pytest.approx(0.6)
    assert (first["start_ns"], first["end_ns"]) == (1_000_000_000, 1_000_524_000)
    assert first["caveats"] == "A kernel named like a dequantiser may do other work too."
    assert unknown["missing"] == "the compute-triage counters"
    assert unknown["command"] == COMMAND


def test_what_is_not_known_is_null():
    unknown = findings(DEQUANT).row(2, named=True)
    absent = ("at_stake_ns", "at_stake_frac", "at_stake_of", "confidence", "start_ns", "end_ns")
    assert [unknown[name] for name in (*absent, "advice", "caveats", "scope")] == [None] * 9


def test_one_row_a_number():
    worded = replace(CRITICAL, metrics=(*CRITICAL.metrics, Metric("mode", "paged")))
    rows = metrics(replace(DEQUANT, findings=(worded,))).rows()
    name = "dequant_stall/steps"
    share, tensor = "share of the group's GPU span", "tensor pipe active"
    assert rows == [
        (name, "dequant_frac", 0.476, None, "1", 0.469, 0.483, 10, share),
        (
            name,
            "exposed_ns",
            2_557_100.0,
            None,
            "ns",
            None,
            None,
            80,
            "exposed dequantisation time",
        ),
        (name, "tensor_active_frac", None, None, "1", None, None, None, tensor),
        (name, "mode", None, "paged", "", None, None, None, ""),
    ]


def test_results_are_written_as_they_were_computed():
    found = frames(DEQUANT)
    assert list(found) == ["files", "findings", "metrics", "frames/dequant_stall.steps"]
    assert found["frames/dequant_stall.steps"].equals(STEPS)
    assert found["files"].rows() == [(0, "int4_dequant.sqlite")]


def test_without_findings_the_columns_stay():
    empty = replace(DEQUANT, findings=())
    assert findings(empty).schema == findings(DEQUANT).schema
    assert metrics(empty).schema == metrics(DEQUANT).schema
    assert metrics(empty).schema["value"] == pl.Float64
