"""Numba without the linear algebra of SciPy, which takes longer to load than Numba itself.

No kernel of tracekit multiplies matrices. Numba looks for BLAS once in a process, so it can do
without only where nothing else in the process may need it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, cast

__all__ = ["leave_out", "settle"]

_LOOKS, _FOR = "numba.np.arraymath", "scipy.linalg"
_unwanted = False


def leave_out() -> None:
    """Say that the process is tracekit's own and that nobody needs BLAS in machine code."""
    global _unwanted
    _unwanted = True


def settle() -> None:
    """Have Numba look for BLAS now, in vain if it is to be left out."""
    if not _unwanted or _LOOKS in sys.modules or _FOR in sys.modules:
        return
    sys.modules[_FOR] = cast("Any", None)
    try:
        import_module(_LOOKS)
    except ImportError:
        pass  # A Numba that looks elsewhere: it takes longer to start, that is all.
    finally:
        del sys.modules[_FOR]
