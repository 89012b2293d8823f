"""Numba starts without SciPy where the process is tracekit's own, and only there."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from tracekit.numerics import blas
from tracekit.numerics.labels import _first_seen
import numpy as np
blas.settle()
assert "numba" not in sys.modules and "scipy.linalg" not in sys.modules
blas.leave_out()
assert _first_seen.build()(np.array([3, 3, 1]))[0].tolist() == [0, 0, 1]
assert "scipy.linalg" not in sys.modules
import scipy.linalg
assert scipy.linalg.norm([3.0, 4.0]) == 5.0
"""


def test_linear_algebra_is_left_out_of_a_process_of_ones_own() -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed: nothing can be left out")
    pytest.importorskip("numba", reason="Numba is not installed")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
