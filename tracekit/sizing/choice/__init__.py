"""Which devices, or runs, are worth a look, and what rules the others out."""

from __future__ import annotations
