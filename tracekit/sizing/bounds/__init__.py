"""What a model must at least move and compute on a device, and a measurement beside it."""

from __future__ import annotations
