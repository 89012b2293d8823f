"""Finding out what an input is, and opening it as an SQLite export.

What a file is decides its first bytes, never its suffix alone. Compressed exports are unpacked
into a private temporary folder that goes away with the context, whatever happens.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from tracekit.errors import DamagedReportError, InputError, NotAReportError

__all__ = ["Opened", "fingerprint", "opened", "opened_text"]

SQLITE_MAGIC = b"SQLite format 3\0"
COMPRESSED = {
    b"\xfd7zXZ\0": "xz",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
}
HASH_WHOLE_BYTES = 1 << 30
"""Files above this size are fingerprinted by size, head and tail: hashing would outlast reading."""
HASH_ENDS_BYTES = 16 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Opened:
    """An input ready to be read.

    Attributes:
        given: Path that the user named.
        path: SQLite file to read: `given`, or its unpacked copy.
        fingerprint: See `fingerprint`.
    """

    given: Path
    path: Path
    fingerprint: str


def fingerprint(path: Path) -> str:
    """Return ``sha256:<hex>`` of a file, or ``sha256-ends:<hex>`` above 1 GiB.

    The latter hashes the size, the first and the last 16 MiB.
    """
    digest = hashlib.sha256()
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= HASH_WHOLE_BYTES:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(str(size).encode())
        digest.update(file.read(HASH_ENDS_BYTES))
        file.seek(-HASH_ENDS_BYTES, 2)
        digest.update(file.read(HASH_ENDS_BYTES))
    return "sha256-ends:" + digest.hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Open an input for reading, unpacking it if it is compressed.

    Args:
        path: An nsys SQLite export, possibly compressed with xz, gzip, zstd or bzip2.

    Yields:
        Where the SQLite file is.

    Raises:
        InputError: There is no such file, it is a folder, or it cannot be read.
        NotAReportError: It is something else; the message says what, and what to run.
        DamagedReportError: The compressed stream is damaged.
    """
    head = _head(path)
    packed = next((kind for magic, kind in COMPRESSED.items() if head.startswith(magic)), None)
    if packed is None:
        if not head.startswith(SQLITE_MAGIC):
            raise _what_it_is(path, head)
        yield Opened(path, path, fingerprint(path))
        return
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        copy = Path(folder) / "report.sqlite"
        _unpack(path, packed, copy)
        inner = _head(copy)
        if not inner.startswith(SQLITE_MAGIC):
            what = _what_it_is(path, inner)
            message = f"{packed} file that holds no SQLite export ({what.message})"
            raise NotAReportError(message, path=path, hint=what.hint)
        yield Opened(path, copy, fingerprint(path))


@contextmanager
def opened_text(path: Path) -> Iterator[Path | None]:
    """Open an input for reading if it is text, unpacking it if it is compressed.

    Args:
        path: Any file.

    Yields:
        Where the text is; None when there is no such file or it holds something else.

    Raises:
        InputError: The file cannot be read.
        DamagedReportError: The compressed stream is damaged.
    """
    head = _head(path) if os.path.isfile(path) else b""  # noqa: PTH113 - never raises
    packed = next((kind for magic, kind in COMPRESSED.items() if head.startswith(magic)), None)
    if packed is None:
        yield path if head and _is_text(head) else None
        return
    if not _is_text(_packed_head(path, packed)):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        copy = Path(folder) / "input.txt"
        _unpack(path, packed, copy)
        yield copy


def _packed_head(path: Path, kind: str) -> bytes:
    """Return the first bytes of a compressed file's content; a NUL when it is damaged."""
    try:
        with _stream(path, kind) as source:
            return source.read(64)
    except (EOFError, OSError, lzma.LZMAError, ValueError, _zstd_error()):
        return b"\0"


