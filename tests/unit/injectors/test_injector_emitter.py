from __future__ import annotations

import json
from pathlib import Path

import pytest
import tracekit_injectors as injectors
from tracekit_injectors import emitter as emitter_module
from tracekit_injectors.emitter import Emitter

WINDOW = 500_000_000


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(emitter_module, "time", clock)
    return clock


def test_without_a_tool_nothing_is_even_formatted(
    no_tool: Emitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise AssertionError

    monkeypatch.setattr(emitter_module, "text", fail)
    injectors.kv_realloc(layer=0, kind="k", addr=1, bytes=2)
    injectors.kv_table(seq=0, first=0, op="alloc", ids=iter([1]))
    injectors.moe_route(layer=0, counts=iter([1]))
    injectors.kv_pool(layer=0, kind="k", addr=1, bytes=2)
    injectors.kv_block(layer=0, addr=1, bytes=2)
    injectors.kv_free(layer=0)
    with injectors.step(1), injectors.layer(0):
        pass
    assert injectors.channel() == "none"


def test_the_public_functions_write_the_grammar(tool) -> None:
    with injectors.step(7, phase="decode", n_seq=2, n_tok=2, kv_tokens=40), injectors.layer(3):
        injectors.kv_block(
            layer=3, addr=4096, bytes=64, kind="k", seq=1, block=2, used=8, op="append"
        )
        injectors.kv_realloc(
            layer=3, kind="v", addr=8192, bytes=64, seq=1, used=8, seq_len=4, device=0
        )
        injectors.kv_free(layer=3, kind="v", seq=1, block=2, addr=8192, device=0)
    injectors.kv_table(seq=1, first=4, op="share", ids=[7, 8], engine="e-0", group=1)
    injectors.moe_route(layer=2, step=7, batch=0, k=2, counts=[3, 0, 5])
    assert tool.texts()[2:] == [
        "STEP step=7 phase=decode n_seq=2 n_tok=2 kv_tokens=40",
        "LAYER layer=3",
        "KV_BLOCK layer=3 seq=1 block=2 kind=k addr=0x1000 bytes=64 used=8 op=append",
        "KV_REALLOC layer=3 kind=v seq=1 addr=0x2000 bytes=64 used=8 seq_len=4 device=0",
        "KV_FREE layer=3 kind=v seq=1 block=2 addr=0x2000 device=0",
        "KV_TABLE seq=1 first=4 op=share ids=7,8 engine=e-0 group=1",
        "MOE_ROUTE layer=2 step=7 batch=0 k=2 counts=3,0,5",
    ]
    assert [kind for kind, _ in tool.events].count("pop") == 2


def test_meta_and_clock_come_first(tool) -> None:
    meta, sync = tool.texts()
    assert meta.startswith("META version=0.1.0 grammar=tk1 pid=")
    assert meta.endswith("markers=nvtx")
    assert sync.startswith("SYNC mono_ns=")


def test_ranges_close_when_the_block_fails(tool) -> None:
    with pytest.raises(ZeroDivisionError), injectors.step(0), injectors.layer(1):
        raise ZeroDivisionError
    assert [kind for kind, _ in tool.events[-4:]] == ["push", "push", "pop", "pop"]


def test_pools_are_told_again_with_the_state(tool) -> None:
    injectors.kv_pool(layer=0, kind="k", addr=4096, bytes=64, stride=32, blocks=2, engine="a b")
    injectors.kv_pool(layer=0, kind="k", addr=8192, bytes=64, stride=32, blocks=2, engine="a b")
    emitter_module.emitter.tell_again()
    pools = tool.texts("KV_POOL")
    assert pools[1:] == [
        "KV_POOL layer=0 kind=k addr=0x2000 bytes=64 stride=32 blocks=2 engine=a_b",
        "KV_POOL layer=0 kind=k addr=0x2000 bytes=64 stride=32 blocks=2 engine=a_b again=1",
    ]
    assert tool.texts("META")[-1].endswith("again=1")


def test_state_and_clock_return_by_themselves(tool, clock: Clock) -> None:
    emitter_module.emitter._next_sync_ns = clock.now
    injectors.kv_free(layer=0)
    assert len(tool.texts("SYNC")) == 2
    injectors.kv_free(layer=0)
    assert len(tool.texts("SYNC")) == 2


def overrun(clock: Clock, tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spend windows in which KV markers take a tenth of the step time."""
    shared = emitter_module.emitter
    monkeypatch.setattr(tool, "mark", lambda *_: setattr(clock, "now", clock.now + 50_000))
    shared._budget = emitter_module._budget(clock.now)
    shared._next_sync_ns = clock.now + 10**12
    for number in range(22):
        with injectors.step(number):
            for layer in range(100):
                injectors.kv_free(layer=layer)
            clock.now += 45_000_000


def test_beyond_the_budget_kv_markers_stop_and_it_is_said(
    tool, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    overrun(clock, tool, monkeypatch)
    said = capsys.readouterr().err
    assert said.count("tracekit:") == 1
    assert "kv markers cost more than 0.01 of the step time and stop" in said
    before = len(tool.texts("STEP"))
    with injectors.step(99):
        pass
    assert len(tool.texts("STEP")) == before + 1


def test_beyond_the_budget_kv_markers_go_to_the_sidecar(
    tool,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tracekit_injectors.sidecar import Sidecar

    shared = emitter_module.emitter
    shared._sidecar = Sidecar(tmp_path / "run.jsonl")
    overrun(clock, tool, monkeypatch)
    injectors.kv_free(layer=77)
    shared.drain()
    assert "go to the markers file" in capsys.readouterr().err
    written = [json.loads(line) for line in next(tmp_path.glob("*.jsonl")).read_text().splitlines()]
    assert written[-1]["text"] == "KV_FREE layer=77"


def test_the_budget_can_be_lifted(
    tool, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACEKIT_BUDGET", "off")
    overrun(clock, tool, monkeypatch)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("setting", "share"), [("", 0.01), ("0.2", 0.2), ("lots", 0.01)])
def test_the_budget_setting(setting: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_BUDGET", setting)
    assert emitter_module._share_frac() == share


def test_ranges_in_the_sidecar_have_both_ends(
    no_tool: Emitter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock
) -> None:
    monkeypatch.setenv("TRACEKIT_SIDECAR", str(tmp_path / "m.jsonl"))
    no_tool._reset()
    with injectors.step(1):
        clock.now += 500
    no_tool.drain()
    assert injectors.channel() == "sidecar"
    record = json.loads(next(tmp_path.glob("*.jsonl")).read_text().splitlines()[-1])
    assert record["text"] == "STEP step=1"
    assert record["end_mono_ns"] - record["t_mono_ns"] == 500
