"""CUDA graphs hide kernels, share one launch and keep capture-time ranges."""

from __future__ import annotations

import pytest

from tests.support.builders import Export, gid
from tracekit.model.finding import Level
from tracekit.model.kernels import ApiKind
from tracekit.views.collectives.kernels import collectives
from tracekit.views.launches.attribution import attribution
from tracekit.views.overview.totals import launch_counts

MS = 1_000_000


def test_graph_level_rows_are_busy_opaque_time_with_bounds(diagnose):
    e = Export()
    for i in range(10):
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" if i == 0 else "nvjet_tst_64x8"
        e.kernel(i * MS, (i + 1) * MS, name)
        e.graph((100 + 20 * i) * MS, (120 + 20 * i) * MS)
    d = diagnose(e)
    gpu = d.overview.gpus[0]
    assert (gpu.busy_ns, gpu.opaque_ns, gpu.comm_ns) == (210 * MS, 200 * MS, 1 * MS)
    line = d.overview.perspective[0]
    assert "95.2% of GPU 0's busy time is opaque" in line
    assert "between 0.48% and 95.7%" in line
    assert "--cuda-graph-trace=node" in line
    assert not [f for f in d.findings if f.level is Level.OK and "no dequant" in f.title]


def test_only_graph_rows_make_kernel_analyses_unknown_with_the_option(diagnose):
    d = diagnose(Export().graph(0, 10 * MS))
    dequant = next(f for f in d.findings if f.id.startswith("dequant_stall"))
    assert dequant.level is Level.UNKNOWN
    assert "--cuda-graph-trace=node" in dequant.missing[0].command
    assert d.overview.gpus[0].idle_ns == 0


def test_replayed_kernels_belong_to_the_launch_not_to_the_capture(trace_of):
    e = Export().range(0, 100, "capture step 0").range(200, 300, "step 1")
    e.call(210, 220, "cudaGraphLaunch_v10000", correlation=9)
    for i in range(3):
        e.add(
            "CUDA_GRAPH_NODE_EVENTS", start=50, end=50, globalTid=gid(100, 100), graphNodeId=70 + i
        )
        e.kernel(1_000 + i, 1_001 + i, "nvjet_tst_64x8", correlation=9, graphNodeId=70 + i)
    trace = trace_of(e)
    assert attribution(trace)["step"].to_list() == [1, 1, 1]


def test_graph_kernels_take_their_layer_from_the_capture(trace_of):
    e = Export().range(0, 100, "layer=4").range(200, 300, "step 1")
    e.add("CUDA_GRAPH_NODE_EVENTS", start=50, end=50, globalTid=gid(100, 100), graphNodeId=7)
    e.add(
        "CUDA_GRAPH_NODE_EVENTS",
        start=150,
        end=150,
        globalTid=gid(100, 100),
        graphNodeId=70,
        originalGraphNodeId=7,
    )
    e.call(210, 220, "cudaGraphLaunch_v10000", correlation=9)
    e.kernel(1_000, 1_001, "nvjet_tst_64x8", correlation=9, graphNodeId=70)
    found = attribution(trace_of(e))
    assert found.select("step", "layer").rows() == [(0, 4)]


def test_launches_of_every_spelling(trace_of):
    names = (
        *("cudaLaunchKernel_v7000",) * 2,
        "cudaGraphLaunch_v10000",
        "cuGraphLaunch",
        "cuLaunchKernelEx",
        "cudaLaunchKernelExC_v11060",
    )
    e = Export()
    for i, name in enumerate(names):
        e.call(i * 10, i * 10 + 5, name, correlation=i)
    counts = launch_counts(trace_of(e))
    assert (counts[ApiKind.KERNEL_LAUNCH], counts[ApiKind.GRAPH_LAUNCH]) == (4, 2)


def test_kernels_without_a_launch_row_still_count(diagnose):
    e = Export()
    for i in range(5):
        e.kernel(i * 10, i * 10 + 10, "nvjet_tst_64x8", launch=i if i < 2 else None)
    d = diagnose(e)
    assert (d.overview.n_kernels, d.overview.n_with_launch) == (5, 2)
    assert d.overview.gpus[0].busy_ns == 50
    assert any("n=2 of 5" in q.text for q in d.quality)


def test_executions_are_counted_from_kernels_not_from_host_markers(trace_of):
    e = Export().domain(1, "NCCL").range(0, 10, "ncclAllReduce", domain=1)
    e.call(2, 5, "cudaGraphLaunch_v10000", correlation=5)
    for i in range(200):
        e.kernel(100 + i, 101 + i, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", correlation=5)
    assert collectives(trace_of(e)).height == 200


@pytest.mark.parametrize("name", ["graph_nodes"])
def test_real_graph_replays_all_attributed(fixture_path, name):
    from tracekit.opening import open_trace

    with open_trace([fixture_path(name)]) as trace:
        found = attribution(trace)
        assert found.height == 360
        assert found["reason"].value_counts().rows() == [("attributed", 360)]
        assert found["launch_start_ns"].n_unique() == 20
