"""Exports differ between versions: tables, columns and names that are not there."""

from __future__ import annotations

import pytest

from tests.support.builders import Export
from tracekit.model.finding import Level
from tracekit.views.device.activity import activity
from tracekit.views.device.kernels import kernel_names
from tracekit.views.nvtx.ranges import marks, ranges


def dequant_export() -> Export:
    """Two dequantisation kernels before GEMMs, launched and inside a step."""
    e = Export().gpu()
    e.range(0, 900, "step 0")
    e.kernel(1_000, 2_000, "dequantize_int4_kernel", launch=10)
    e.kernel(2_010, 3_000, "nvjet_tst_64x8", launch=20)
    return e


def test_kernels_alone_are_analysed_and_the_rest_is_named_as_missing(diagnose):
    e = Export().kernel(0, 100, "nvjet_tst_64x8")
    d = diagnose(e)
    assert d.overview.gpus[0].busy_ns == 100
    assert d.overview.n_launches is None
    found = {f.id: f for f in d.findings}
    assert found["dequant_stall/none"].level is Level.OK
    unknown = [f for f in d.findings if f.level is Level.UNKNOWN]
    assert unknown
    commands = [m.command for f in unknown for m in f.missing]
    assert any(c.startswith("nsys profile -t cuda,nvtx ") for c in commands)


def test_absent_table_and_empty_table_give_the_same_answer(diagnose):
    absent, empty = dequant_export(), dequant_export().table("CUPTI_ACTIVITY_KIND_MEMCPY")
    first, second = diagnose(absent), diagnose(empty)
    assert first.findings == second.findings
    assert first.overview == second.overview


def test_no_nvtx_at_all(diagnose):
    d = diagnose(Export().kernel(0, 100, "nvjet_tst_64x8", launch=-50))
    assert d.overview.n_steps == 0
    assert d.overview.n_kernels == 1


def test_suffixed_tables_are_the_same_tables(diagnose):
    plain = dequant_export()
    suffixed = dequant_export().rename(
        "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL_V3"
    )
    assert diagnose(plain).findings == diagnose(suffixed).findings


def test_names_from_text_only(trace_of):
    e = Export().drop_columns("NVTX_EVENTS", "textId").range(0, 10, "step 1").range(20, 30, "b")
    assert ranges(trace_of(e))["text"].to_list() == ["step 1", "b"]


def test_names_from_text_and_registered_strings(trace_of):
    e = Export()
    e.range(0, 10, "inline").range(20, 30, None, textId=e.string("registered"))
    e.mark(5, "m")
    trace = trace_of(e)
    assert ranges(trace)["text"].to_list() == ["inline", "registered"]
    assert marks(trace)["text"].to_list() == ["m"]


def test_dangling_string_ids_keep_their_rows(trace_of, diagnose):
    e = Export().range(0, 10, None, textId=1234).range(20, 30, "b")
    assert ranges(trace_of(e))["text"].to_list() == ["<string 1234>", "b"]
    d = diagnose(e)
    assert [(q.level, q.count) for q in d.quality if "string" in q.text] == [(Level.WARN, 1)]


def test_newer_schema_with_unknown_column_is_noted_and_read(diagnose):
    e = Export(schema="9.9.9").kernel(0, 100, "nvjet_tst_64x8", somethingNew=3)
    d = diagnose(e)
    assert d.overview.gpus[0].busy_ns == 100
    assert any("9.9.9 is newer than the newest tested" in q.text for q in d.quality)


def test_no_metadata_at_all_goes_by_columns(diagnose):
    d = diagnose(Export(schema=None).kernel(0, 100, "nvjet_tst_64x8"))
    assert d.overview.gpus[0].busy_ns == 100
    assert d.reports[0].schema_version is None
    assert any("schema version unknown" in q.text for q in d.quality)


def test_kernels_without_a_process_join_on_correlation_alone(diagnose):
    e = dequant_export()
    e.drop_columns("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid", "contextId", "graphNodeId")
    for row in e.rows["CUPTI_ACTIVITY_KIND_KERNEL"]:
        for name in ("globalPid", "contextId", "graphNodeId"):
            row.pop(name, None)
    d = diagnose(e)
    assert d.overview.n_with_launch == 2
    assert d.overview.step_groups == {"step N": (1, 2_000.0)}
    assert any("matched by correlation id alone" in q.text for q in d.quality)


def test_two_processes_and_no_process_column_are_not_guessed(diagnose):
    e = dequant_export()
    e.call(50, 55, "cudaLaunchKernel_v7000", pid=200, tid=200, correlation=1)
    e.drop_columns("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid")
    for row in e.rows["CUPTI_ACTIVITY_KIND_KERNEL"]:
        row.pop("globalPid")
    assert diagnose(e).overview.n_with_launch == 0


def test_cpu_only_trace_says_so_and_prints_no_gpu_ratio(diagnose):
    e = Export().range(0, 100, "load").call(0, 10, "cudaGetDeviceCount", correlation=1)
    d = diagnose(e)
    assert d.overview.perspective == ("no accelerator activity recorded",)
    assert d.overview.gpus == ()
    assert d.overview.unclassified_frac is None
    assert {f.level for f in d.findings} == {Level.UNKNOWN}


@pytest.mark.parametrize(
    ("demangled", "mangled", "short", "shown"),
    [("a", "b", "c", "a"), (None, "b", "c", "b"), (None, None, "c", "c")],
)
def test_names_fall_back_from_demangled_to_short(trace_of, demangled, mangled, short, shown):
    e = Export()
    ids = {
        k: e.string(v) if v else None
        for k, v in (("demangledName", demangled), ("mangledName", mangled), ("shortName", short))
    }
    e.kernel(0, 10, "x", **ids)
    trace = trace_of(e)
    assert kernel_names(trace)["name"].to_list() == [shown]
    assert activity(trace).height == 1
