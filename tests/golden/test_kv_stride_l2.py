"""The recorded sweep of row strides under compute-triage counters: what is true of it."""

from __future__ import annotations

import polars as pl
import pytest

from tests.conftest import FIXTURES
from tracekit.engine import analyze
from tracekit.model.finding import Level
from tracekit.report import text

RAW = {
    "stride64": (28.99, 138),
    "random64": (20.84, 158),
    "stride128": (1.19, 178),
    "stride192": (1.36, 178),
    "stride256": (1.22, 183),
    "stride384": (1.91, 182),
    "stride512": (1.89, 183),
    "stride896": (1.91, 185),
    "stride1024": (1.91, 185),
    "random128": (1.24, 187),
}
"""Layout: mean of the raw samples inside its kernels, and how many there are."""


@pytest.fixture(scope="module")
def diagnosis(fixture_path):
    return analyze([fixture_path("kv_stride_l2")], only=["l2_miss", "kv_fragmentation"])


@pytest.fixture(scope="module")
def layers(diagnosis):
    rows = diagnosis.frames["l2_miss"]["layers"]
    layout = pl.col("label").str.extract(r"layout=(\w+)", 1).alias("layout")
    return {row["layout"]: row for row in rows.with_columns(layout).iter_rows(named=True)}


@pytest.mark.parametrize("layout", RAW)
def test_hit_rate_of_a_layout(layers, layout):
    raw, n = RAW[layout]
    row = layers[layout]
    assert row["raw_mean"] == pytest.approx(raw, rel=0.01)
    assert row["hit_frac"] == pytest.approx(raw / 50, rel=0.01)
    assert row["miss_frac"] == pytest.approx(1 - raw / 50, rel=0.01)
    assert (row["valid_cells"], row["cells"], row["subsample"]) == (n, n, False)


def test_a_layout_without_valid_samples_is_unknown(layers, diagnosis):
    row = layers["stride96"]
    assert (row["cells"], row["valid_cells"]) == (180, 0)
    assert row["hit_frac"] is None
    assert row["miss_frac"] is None
    finding = next(f for f in diagnosis.findings if f.id == "l2_miss/invalid-gpu0")
    assert finding.level is Level.UNKNOWN
    assert "180 of 180 samples invalid" in finding.title


def test_the_counter_is_found_to_read_half(diagnosis):
    counter = diagnosis.frames["l2_miss"]["counters"].row(0, named=True)
    assert counter["name"] == "L2 Sector Hit Rate from L1 [Ratio %]"
    assert (counter["full_scale"], counter["at_full_scale"]) == (50, 519)


def test_the_footprint_stands_beside_the_hit_rate(layers):
    """Whole lines hit; half-used lines fill the L2 twice; a wide random span fits or does not."""
    dense, sparse = layers["stride64"], layers["stride128"]
    assert (dense["line_overfetch_frac"], sparse["line_overfetch_frac"]) == (0.0, 1.0)
    assert layers["stride96"]["line_overfetch_frac"] == pytest.approx(0.5)
    assert layers["random64"]["span_l2_ratio"] == pytest.approx(0.495, rel=0.01)
    assert layers["random128"]["span_l2_ratio"] == pytest.approx(1.017, rel=0.01)
    assert layers["random64"]["hit_frac"] > 10 * layers["random128"]["hit_frac"]


def test_the_association_is_not_shown_and_never_called_a_cause(diagnosis):
    finding = next(f for f in diagnosis.findings if f.id == "l2_miss/association-gpu0")
    assert finding.level is Level.UNKNOWN
    assert "L2 hit rate 2.37% to 58.0% over 10 layers" in finding.title
    assert "interval too wide" in finding.title
    rows = {r["x_name"]: r for r in diagnosis.frames["l2_miss"]["associations"].to_dicts()}
    assert rows["frag_frac"]["n"] == 10
    assert rows["request_overfetch_frac"]["why"] == "the same in every layer"
    page = text.render(diagnosis, verbose=True)
    assert " caused" not in page
    assert " causes " not in page


def test_short_rows_apart_are_a_warning_with_their_layers(diagnosis):
    finding = next(f for f in diagnosis.findings if f.id.startswith("kv_fragmentation/layout"))
    assert finding.level is Level.WARN
    assert "10 of 11 layers" in finding.title
    rows = diagnosis.frames["kv_fragmentation"]["layout"].filter(
        (pl.col("level") == "layer") & pl.col("at_peak")
    )
    strides = rows.sort("layer")["stride_median_bytes"].to_list()
    assert strides[:9] == [64, 96, 128, 192, 256, 384, 512, 896, 1024]
    assert rows["sector_overfetch_frac"].unique().to_list() == [0.0], (
        "rows of two sectors fetch no third"
    )


@pytest.fixture(scope="module")
def counted(fixture_path):
    files = [fixture_path("kv_stride_l2"), FIXTURES / "ncu_kv_stride.csv.xz"]
    return analyze(files, only=["l2_miss"])


COUNTED = {
    "stride64": (0.360, 0.337, 79.8e6),
    "random64": (0.499, 0.529, 118.0e6),
    "stride96": (0.932, 0.956, 428.5e6),
    "stride512": (0.932, 0.972, 301.4e6),
    "random128": (0.935, 0.973, 302.0e6),
}
"""Layout: misses of all requests, misses of the SMs' requests, DRAM reads of one execution."""


@pytest.mark.parametrize("layout", COUNTED)
def test_counted_misses_of_a_layout(counted, layers, layout):
    rows = counted.frames["l2_miss"]["ncu_layers"]
    row = rows.filter(layer=layers[layout]["layer"]).row(0, named=True)
    every, tex, dram = COUNTED[layout]
    assert row["all_miss_frac"] == pytest.approx(every, abs=0.001)
    assert row["miss_frac"] == pytest.approx(tex, abs=0.001)
    assert row["dram_read_bytes"] == pytest.approx(dram, rel=0.001)
    assert (row["n_kernels"], row["matched_frac"]) == (6, 1.0)


def test_counted_and_sampled_agree_at_half_scale(counted, layers):
    rows = counted.frames["l2_miss"]["ncu_layers"]
    for layout in ("stride64", "random64"):
        hit = 1 - rows.filter(layer=layers[layout]["layer"])["miss_frac"][0]
        assert layers[layout]["raw_mean"] / 50 == pytest.approx(hit, abs=0.09)


def test_a_layout_that_sampling_could_not_tell_was_counted(counted):
    kernels = counted.frames["l2_miss"]["ncu_kernels"].filter(layer=1)
    row = kernels.row(0, named=True)
    assert row["inconsistent"] is True
    assert row["miss_source"] == "lts__t_sectors_op_read_lookup_hit"
    finding = next(f for f in counted.findings if f.id == "l2_miss/invalid-gpu0")
    assert finding.title.endswith("; Nsight Compute counted 95.6% misses")
    assert finding.missing == ()


def test_the_fill_kernels_in_between_were_not_profiled(counted):
    table = counted.frames["l2_miss"]["ncu_match"]
    columns = ("n_timeline", "n_profiled", "status", "matched_by")
    assert table.select(columns).rows() == [
        (66, 22, "matched", "layer"),
        (66, 0, "not profiled", ""),
    ]
    finding = next(f for f in counted.findings if f.id == "l2_miss/ncu-gpu0")
    metrics = {m.name: m.value for m in finding.metrics}
    assert metrics["matched_frac"] == pytest.approx(0.792, abs=0.001)
    assert finding.level is Level.UNKNOWN
    assert "33.7% to 97.3% over 11 layers" in finding.title
    assert "79.2% of kernel time profiled" in finding.title
