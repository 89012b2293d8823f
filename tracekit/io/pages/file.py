"""The file that pages are read from, and whether it is still the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tracekit.io.pages import fields as f
from tracekit.io.pages.plan import UnusualTableError
from tracekit.io.sqlite.database import HEADER_BYTES, MAGIC, Header, companions

__all__ = ["PageFile"]


@dataclass(frozen=True)
class _Stamp:
    """What changes when the file is written."""

    size: int
    mtime_ns: int
    change_counter: int


class PageFile:
    """A file opened for ``pread``.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        """Open a file.

        Args:
            path: The file.

        Raises:
            OSError: It cannot be opened.
        """
        self.path = path
        self._number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._stamp = self._stamp_now()

    def close(self) -> None:
        """Close the file."""
        os.close(self._number)

    def has_changed(self) -> bool:
        """Whether the file was written since it was opened."""
        return self._stamp_now() != self._stamp

    def geometry(self, key_bytes: int) -> f.Ints:
        """Read the file's header.

        Args:
            key_bytes: See `Plan`.

        Returns:
            int64; see `fields`.

        Raises:
            UnusualTableError: The pages alone do not decide what SQLite would return.
        """
        if not hasattr(os, "pread"):
            msg = "no pread on this system"
            raise UnusualTableError(msg)
        if companions(self.path):
            msg = "a write-ahead log or a journal"
            raise UnusualTableError(msg)
        if self.has_changed():
            msg = "the file has changed since it was opened"
            raise UnusualTableError(msg)
        raw = os.pread(self._number, HEADER_BYTES, 0)
        header = Header.parse(raw)
        if not raw.startswith(MAGIC) or header.text_encoding not in (0, 1):
            msg = "not UTF-8"
            raise UnusualTableError(msg)
        whole = self._stamp.size // max(header.page_bytes, 1)
        pages = whole if header.pages is None else header.pages
        if pages > whole:
            msg = "a truncated file"
            raise UnusualTableError(msg)
        numbers = [self._number, header.page_bytes, header.usable_bytes, pages, 0, key_bytes]
        return np.array(numbers, np.int64)

    def _stamp_now(self) -> _Stamp:
        status = os.fstat(self._number)
        raw = os.pread(self._number, HEADER_BYTES, 0) if hasattr(os, "pread") else b""
        return _Stamp(status.st_size, status.st_mtime_ns, Header.parse(raw).change_counter)
