"""Large tables straight from the pages of an SQLite file, in parallel."""

from __future__ import annotations

from tracekit.io.pages.reader import PagesSource

__all__ = ["PagesSource"]
