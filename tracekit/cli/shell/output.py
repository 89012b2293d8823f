"""Where answers go: formats by suffix, files that appear whole or not at all, the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypedDict

from tracekit.errors import InputError, UsageError

__all__ = [
    "FORMATS",
    "Format",
    "check_outputs",
    "check_places",
    "format_of",
    "print_text",
    "terminal_options",
    "write",
]

_PIPED_WIDTH = 100


@dataclass(frozen=True)
class Format:
    """One way to write a diagnosis.

    Attributes:
        name: Name of the form, see `tracekit.report.rendering`.
        suffixes: File suffixes that choose it.
        redacted: Whether names that may reveal something about a machine or its users are left out
        unless
            they are requested.
        pictures: Whether it draws `Diagnosis.pictures`.
    """

    name: str
    suffixes: tuple[str, ...]
    redacted: bool = False
    pictures: bool = False

    def renderer(self) -> Callable[..., str]:
        """Return the function that turns a diagnosis into text."""
        from tracekit.report.rendering import renderer

        return renderer(self.name)


FORMATS = {
    "text": Format("text", (".txt",)),
    "json": Format("json", (".json",)),
    "markdown": Format("markdown", (".md", ".markdown"), redacted=True),
    "html": Format("html", (".html", ".htm"), pictures=True),
}
"""Every format by its name for ``--format``."""


def format_of(path: Path) -> Format:
    """Return the format that the suffix of `path` chooses.

    Raises:
        UsageError: The suffix belongs to no format.
    """
    for known in FORMATS.values():
        if path.suffix.lower() in known.suffixes:
            return known
    suffixes = ", ".join(s for f in FORMATS.values() for s in f.suffixes)
    message = f"-o {path}: the suffix chooses the format"
    raise UsageError(message, hint=f"use one of {suffixes}")


def check_outputs(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Refuse outputs that cannot or must not be written, before any work is done.

    Raises:
        UsageError: An output has an unknown suffix, or cannot be where it should (`check_places`).
    """
    for path in outputs:
        format_of(path)
    check_places(outputs, inputs)


def check_places(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Refuse outputs that cannot or must not be where they should.

    Raises:
        UsageError: An output has no folder, is a folder, is given twice, or is one of the inputs.
    """
    seen: set[Path] = set()
    for path in outputs:
        if os.path.isdir(path) or not os.path.isdir(path.parent):  # noqa: PTH112 - never raises
            message = f"-o {path}: not a file in an existing folder"
            raise UsageError(message)
        if path.resolve() in seen:
            message = f"-o {path}: given twice"
            raise UsageError(message)
        seen.add(path.resolve())
        if any(_same(path, given) for given in inputs):
            message = f"-o {path}: would overwrite an input"
            raise UsageError(message)


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there, or cannot be looked at
        return path.resolve() == other.resolve()


def write(path: Path, content: str | bytes) -> None:
    """Write text as UTF-8, or bytes, so that `path` holds all of it or stays as it was.

    Raises:
        InputError: The file cannot be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or device has nothing to keep whole
            return
        _replace(path.resolve(), data)
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise InputError(message, path=path) from error


def _replace(path: Path, data: bytes) -> None:
    import tempfile

    # Not named after `path`, whose name may be as long as a name can be.
    handle, name = tempfile.mkstemp(prefix=".tracekit-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class TerminalOptions(TypedDict):
    """Keywords of a text renderer."""

    width: int
    color: bool


def terminal_options(stream: TextIO | None) -> TerminalOptions:
    """Return width and colour for `stream`: plain and 100 wide when it is no terminal.

    Args:
        stream: Where text will go; None when the program was started without it.
    """
    if stream is None or not stream.isatty():
        return {"width": _PIPED_WIDTH, "color": False}
    from shutil import get_terminal_size

    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return {"width": get_terminal_size().columns, "color": color}


def print_text(text: str) -> None:
    """Print `text`; a reader that went away, no output at all or a narrow encoding is no error.

    Raises:
        InputError: It cannot be written, because a disk is full for example.
    """
    if sys.stdout is None:  # started with it closed
        return
    encoding = sys.stdout.encoding or "utf-8"
    fits = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        sys.stdout.write(fits)
        sys.stdout.flush()
    except OSError as error:
        unwritable = no_more_output(error)
        if not isinstance(error, BrokenPipeError):
            raise unwritable from error


def no_more_output(error: OSError) -> InputError:
    """Stop writing to standard output; what to say about it."""
    # Python flushes again when it exits: give it somewhere to write to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return InputError(f"standard output cannot be written: {error.strerror}")
