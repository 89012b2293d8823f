"""A run that does not fit is cut to its beginning, and the answer says so."""

from __future__ import annotations

import pytest

from tests.builders import Export
from tracekit.io import budget
from tracekit.model.analysis import Level

N = 1_000


@pytest.fixture
def tiny(monkeypatch):
    """Let only rows count, and make a row of the kernel table cost 1000 bytes."""
    monkeypatch.setattr(budget, "FIXED_BYTES", 0)
    monkeypatch.setattr(budget, "LEAST_BYTES", 1)
    monkeypatch.setattr(
        budget, "BYTES_PER_ROW", {"kernels": 1_000, "runtime": 0, "nvtx": 0, "graph_trace": 0}
    )


def run() -> Export:
    """Kernels of 10 ns every 100 ns, each launched by a call 50 ns before."""
    e = Export()
    for i in range(N):
        e.kernel(100 * i + 60, 100 * i + 70, "nvjet_tst_64x8", launch=100 * i + 10)
    return e


def test_what_fits_is_read_whole(diagnose, tiny):
    d = diagnose(run(), memory_bytes=N * 1_000)
    assert d.overview.n_kernels == N
    assert not any("was analysed" in q.text for q in d.quality)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.9])
def test_the_longest_beginning_that_fits_is_analysed(diagnose, tiny, share):
    d = diagnose(run(), memory_bytes=round(N * 1_000 * share))
    assert d.overview.n_kernels == pytest.approx(N * share, abs=1)
    assert d.overview.n_with_launch == d.overview.n_kernels
    line = d.quality[0]
    assert line.level is Level.WARN
    assert "was analysed: the whole run does not fit into" in line.text
    assert "--memory" in line.hint


def test_a_window_of_the_user_is_never_cut(diagnose, tiny):
    d = diagnose(run(), window=(0, 50_000), memory_bytes=1_000)
    assert d.overview.n_kernels == 500


def test_default_is_half_of_what_is_free():
    assert 0 < budget.default_bytes() < budget._available()
