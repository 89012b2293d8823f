"""What measured runs cost and gained: energy, precision, stability, links."""

from __future__ import annotations