def _head(path: Path) -> bytes:
    try:
        if stat.S_ISFIFO(path.stat().st_mode):  # opening one waits for a writer, maybe for ever
            message = "a pipe, which can be read only once and in order"
            raise InputError(message, path=path, hint="save it to a file first")
        with path.open("rb") as file:
            return file.read(64)
    except FileNotFoundError:
        message = "no such file"
        raise InputError(message, path=path, hint=_stale_hint(path)) from None
    except IsADirectoryError:
        raise _what_folder(path) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=path) from None  # noqa: EM102


def _stale_hint(path: Path) -> str | None:
    report = path.with_suffix(".nsys-rep")
    if path.suffix == ".sqlite" and os.path.exists(report):  # noqa: PTH110
        return f"run: nsys export -t sqlite --include-blobs=true -o {path} {report}"
    return None


def _what_folder(path: Path) -> NotAReportError:
    names = _names_in(path)
    if any(n.endswith(".parquet") for n in names):
        what = "a folder of Parquet files (nsys parquetdir), which is not read yet"
    elif any(n.endswith(".arrow") for n in names):
        what = "a folder of Arrow files (nsys arrowdir), which is not read yet"
    else:
        what = "a folder, not an export"
    return NotAReportError(what, path=path, hint="give the files that nsys export -t sqlite wrote")


def _names_in(folder: Path) -> list[str]:
    """Names in a folder; none when it may not be listed."""
    try:
        return sorted(p.name for p in folder.iterdir())
    except OSError:
        return []


def _what_it_is(path: Path, head: bytes) -> NotAReportError:
    export = f"run: nsys export -t sqlite --include-blobs=true -o {path.stem}.sqlite {path}"
    suffixes = [s for s in path.suffixes if s not in {".xz", ".gz", ".zst", ".bz2"}]
    suffix = suffixes[-1] if suffixes else ""
    if not head:
        return NotAReportError("empty file", path=path, hint="record or export it again")
    if head.startswith(b"NVR\0") or suffix == ".ncu-rep":
        hint = f"run: ncu --import {path} --csv --page raw > {path.stem}.csv"
        return NotAReportError("an Nsight Compute report, not an nsys export", path=path, hint=hint)
    if suffix in {".nsys-rep", ".qdrep"}:
        return NotAReportError("an Nsight Systems report, not yet exported", path=path, hint=export)
    if suffix == ".qdstrm":
        hint = f"run: QdstrmImporter -i {path}, then nsys export -t sqlite on its output"
        return NotAReportError("an unconverted capture (qdstrm)", path=path, hint=hint)
    if head.startswith(b"PAR1"):
        return NotAReportError("a Parquet file, not an SQLite export", path=path, hint=export)
    kind = "a text file" if _is_text(head) else "not an SQLite file"
    hint = "give the file that nsys export -t sqlite wrote"
    return NotAReportError(f"{kind}, not an nsys export", path=path, hint=hint)


def _is_text(head: bytes) -> bool:
    return all(byte >= 32 or byte in b"\t\n\r" for byte in head)


def _unpack(path: Path, kind: str, target: Path) -> None:
    try:
        with _stream(path, kind) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, _BLOCK)
    except (EOFError, OSError, lzma.LZMAError, ValueError, _zstd_error()) as error:
        if isinstance(error, OSError) and error.errno is not None:
            message = f"cannot be unpacked to a temporary file ({error.strerror})"
            raise InputError(message, path=path, hint="free space or set TMPDIR") from None
        message = f"damaged {kind} file ({error})"
        raise DamagedReportError(message, path=path, hint="copy it again") from None


def _stream(path: Path, kind: str) -> IO[bytes]:
    if kind == "xz":
        return lzma.open(path)
    if kind == "gzip":
        return cast("IO[bytes]", gzip.open(path))
    if kind == "bzip2":
        return bz2.open(path)
    stream: IO[bytes] = _zstd().open(path)
    return stream


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _zstd_error() -> type[Exception]:
    error: type[Exception] = _zstd().ZstdError
    return error
