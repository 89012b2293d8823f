"""Selection: what rules a device out, and what a bound cannot decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.errors import UsageError
from tracekit.model.hardware import HARDWARE, find
from tracekit.sizing.bounds.workload import Workload
from tracekit.sizing.choice.selection import Objectives, select
from tracekit.sizing.models import known_shape

SHAPE = known_shape("llama-3-70b")
LOAD = Workload(batch=16, context_tokens=4096, prompt_tokens=4096)


def chosen(wanted, devices=HARDWARE, load=LOAD, **options):
    return {c.device: c for c in select(SHAPE, devices, load, wanted, **options)}


def verdicts(candidate):
    return {c.name: c.verdict for c in candidate.constraints}


def test_capacity_rules_out_and_more_gpus_bring_in():
    (alone,) = chosen(Objectives(), [find("H100")]).values()
    assert alone.rejected
    assert alone.failing == ("capacity",)
    (four,) = chosen(Objectives(), [find("H100")], max_gpus=8).values()
    assert (four.gpus, four.rejected) == (4, False)


def test_a_bound_rules_out_but_never_in():
    found = chosen(Objectives(tpot_s=0.02), max_gpus=8)
    assert verdicts(found["L4"])["tpot"] == "failed"
    assert verdicts(found["B200"]) == {"capacity": "met", "tpot": "possible"}
    assert set(list(found)[-3:]) == {"L40S", "L4", "L20"}


def test_a_measured_percentile_decides():
    wanted = Objectives(p99_s=5.0, measured_p99_s={"B200": 4.0, "MI300X": 6.0})
    found = chosen(wanted, max_gpus=2)
    assert verdicts(found["B200"])["p99"] == "met"
    assert found["MI300X"].failing == ("p99",)
    assert verdicts(found["GB200"])["p99"] == "possible"


def test_an_unknown_price_is_unknown():
    wanted = Objectives(max_usd_per_hour=2.5)
    devices = [find("B200"), replace(find("MI300X"), price_usd_per_hour=3.0)]
    found = chosen(wanted, devices, max_gpus=2, rank_by="price")
    assert verdicts(found["B200"])["price"] == "unknown"
    assert not found["B200"].rejected
    assert found["MI300X"].failing == ("price",)
    assert found["MI300X"].usd_per_million_tokens == pytest.approx(
        3.0 / 3600 / found["MI300X"].tokens_per_s * 1e6
    )


def test_power_counts_every_gpu():
    found = chosen(Objectives(max_w=1500), max_gpus=2)
    assert found["H200 SXM"].failing == ()
    assert "power" in found["B200"].failing


def test_a_rate_that_a_device_has_not_is_a_reason():
    load = replace(LOAD, dtype="fp8", compute_dtype="fp8")
    found = chosen(Objectives(), load=load, max_gpus=8)
    assert found["A100 80 SXM"].rejected
    assert found["A100 80 SXM"].note == "A100 80 SXM has no fp8 tensor rate"


def test_the_order():
    kept = [c for c in chosen(Objectives(), max_gpus=8).values() if not c.rejected]
    rates = [c.tokens_per_s / c.gpus for c in kept]
    assert rates == sorted(rates, reverse=True)
    with pytest.raises(UsageError, match="cannot rank by 'colour'"):
        chosen(Objectives(), rank_by="colour")


def test_the_command(said):
    words = ("size", "select", "--model", "llama-3-70b", "--slo", "tpot=20ms", "--batch", 16)
    code, out, _ = said(*words, "--context", 4096, "--measured-p99", "H200=3s", "--slo", "p99=2s")
    assert code == 0
    assert "L4 (8 GPU(s)): tpot: at least 66.9 ms, allowed 20.0 ms" in out
    assert "H200 SXM (8 GPU(s)): p99: measured 3.00 s, allowed 2.00 s" in out


@pytest.mark.parametrize("slo", ["tpot=20", "speed=1s", "tpot=0ms"])
def test_an_objective_needs_a_name_and_a_time(said, slo):
    code, _, error = said("size", "select", "--model", "llama-3-8b", "--slo", slo)
    assert code == 2
    assert "such as 'tpot=20ms'" in error
