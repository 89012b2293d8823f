"""Work on several threads: results in order, the first failure, and an interrupt."""

from __future__ import annotations

import threading

import pytest

from tracekit.numerics import threads
from tracekit.numerics.threads import each


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 2)


def test_results_come_in_the_order_of_the_items() -> None:
    first_waits = threading.Event()

    def slow_first(item: int) -> int:
        first_waits.wait() if item == 0 else first_waits.set()
        return 10 * item

    assert each(slow_first, range(4)) == [0, 10, 20, 30]


def test_no_more_threads_than_asked_for() -> None:
    own = threading.current_thread()
    assert each(lambda _: threading.current_thread(), range(3), most=1) == [own] * 3


def test_the_failure_of_the_first_item_is_raised() -> None:
    def fails(item: int) -> int:
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"^0$"):
        each(fails, range(3))


def test_an_interrupt_stops_what_runs_and_starts_nothing_more() -> None:
    stopped, begun = threading.Event(), []

    def interrupted(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise KeyboardInterrupt
        stopped.wait()

    with pytest.raises(KeyboardInterrupt):
        each(interrupted, range(9), stop=stopped.set)
    assert stopped.is_set()
    assert len(begun) <= 4
