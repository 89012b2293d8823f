"""What a result cannot say, and what it would take."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Missing"]


class Missing(NamedTuple):
    """One quantity that is not known.

    Attributes:
        quantity: What is unknown, in the words of the result's field.
        needs: What would make it known.
    """

    quantity: str
    needs: str

    def __str__(self) -> str:
        return f"{self.quantity} is unknown: {self.needs}"
