"""Which limit the kernels of recorded traces run at."""

from __future__ import annotations

import pytest

from tracekit.engine import analyze
from tracekit.model.finding import Level
from tracekit.report import text
from tracekit.report.document import document

SHARES = ("dram_read_frac", "dram_write_frac", "tensor_frac", "sms_active_frac")


def _class(diagnosis, kind, gpu=0):
    rows = diagnosis.frames["kernel_floor"]["classes"].rows(named=True)
    return next(r for r in rows if (r["gpu"], r["kind"]) == (gpu, kind))


def _pct(row):
    return tuple(round(row[name] * 100, 1) for name in SHARES)


@pytest.mark.parametrize(
    ("name", "kind", "n_pure", "shares_pct", "limit"),
    [
        ("int4_dequant", "gemm", 40, (72.3, 1.0, 3.0, 53.4), "near the DRAM limit"),
        ("tp_decode_rank0", "attention", 503, (93.0, 1.1, 11.4, 97.2), "at the DRAM limit"),
        ("allreduce_2gpu", "gemm", 1459, (17.8, 2.5, 93.3, 97.2), "at the tensor limit"),
    ],
)
def test_limits_of_pure_samples(fixture_path, name, kind, n_pure, shares_pct, limit):
    row = _class(analyze([fixture_path(name)], only=["kernel_floor"]), kind)
    assert (row["n_pure"], _pct(row), row["verdict"]) == (n_pure, shares_pct, limit)


@pytest.mark.parametrize(
    ("name", "kind", "median_us"),
    [("int4_dequant", "dequant", 31.6), ("tp_decode_rank0", "gemm", 14.3)],
)
def test_kernels_shorter_than_a_sample_are_unknown(fixture_path, name, kind, median_us):
    row = _class(analyze([fixture_path(name)], only=["kernel_floor"]), kind)
    assert (row["n_pure"], row["verdict"]) == (0, "unknown")
    assert row["why"] == "kernels shorter than the sampling period"
    assert row["median_ns"] / 1e3 == pytest.approx(median_us, abs=0.05)


def test_a_product_near_the_limit_has_a_bound(fixture_path):
    d = analyze([fixture_path("int4_dequant")], only=["kernel_floor"])
    row = _class(d, "gemm")
    used = row["dram_frac"]
    assert row["speedup_most_frac"] == pytest.approx(1 / used - 1)
    assert row["bound_ns"] == pytest.approx(4_406_095 * (1 - used / 0.94))
    (finding,) = d.findings
    assert finding.level is Level.OK
    assert finding.title.startswith(
        "near the DRAM limit: 73.3% of peak bandwidth (read 72.3%, write 1.00%), at most 36.5%"
    )
    assert finding.title.endswith("dequant not judged")


def test_attention_at_the_dram_limit_has_nothing_to_gain(fixture_path):
    row = _class(analyze([fixture_path("tp_decode_rank0")], only=["kernel_floor"]), "attention")
    assert row["bound_ns"] == pytest.approx(0.0, abs=0.002 * row["time_ns"])


def test_a_run_at_the_tensor_limit_says_so(fixture_path):
    d = analyze([fixture_path("allreduce_2gpu")], only=["kernel_floor"])
    assert [(f.level, f.title.partition(" in ")[0]) for f in d.findings] == [
        (Level.OK, "tensor cores 93.3% busy: at the limit"),
        (Level.OK, "tensor cores 91.2% busy: at the limit"),
    ]


def test_small_kernels_are_bound_by_latency_and_fill_little_of_the_span(fixture_path):
    d = analyze([fixture_path("hf_dynamic_cache")], only=["kernel_floor"])
    classes = d.frames["kernel_floor"]["classes"]
    assert set(classes["n_pure"]) == {0}
    (finding,) = d.findings
    assert finding.title.startswith("latency-bound: median 5.97 us on fewer blocks than 132")
    assert "(kernels fill 6.96% of its span)" in finding.title


def test_without_dram_counters_the_limit_is_unknown(fixture_path):
    d = analyze([fixture_path("kv_stride_l2")], only=["kernel_floor"])
    (finding,) = d.findings
    assert finding.level is Level.UNKNOWN
    assert "no samples of DRAM and tensor activity" in finding.title
    assert "--gpu-metrics-devices=all" in finding.missing[0].command
    assert _class(d, "elementwise")["sms_active_frac"] == pytest.approx(0.993, abs=0.0005)


def test_top_kernels_stand_in_text_and_json(fixture_path):
    d = analyze([fixture_path("kv_stride_l2")], only=["kernel_floor"])
    top = d.frames["kernel_floor"]["top_kernels"]
    assert top.row(0, named=True)["kind"] == "unclassified"
    name = top["name"][0]
    assert f"{name}: 79.2% of GPU time" in " ".join(text.render(d, width=200).split())
    assert document(d)["frames"]["kernel_floor"]["top_kernels"]["columns"]["name"][0] == name


def test_a_run_at_the_dram_limit_is_fine(fixture_path):
    d = analyze([fixture_path("dram_saturated")], only=["kernel_floor"])
    row = _class(d, "elementwise")
    assert (row["n_pure"], _pct(row)) == (727, (44.2, 44.2, 0.0, 99.3))
    (finding,) = d.findings
    assert (finding.level, finding.confidence.label) == (Level.OK, "high")
    assert finding.title.startswith(
        "at the DRAM limit: 88.4% of peak bandwidth (read 44.2%, write 44.2%) in elementwise"
    )
    assert row["bound_ns"] == pytest.approx(row["time_ns"] * (1 - row["dram_frac"] / 0.94))


def test_kernels_at_a_limit_that_fill_little_of_the_span_say_so(fixture_path):
    d = analyze([fixture_path("sync_copy")], only=["kernel_floor"])
    (finding,) = d.findings
    assert finding.title.startswith("tensor cores 90.0% busy: at the limit in gemm kernels")
    assert finding.title.endswith("(kernels fill 7.07% of its span)")


def test_the_first_line_says_that_the_run_is_at_the_limit(fixture_path):
    d = analyze([fixture_path("dram_saturated")])
    first = text.render(d, width=200).splitlines()[0]
    assert first.startswith("GPU 0 is at the DRAM limit, 88.4% of peak. No problem found")
