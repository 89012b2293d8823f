"""The recorded Hugging Face decode with a cache that grows by concatenation: what is true of it."""

from __future__ import annotations

import pytest

from tracekit.engine import analyze
from tracekit.model.finding import Level


def test_relocations_are_counted_and_harmless(fixture_path):
    d = analyze([fixture_path("hf_dynamic_cache")], only=["kv_fragmentation"])
    frames = d.frames["kv_fragmentation"]
    chains = frames["chains"]
    assert chains["moves"].sum() == 16
    assert chains["copied_bytes"].sum() == 1_073_152
    assert chains["new_bytes"].sum() == 16_384
    assert chains["write_amplification"].to_list() == [65.5] * 4
    assert chains["pattern"].unique().to_list() == ["growing cache"]
    assert chains.select("layer", "kind").rows() == [(0, "k"), (0, "v"), (1, "k"), (1, "v")]
    copies = frames["copies"].row(0, named=True)
    assert (copies["step_group"], copies["n_steps"], copies["gpu"]) == ("decode step=N", 4, 0)
    assert copies["copy_frac"] == pytest.approx(2.9e-5, rel=0.01)
    found = {f.id: f for f in d.findings}
    finding = found["kv_fragmentation/copies-one-tensor-a-layer"]
    assert finding.level is Level.OK
    assert "16 relocations copied 1.07 MB to add 16.4 kB (65.5x)" in finding.title
    assert "harmless" in finding.title
    assert d.worst is Level.OK


def test_a_cache_in_one_piece_has_nothing_to_fragment(fixture_path):
    d = analyze([fixture_path("hf_dynamic_cache")], only=["kv_fragmentation"])
    layout = d.frames["kv_fragmentation"]["layout"]
    assert layout["frag_frac"].unique().to_list() == [0.0]
    assert layout["misaligned_128b_frac"].unique().to_list() == [0.0]


def test_l2_says_which_option_would_sample_it(fixture_path):
    d = analyze([fixture_path("hf_dynamic_cache")], only=["l2_miss"])
    (finding,) = d.findings
    assert finding.level is Level.UNKNOWN
    assert "none of 22 counters is an L2 hit rate" in finding.title
    assert "--gpu-metrics-set=gh100-ct" in finding.missing[0].command
    assert d.frames["l2_miss"]["layers"].is_empty()
