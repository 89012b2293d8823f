"""tracekit: why an LLM run on NVIDIA GPUs is slower than it should be, from its profile."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
