"""A measured step next to its bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import Export
from tracekit.sizing.bounds.against_bound import against_bound
from tracekit.sizing.bounds.roofline import Setting, decode, prefill
from tracekit.sizing.measured.phases import phases
from tracekit.sizing.models import known_shape

SETTING = Setting(
    weight_bytes_per_value=2, cache_bytes_per_value=2, dram_bytes_per_s=4e12, flop_per_s=1e15
)
BOUND = decode(known_shape("llama-3-8b"), [2048] * 8, SETTING)


@pytest.mark.parametrize(
    ("times", "verdict"),
    [(0.9, "implausible"), (0.98, "as predicted"), (1.14, "as predicted"), (1.2, "slower")],
)
def test_the_verdict(times, verdict):
    assert against_bound(BOUND, BOUND.time_s * times, BOUND.bytes, 4e12).verdict == verdict


def test_more_bytes_and_a_busy_memory():
    found = against_bound(BOUND, BOUND.time_s * 2, BOUND.bytes * 1.9, 4e12)
    assert found.reasons == ("1.90 times the bytes: activations, copies or unfused kernels",)
    assert found.bandwidth_frac == pytest.approx(0.95)


def test_the_same_bytes_and_an_idle_memory():
    found = against_bound(BOUND, BOUND.time_s * 2, BOUND.bytes, 4e12)
    assert found.reasons == ("50% of the bandwidth: launch gaps, small kernels or communication",)


def test_fewer_bytes():
    assert (
        "only 0.50 of the bytes"
        in against_bound(BOUND, BOUND.time_s * 2, BOUND.bytes / 2, 4e12).reasons[0]
    )


def test_a_prefill_below_the_tensor_peak():
    bound = prefill(known_shape("llama-3-8b"), [4096], SETTING)
    found = against_bound(bound, bound.time_s * 1.5, bound.bytes, 4e12)
    assert found.reasons == (
        "the tensor cores do not reach their peak rate, or idle between kernels",
    )


def test_what_was_not_measured_gives_no_cause():
    found = against_bound(BOUND, BOUND.time_s * 2, None, 4e12)
    assert (found.bytes_ratio, found.bandwidth_frac) == (None, None)
    assert found.reasons == ("DRAM traffic was not measured, so the cause is not known",)
    unknown = against_bound(replace(BOUND, time_s=None), 1.0, None, 4e12)
    assert (unknown.verdict, unknown.time_ratio) == ("unknown", None)


def steps(*, sampled=True, name="NVIDIA H200"):
    export = Export().gpu(name=name)
    for i in range(2):
        start = i * 100_000
        export.range(start, start + 10_000, f"prefill step={i}")
        export.kernel(start + 20_000, start + 20_000 + 10_000 * (i + 1), launch=start + 100)
    if sampled:
        export.metric("DRAM Read Bandwidth [Throughput %]", range(0, 200_000, 1000), [50] * 200)
        export.metric("DRAM Write Bandwidth [Throughput %]", range(0, 200_000, 1000), [0] * 200)
    return export


def test_steps_of_a_trace(traced):
    (found,) = phases(traced(steps()))
    assert (found.group, found.phase, found.n_steps) == ("prefill step=N", "prefill", 2)
    assert found.time_s == pytest.approx(15e-6)
    assert found.dram_frac == pytest.approx(0.5)
    assert found.dram_bytes == pytest.approx(0.5 * 4_814_304_000_000 * 15e-6)
    assert found.missing == ()


def test_without_counters_the_traffic_is_unknown(traced):
    (found,) = phases(traced(steps(sampled=False)))
    assert (found.dram_frac, found.dram_bytes) == (None, None)
    assert "DRAM counters were not sampled" in str(found.missing[0])


def test_without_steps_there_are_none(traced):
    export = Export().gpu()
    export.kernel(0, 10)
    assert phases(traced(export)) == ()
