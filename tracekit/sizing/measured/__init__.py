"""What a trace measured, in the quantities that sizing predicts: the only part that sees one."""

from __future__ import annotations
