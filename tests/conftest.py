"""Fixtures that every test may use."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture(scope="session")
def fixture_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a bundled trace's name to its unpacked file."""
    folder = tmp_path_factory.mktemp("traces")

    def unpacked(name: str) -> Path:
        target = folder / f"{name}.sqlite"
        if not target.exists():
            with lzma.open(FIXTURES / f"{name}.sqlite.xz") as packed:
                target.write_bytes(packed.read())
        return target

    return unpacked
