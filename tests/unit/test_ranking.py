"""The order of findings."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from tracekit.analyses.idle_gaps.tables import GAINS
from tracekit.model.finding import Finding, Level
from tracekit.model.gain import Gain
from tracekit.ranking import ranked, with_gains

SUMMED = Finding(id="a/summed", level=Level.WARN, title="", at_stake_ns=10**9)
GAIN = Gain(change="x", lo_ns=10, hi_ns=30, of_ns=100, n_steps=5)


def test_a_predicted_gain_goes_before_any_summed_time():
    small = replace(SUMMED, id="a/small", at_stake_ns=1, gain=GAIN)
    large = replace(SUMMED, id="a/large", at_stake_ns=1, gain=replace(GAIN, lo_ns=20, n_steps=6))
    worse = replace(SUMMED, id="a/worse", level=Level.CRITICAL)
    none = replace(SUMMED, id="a/none", gain=replace(GAIN, lo_ns=0, hi_ns=0.5))
    found = ranked([SUMMED, small, none, large, worse])
    assert [f.id for f in found] == ["a/worse", "a/large", "a/small", "a/none", "a/summed"]


def test_dequantisation_gets_the_gain_of_fusing():
    rows = {
        "gpu": [0, 0],
        "step_group": ["g", "g"],
        "what": ["graph", "fuse"],
        "change": ["x", "y"],
        "n_steps": [3, 3],
        "of_ns": [100.0, 100.0],
        "busy_ns": [90.0, 90.0],
        "removes_busy_ns": [0.0, 40.0],
        "after_lo_ns": [95.0, 40.0],
        "after_hi_ns": [99.0, 60.0],
        "gain_lo_ns": [1.0, 40.0],
        "gain_hi_ns": [5.0, 60.0],
        "assumptions": ["a", "b; c"],
        "confidence": [0.5, 0.5],
    }
    gains = pl.DataFrame(rows, schema=GAINS.schema)
    finding = Finding(
        id="dequant_stall/exposed", level=Level.WARN, title="", scope=(("step group", "g"),)
    )
    (found,) = with_gains([finding], gains)
    assert found.gain is not None
    assert (found.gain.change, found.gain.lo_ns, found.gain.hi_ns) == ("y", 40.0, 60.0)
    assert found.gain.assumptions == ("b", "c")
    assert with_gains([replace(finding, level=Level.OK)], gains)[0].gain is None
    assert with_gains([finding], None) == [finding]
