"""Open an SQLite file without writing anything to it or next to it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tracekit.errors import DamagedReportError, InputError, NotAReportError

__all__ = ["Header", "companions", "connect", "read_header", "sqlite_errors"]

MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100

COPY_RESERVE_BYTES = 1 << 30
"""Free space that a private copy of a report must leave in the temporary folder."""


@dataclass(frozen=True)
class Header:
    """The first 100 bytes of an SQLite file, as far as a reader needs them.

    Attributes:
        page_bytes: Size of a page.
        usable_bytes: Size of a page without the bytes reserved at its end.
        pages: Number of pages that the header claims; None where the header does not know.
        text_encoding: 1 UTF-8, 2 UTF-16le, 3 UTF-16be; 0 in a file without tables.
        change_counter: Changes whenever a writer commits.
    """

    page_bytes: int
    usable_bytes: int
    pages: int | None
    text_encoding: int
    change_counter: int

    @classmethod
    def parse(cls, raw: bytes) -> Header:
        """Read the fields out of the first 100 bytes of a file that starts with the magic."""
        page_bytes = int.from_bytes(raw[16:18], "big")
        page_bytes = 65536 if page_bytes == 1 else page_bytes
        pages = int.from_bytes(raw[28:32], "big")
        # The count is only valid if the program that wrote last knew of it.
        known = pages > 0 and raw[24:28] == raw[92:96]
        return cls(
            page_bytes=page_bytes,
            usable_bytes=page_bytes - raw[20],
            pages=pages if known else None,
            text_encoding=int.from_bytes(raw[56:60], "big"),
            change_counter=int.from_bytes(raw[24:28], "big"),
        )


def read_header(path: Path) -> tuple[Header, int]:
    """Read the header of an SQLite file.

    Args:
        path: The file.

    Returns:
        The header, and the size of the file in bytes.

    Raises:
        InputError: The file cannot be read.
        NotAReportError: It is not an SQLite file.
        DamagedReportError: It ends within its header.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        reason = error.strerror or type(error).__name__
        msg = f"cannot be read: {reason}"
        raise InputError(msg, path=path) from error
    if not raw.startswith(MAGIC):
        what = "the file is empty" if not raw else "not an SQLite file"
        raise NotAReportError(what, path=path, hint="give an nsys export: nsys export -t sqlite")
    if len(raw) < HEADER_BYTES:
        msg = f"truncated: {size} bytes, less than its header"
        raise DamagedReportError(msg, path=path)
    return Header.parse(raw), size


def companions(path: Path) -> list[Path]:
    """The non-empty ``-wal`` and ``-journal`` files of a database."""
    rests = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    # os.path, because a name that is too long cannot exist and is no error.
    return [f for f in rests if os.path.isfile(f) and f.stat().st_size > 0]  # noqa: PTH113


def sizes_text(header: Header, actual_bytes: int) -> str:
    """Say what the header claims about the file's size and what the size is."""
    if header.pages is None:
        return f"{actual_bytes} bytes, page size {header.page_bytes}"
    claimed = header.pages * header.page_bytes
    return (
        f"header: {header.pages} pages x {header.page_bytes} bytes = {claimed} bytes, "
        f"file: {actual_bytes} bytes"
    )


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one line that names the file and its sizes.

    Raises:
        DamagedReportError: SQLite failed inside the block.
    """
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        header, size = read_header(path)
        message = f"SQLite cannot read it: {error} ({sizes_text(header, size)})"
        raise DamagedReportError(message, path=path, hint="export the report again") from error


def connect(
    path: Path, notes: list[str], closing: ExitStack, *, salvage: bool = False
) -> sqlite3.Connection:
    """Connect to a file for reading; text comes back as bytes.

    A database with a write-ahead log or a rollback journal is copied first: SQLite would have to
    write to read it. Without one it is opened as immutable, which needs no lock and no
    companion file and therefore works in read-only folders and on network file systems.

    Args:
        path: The file.
        notes: Receives what a reader of the data should know.
        closing: Receives the clean-up.
        salvage: Open a truncated file too.

    Returns:
        The connection; usable from any thread.

    Raises:
        InputError: The file cannot be read.
        NotAReportError: It is not an SQLite file.
        DamagedReportError: It is truncated, and `salvage` is False.
    """
    header, size = read_header(path)
    extra = companions(path)
    if header.pages is not None and not extra and size < header.pages * header.page_bytes:
        message = f"truncated ({sizes_text(header, size)})"
        if not salvage:
            raise DamagedReportError(message, path=path, hint="export the report again")
        notes.append(f"{path.name}: {message}; only the tables that are whole can be read")
    options = "mode=ro&immutable=1"
    target = path
    if extra:
        copy = _private_copy(path, extra, closing)
        names = ", ".join(file.name for file in extra)
        if copy is None:
            notes.append(f"{names} could not be used (no room for a copy): rows may be missing")
        else:
            notes.append(f"read through a private copy together with {names}")
            target, options = copy, "mode=rw"
    with sqlite_errors(path):
        uri = f"file://{quote(os.fsencode(target.absolute()))}?{options}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        closing.callback(connection.close)
        connection.text_factory = bytes
        if salvage:
            # SQLite refuses a file shorter than its header says, except in this mode.
            connection.execute("PRAGMA writable_schema=ON")
        connection.execute("PRAGMA query_only=ON")
        # A mapped file that shrinks kills the process.
        connection.execute("PRAGMA mmap_size=0")
    return connection


def _private_copy(path: Path, extra: list[Path], closing: ExitStack) -> Path | None:
    """Copy a database and its companions to a temporary folder; None if there is no room."""
    files = [path, *extra]
    before = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    needed = sum(size for size, _ in before) + COPY_RESERVE_BYTES
    if shutil.disk_usage(tempfile.gettempdir()).free < needed:
        return None
    folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="tracekit-")))
    try:
        for file in files:
            shutil.copyfile(file, folder / file.name)
        after = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except OSError as error:
        msg = f"cannot be copied: {error}"
        raise InputError(msg, path=path) from error
    if before != after:
        msg = "is being written"
        raise InputError(msg, path=path, hint="wait until the export has ended")
    return folder / path.name
