"""Shortcuts of the field-case tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import Export
from tracekit.engine import analyze
from tracekit.model.diagnosis import Diagnosis
from tracekit.opening import OpenOptions, open_trace
from tracekit.trace import Trace


@pytest.fixture
def diagnose(tmp_path: Path) -> Callable[..., Diagnosis]:
    """Return a function that writes exports and analyses them as one run."""

    def run(*exports: Export, **keywords: Any) -> Diagnosis:
        paths = [e.write(tmp_path / f"r{i}.sqlite") for i, e in enumerate(exports)]
        names = {f.name for f in fields(OpenOptions)}
        options = OpenOptions(**{n: keywords.pop(n) for n in names & keywords.keys()})
        return analyze(paths, options=options, **keywords)

    return run


@pytest.fixture
def trace_of(tmp_path: Path) -> Iterator[Callable[..., Trace]]:
    """Return a function that writes exports and opens them as one trace."""
    with ExitStack() as stack:

        def run(*exports: Export, **options: Any) -> Trace:
            paths = [e.write(tmp_path / f"t{i}.sqlite") for i, e in enumerate(exports)]
            return stack.enter_context(open_trace(paths, options=OpenOptions(**options)))

        yield run
