"""A diagnosis as one self-contained HTML page."""

from __future__ import annotations

from tracekit.report.page.html import render

__all__ = ["render"]
