"""The caching allocator's snapshot, in the shape that torch gives it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from tracekit_injectors import torch_hooks
from tracekit_injectors.sidecar import Sidecar

STATE = {
    "segments": [
        {
            "device": 0,
            "address": 0x10000,
            "total_size": 2097152,
            "stream": 0,
            "blocks": [
                {"size": 512, "requested_size": 400, "state": "active_allocated"},
                {"size": 1024, "requested_size": 0, "state": "inactive"},
                {"size": 2048, "requested_size": 2048, "state": "active_allocated"},
            ],
        }
    ],
    "device_traces": [
        [
            {
                "action": "segment_alloc",
                "addr": 0x10000,
                "size": 2097152,
                "stream": 0,
                "time_us": 5,
            },
            {"action": "alloc", "addr": 0x10000, "size": 512, "stream": 0, "time_us": 6},
            {"action": "free_requested", "addr": 0x10000, "size": 512, "stream": 0, "time_us": 7},
            {"action": "free_completed", "addr": 0x10000, "size": 512, "stream": 0, "time_us": 8},
            {"action": "alloc", "addr": 0x10000, "size": 512, "stream": 0},
        ]
    ],
}


def test_segments_blocks_and_history(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path / "a.jsonl")
    torch_hooks.snapshot(STATE, sidecar)
    sidecar.drain()
    records = [json.loads(li) for li in next(tmp_path.glob("*")).read_text().splitlines()[1:]]
    assert [r["text"] for r in records] == [
        "ALLOC source=torch_segment addr=0x10000 bytes=2097152 stream=0x0 device=0",
        "ALLOC source=torch_block addr=0x10000 bytes=512 stream=0x0 device=0",
        "FREE source=torch_block addr=0x10000 bytes=512 stream=0x0 device=0",
        "ALLOC source=torch_segment addr=0x10000 bytes=2097152 stream=0x0 device=0 again=1",
        "ALLOC source=torch_block addr=0x10000 bytes=512 requested=400 stream=0x0 device=0 again=1",
        "ALLOC source=torch_block addr=0x10600 bytes=2048 requested=2048"
        " stream=0x0 device=0 again=1",
    ]
    times = [r["t_mono_ns"] for r in records]
    assert times[2] - times[0] == 3000


def test_without_being_asked_the_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEKIT_ALLOCATOR", raising=False)
    torch_hooks.attach_allocator(ModuleType("torch.cuda"))


def test_it_needs_somewhere_to_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACEKIT_ALLOCATOR", "1")
    monkeypatch.delenv("TRACEKIT_SIDECAR", raising=False)
    torch_hooks.attach_allocator(ModuleType("torch.cuda"))
    assert "needs TRACEKIT_SIDECAR" in capsys.readouterr().err


def test_state_is_told_again_when_a_capture_starts(tool) -> None:
    module = ModuleType("torch.cuda.profiler")
    module.start = lambda: "started"
    torch_hooks.attach_profiler(module)
    assert module.start() == "started"
    assert tool.texts("META")[-1].endswith("again=1")
    assert len(tool.texts("SYNC")) == 2
