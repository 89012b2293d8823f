"""The verbs of ``tracekit size``: one module each, holding ``command``; loaded when called for."""

from __future__ import annotations
