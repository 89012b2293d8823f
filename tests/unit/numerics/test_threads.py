"""Work on threads."""

from __future__ import annotations

import pytest

from tracekit.numerics.threads import each


def test_results_keep_the_order_of_the_items() -> None:
    assert each(lambda n: n * n, range(20)) == [n * n for n in range(20)]
    assert each(str, [7]) == ["7"]
    assert each(str, []) == []


def test_what_an_item_raises_arrives() -> None:
    with pytest.raises(ZeroDivisionError):
        each(lambda n: 1 // n, [1, 0, 2])
