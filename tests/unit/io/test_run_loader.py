"""Frames of a run that depend on how it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.support.builders import Export
from tracekit.io.nsys.reader import ReportReader
from tracekit.io.run import loader
from tracekit.io.run.loader import RunLoader
from tracekit.io.source import open_source
from tracekit.model.inputs import MemoryPlan


def read(path: Path, *, by_device: bool) -> tuple[pl.DataFrame, dict[str, int]]:
    """Samples of some counters, and what was dropped."""
    with open_source(path) as source:
        reader = ReportReader(source, 0, path.name, "")
        names = reader.load("metric_names")["name"].unique().sort().to_list()[::4]
        rows = RunLoader([reader], by_device=by_device).load_samples(names)
        return rows, reader.report.dropped.get("gpu_metrics", {})


@pytest.mark.parametrize("name", ["allreduce_2gpu", "kv_stride_l2"])
def test_samples_read_one_gpu_at_a_time_are_those_read_at_once(
    fixture_path: Callable[[str], Path], name: str
) -> None:
    whole, dropped = read(fixture_path(name), by_device=False)
    parted, dropped_parted = read(fixture_path(name), by_device=True)
    assert whole.height > 1_000
    assert dropped["sampled before the capture"] > 0
    assert_frame_equal(parted, whole)
    assert dropped_parted == dropped


@pytest.mark.parametrize(("samples", "by_device"), [(100, False), (2_000, True)])
def test_what_is_full_of_samples_is_read_one_gpu_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: int, by_device: bool
) -> None:
    monkeypatch.setattr(loader, "FIXED_BYTES", 0)
    monkeypatch.setattr(loader, "LEAST_BYTES", 1)
    e = Export()
    for i in range(50):
        e.kernel(100 * i, 100 * i + 50, "nvjet_tst_64x8")
    for i in range(samples):
        e.add("GPU_METRICS", timestamp=10 * i, typeId=1, metricId=1, value=i % 100)
    with open_source(e.write(tmp_path / "r.sqlite")) as source:
        reader = ReportReader(source, 0, "r", "")
        needed = loader.needed_bytes([reader])
        assert loader.plan_memory([reader], [0], needed) == MemoryPlan(2, None, False, needed)
        found = loader.plan_memory([reader], [0], needed - 1)
        assert found == MemoryPlan(1, None, by_device, needed - 1)
