"""One line on stderr that says what is being done, while somebody watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tracekit.wording.names import shorten

__all__ = ["progress"]

_CLEAR = "\r\x1b[2K"
_WIDTH = 70


@contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """Yield a function that shows one line at a time, None when no terminal watches."""
    watched = sys.stderr is not None and sys.stderr.isatty()
    if not watched or os.environ.get("TERM") == "dumb":
        yield None
        return

    def tell(what: str) -> None:
        sys.stderr.write(f"{_CLEAR}tracekit: {shorten(what, _WIDTH)} ...")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()
