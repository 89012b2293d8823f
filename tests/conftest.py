"""Fixtures that every test may use."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.support.builders import Export
from tracekit.opening import open_trace
from tracekit.trace import Trace

FIXTURES = Path(__file__).parent.parent / "fixtures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that writes expected outputs anew."""
    parser.addoption("--update", action="store_true", help="write expected outputs anew")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Return whether expected outputs are to be written anew."""
    return bool(request.config.getoption("--update"))


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


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Callable[..., Trace]]:
    """Return a function that writes exports and opens them as the reports of one run."""
    numbers = count()
    with ExitStack() as stack:

        def opened(*exports: Export) -> Trace:
            paths = [e.write(tmp_path / f"r{next(numbers)}.sqlite") for e in exports]
            return stack.enter_context(open_trace(paths))

        yield opened
