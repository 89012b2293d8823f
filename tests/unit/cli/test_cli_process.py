"""Large blocks go back to the system where the C library is glibc."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tracekit.cli.shell import process

SCRIPT = """
from tracekit.cli.shell.process import free_at_once
import numpy as np
def held():
    with open("/proc/self/status") as lines:
        return next(int(s.split()[1]) for s in lines if s.startswith("RssAnon"))
assert free_at_once()
before = held()
blocks = [np.ones(1 << 21, np.uint8) for _ in range(64)]
assert held() - before > 100_000
del blocks[:-1]
assert held() - before < 20_000
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_blocks_are_no_longer_held_though_a_later_one_is() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_other_systems_keep_their_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not process.free_at_once()
