"""The same work on several threads: machine-code sweeps and NumPy release the interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["each"]

A = TypeVar("A")
B = TypeVar("B")


def each(
    function: Callable[[A], B],
    items: Iterable[A],
    *,
    most: int | None = None,
    stop: Callable[[], None] | None = None,
) -> list[B]:
    """Apply a function to every item, on as many threads as there are processors.

    Args:
        function: Must not depend on the order of calls.
        items: What it is applied to.
        most: Threads at most; None for as many as there are processors.
        stop: Called when the user interrupts, to make the calls that are running end early.

    Returns:
        The results in the order of the items.

    Raises:
        BaseException: What the function raised for the first item that failed.
    """
    work = list(items)
    threads = min(len(work), most or len(work), os.cpu_count() or 1)
    if threads < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(threads) as pool:
        try:
            return list(pool.map(function, work))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            if stop is not None:
                stop()
            raise
