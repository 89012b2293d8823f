"""Stand-ins for a tool, a tensor and an emitter that can be looked into."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tracekit_injectors import emitter as emitter_module
from tracekit_injectors import patching
from tracekit_injectors.emitter import Emitter
from tracekit_injectors.grammar import CATEGORY_NUMBER


class RecordingTool:
    """Takes the place of an NVTX domain and keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.categories: list[int] = []

    def mark(self, category: int, text: str) -> None:
        self.categories.append(category)
        self.events.append(("mark", text))

    def push(self, category: int, text: str) -> None:
        self.categories.append(category)
        self.events.append(("push", text))

    def pop(self) -> None:
        self.events.append(("pop", ""))

    def texts(self, *events: str) -> list[str]:
        """Return the markers, only those of the named events if any are named."""
        found = [text for kind, text in self.events if kind != "pop"]
        return [t for t in found if not events or t.partition(" ")[0] in events]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingTool]:
    """A listening tool; the shared emitter writes to it for the length of a test."""
    listening = RecordingTool()
    shared = emitter_module.emitter
    monkeypatch.delenv("TRACEKIT_SIDECAR", raising=False)
    monkeypatch.setattr(emitter_module.nvtx, "connect", lambda *_: listening)
    monkeypatch.setattr(patching, "_off", set())
    shared._reset()
    assert shared.channel == "nvtx"
    yield listening
    shared._reset()


@pytest.fixture
def no_tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emitter]:
    """The shared emitter with nowhere to write to."""
    monkeypatch.delenv("TRACEKIT_SIDECAR", raising=False)
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    emitter_module.emitter._reset()
    yield emitter_module.emitter
    emitter_module.emitter._reset()


class FakeDevice:
    index = 0
    type = "cuda"


class FakeStorage:
    def __init__(self, size: int) -> None:
        self._size = size

    def nbytes(self) -> int:
        return self._size


class FakeTensor:
    """Has what hooks may ask of a tensor, and nothing that would read its data."""

    device = FakeDevice()

    def __init__(
        self, shape: tuple[int, ...], addr: int, *, item: int = 2, offset: int = 0, spare: int = 0
    ) -> None:
        self.shape = shape
        self._addr = addr
        self._item = item
        self._offset = offset
        self._spare = spare

    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        return self.numel() * self._item

    def element_size(self) -> int:
        return self._item

    def data_ptr(self) -> int:
        return self._addr

    def storage_offset(self) -> int:
        return self._offset

    def untyped_storage(self) -> FakeStorage:
        return FakeStorage((self.numel() + self._offset) * self._item + self._spare)

    def stride(self) -> tuple[int, ...]:
        strides, step = [], 1
        for size in reversed(self.shape):
            strides.append(step)
            step *= size
        return tuple(reversed(strides))


@pytest.fixture
def tensor() -> Callable[..., FakeTensor]:
    return FakeTensor


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return a function that makes a shared library of C source."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in library")
    folder = tmp_path_factory.mktemp("libraries")

    def build(name: str, source: str) -> Path:
        target = folder / name
        if not target.exists():
            words = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)]
            subprocess.run(words, input=source, text=True, check=True)
        return target

    return build


def category(name: str) -> int:
    return CATEGORY_NUMBER[name]
