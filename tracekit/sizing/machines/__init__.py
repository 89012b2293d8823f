"""Where GPUs and ranks sit in a machine."""

from __future__ import annotations
