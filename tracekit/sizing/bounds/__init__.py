"""What a model must at least move and compute on a device, and a measurement next to it."""

from __future__ import annotations
