"""First lines of the answer on every recorded trace."""

from __future__ import annotations

import pytest

from tracekit.engine import analyze
from tracekit.model.finding import Level


def test_an_idle_device_is_the_first_thing_said(fixture_path):
    d = analyze([fixture_path("hf_dynamic_cache")], only=["dequant_stall"])
    gpu = d.overview.gpus[0]
    assert gpu.busy_ns / gpu.span_ns == pytest.approx(0.07, abs=0.005)
    assert d.overview.perspective[0].startswith("GPU 0 is busy 6.97% of the span and idle 93.0%")


def test_opaque_graphs_are_not_idle_not_ok_and_name_the_option(fixture_path):
    d = analyze([fixture_path("graph_opaque")])
    gpu = d.overview.gpus[0]
    assert gpu.opaque_ns == gpu.busy_ns == pytest.approx(1_785_000, rel=0.01)
    assert gpu.n_graph_launches == 20
    assert "--cuda-graph-trace=node" in d.overview.perspective[0]
    assert Level.OK not in {f.level for f in d.findings}


def test_node_level_graphs_show_every_kernel(fixture_path):
    d = analyze([fixture_path("graph_nodes")], only=["dequant_stall"])
    assert (d.overview.n_kernels, d.overview.n_with_launch) == (360, 360)
    assert d.overview.gpus[0].opaque_ns == 0


@pytest.mark.parametrize("name", ["nvtx_only_2022_4", "nvtx_only_schema_3_7"])
def test_cpu_only_traces(fixture_path, name):
    d = analyze([fixture_path(name)])
    assert d.overview.perspective == ("no accelerator activity recorded",)
    assert {f.level for f in d.findings} == {Level.UNKNOWN}
    assert d.overview.n_steps == 50


def test_two_ranks_of_one_report_have_two_gpus(fixture_path):
    d = analyze([fixture_path("allreduce_2gpu")], only=["dequant_stall"])
    assert [g.gpu for g in d.overview.gpus] == [0, 1]
    assert any(q.count == 1 and "dropped records" in q.text for q in d.quality)
    classes = {c.kind: c.n for c in d.overview.classes}
    assert (classes["comm"], classes["memcpy DtoD"]) == (144, 144)
