"""From the words of a command line to an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import click

from tracekit import __version__
from tracekit.cli._output import no_more_output
from tracekit.errors import TracekitError
from tracekit.wording.names import printable, shorten

__all__ = ["INTERRUPTED", "call", "free_at_once", "group", "main", "names", "progress"]

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


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of the settings in glibc's malloc.h."""
_LARGE_BYTES, _KEPT_BYTES = 1 << 20, 4 << 20


def free_at_once() -> bool:
    """Have the C library return large blocks to the system as soon as they are freed.

    Left alone, glibc takes the first large block that is freed as a sign that such blocks should
    be kept: a sixth of the memory that a large trace needs would be held without use.

    Returns:
        Whether the C library can do so; others than glibc keep their ways.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        setting = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = ((_MMAP_THRESHOLD, _LARGE_BYTES), (_TRIM_THRESHOLD, _KEPT_BYTES))
    return all(setting(name, size) == 1 for name, size in wanted)


INTERRUPTED, TERMINATED = 130, 143
_FOLDER = Path(__file__).parent
_RARELY = 20_000
"""Objects made between two searches for garbage: little of it lies in circles here."""
_is_terminated = False
_own_process = False
"""Whether nothing but the command line runs here, so that settings of libraries may be changed."""
_EPILOG = """\b
Exit codes:
  0  done
  1  --fail-on level reached, or --strict and nothing could be judged
  2  wrong usage
  3  input unusable
  4  done, but some inputs could not be read
"""


def names() -> tuple[str, ...]:
    """Return the names of all commands, sorted."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.py") if p.name[0] != "_"))


class _Commands(click.Group):
    """Loads a command's module when it is asked for."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(names())

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in names():
            return None
        command = import_module(f"{__package__}.{name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tracekit")
def group() -> None:
    """Find out why an LLM run on NVIDIA GPUs is slow, from its Nsight trace."""
    if _own_process:
        free_at_once()


def call(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Words after ``tracekit``; None for those of the process.
    """
    words = None if arguments is None else list(arguments)
    try:
        code = _run(words)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return TERMINATED if _is_terminated else INTERRUPTED
    except TracekitError as error:
        click.echo(f"tracekit: {printable(error.one_line())}", err=True)
        return error.exit_code
    return code if isinstance(code, int) else 0


def _run(words: list[str] | None) -> object:
    try:
        return group.main(words, prog_name="tracekit", standalone_mode=False)
    except OSError as error:
        if error.filename is not None:
            raise
        # No file: it is Click that prints a help text or a version.
        raise no_more_output(error) from error


def _terminate(*_: object) -> None:
    """End as an interrupt does: temporary files are removed on the way out."""
    global _is_terminated
    _is_terminated = True
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line and leave the process."""
    global _own_process
    _own_process = True
    signal.signal(signal.SIGTERM, _terminate)
    gc.set_threshold(_RARELY)
    code = call()
    gc.freeze()  # Leaving searches all that was ever loaded, several times, unless it is exempt.
    raise SystemExit(code)
