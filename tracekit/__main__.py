"""``python -m tracekit``."""

from __future__ import annotations

from tracekit.cli import main

main()
