"""The ``vllm.general_plugins`` entry point: vLLM calls it in each of its processes.

vLLM loads every installed plugin, so this one does nothing unless a recording or a sidecar was
requested.
"""

from __future__ import annotations

import os

from .nvtx import PATH_VARIABLE
from .sidecar import VARIABLE

__all__ = ["register"]


def register() -> None:
    """Install the hooks if somebody listens; may be called any number of times."""
    if os.environ.get(PATH_VARIABLE) or os.environ.get(VARIABLE):
        from .install import install

        install()
