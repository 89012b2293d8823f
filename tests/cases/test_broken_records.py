"""Records that lack what every record should have; each format still gives an answer."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.support.builders import Export
from tracekit.report import document, markdown, text
from tracekit.report.page import html

DEQUANT, GEMM = "dequantize_int4_kernel", "nvjet_tst_64x8"


@pytest.fixture
def rendered(diagnose):
    """Return a function from exports to the answer in every format, the JSON one parsed."""

    def run(*exports, **options):
        found = diagnose(*exports, with_pictures=True, **options)
        written = document.render(found)
        values = json.loads(written, parse_constant=lambda name: pytest.fail(name))
        jsonschema.Draft202012Validator(document.schema()).validate(values)
        shown = (text.render(found, width=100, color=False), markdown.render(found))
        return values, *shown, html.render(found)

    return run


def test_work_without_a_device_is_told_apart_from_every_gpu(rendered):
    e = Export().gpu().kernel(0, 100, GEMM).kernel(0, 50, GEMM, deviceId=None)
    values, *shown = rendered(e)
    known, unknown = values["overview"]["gpus"]
    assert (known["gpu"], known["busy_ns"], known["unmeasured"]) == (0, 100, {})
    assert (unknown["gpu"], unknown["busy_ns"]) == (None, 50)
    assert unknown["unmeasured"] == {"gpu": "the report does not name the device"}
    assert all("GPU unknown" in answer and "GPU -1" not in answer for answer in shown)


@pytest.mark.parametrize(
    "lacks",
    [{name: None} for name in ("deviceId", "contextId", "streamId", "correlationId", "globalPid")]
    + [{"demangledName": None}, {"demangledName": 99}, {"gridX": None}],
    ids=str,
)
@pytest.mark.parametrize("stepped", [True, False])
def test_kernels_that_lack_a_field(rendered, lacks, stepped):
    e = Export().gpu()
    if stepped:
        e.range(0, 1_000_000, "step 1")
    for i in range(6):
        for at, name in ((0, DEQUANT), (1_000, GEMM), (2_000, "ncclDevKernel_AllReduce_RING_LL")):
            start = 10_000 * i + at
            e.kernel(start, start + 1_000, name, launch=start, **lacks)
    values, *_ = rendered(e)
    assert values["overview"]["n_kernels"] == 18
    assert values["overview"]["gpus"][0]["busy_ns"] == 18_000


def test_a_profiler_that_counts_beyond_a_double(rendered):
    lost = "9" * 25
    e = Export().kernel(0, 100, GEMM)
    e.add("DIAGNOSTIC_EVENT", timestamp=1, severity=1, text=f"CUDA events dropped: {lost}")
    values, *_ = rendered(e)
    assert [q["count"] for q in values["quality"]] == [lost]
