"""From the words of a command line to an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from tracekit import __version__
from tracekit.cli.shell import process
from tracekit.cli.shell.output import no_more_output
from tracekit.errors import TracekitError
from tracekit.wording.names import printable, shorten

__all__ = ["INTERRUPTED", "call", "group", "main", "names", "progress"]

_CLEAR = "\r\x1b[2K"
_WIDTH = 70


@contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """Yield a function that shows one line at a time, None when no terminal watches."""
    watched = sys.stderr is not None and sys.stderr.isatty()
    if not watched or os.environ.get("TERM") == "dumb":
        yield None
        return

    def notify(what: str) -> None:
        sys.stderr.write(f"{_CLEAR}tracekit: {shorten(what, _WIDTH)} ...")
        sys.stderr.flush()

    try:
        yield notify
    finally:
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()


INTERRUPTED, TERMINATED = 130, 143
_COMMANDS = Path(__file__).parent.parent
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
    return tuple(sorted(p.stem for p in _COMMANDS.glob("*.py") if p.name[0] != "_"))


class _Commands(click.Group):
    """Loads a command's module when it is needed."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(names())

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in names():
            return None
        command = import_module(f"tracekit.cli.{name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tracekit")
@click.pass_obj
def group(owns_process: bool | None) -> None:
    """Find out why an LLM run on NVIDIA GPUs is slow, from its Nsight trace."""
    if owns_process:
        process.free_at_once()


def call(arguments: Sequence[str] | None = None, *, owns_process: bool = False) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Words after ``tracekit``; None for those of the process.
        owns_process: Whether nothing else runs here, so that the process may be tuned.
    """
    words = None if arguments is None else list(arguments)
    try:
        code = _run(words, owns_process)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return TERMINATED if process.was_terminated() else INTERRUPTED
    except TracekitError as error:
        click.echo(f"tracekit: {printable(error.one_line())}", err=True)
        return error.exit_code
    return code if isinstance(code, int) else 0


def _run(words: list[str] | None, owns_process: bool) -> object:
    try:
        return group.main(words, prog_name="tracekit", standalone_mode=False, obj=owns_process)
    except OSError as error:
        if error.filename is not None:
            raise
        # No file: it is Click that prints a help text or a version.
        raise no_more_output(error) from error


def main() -> NoReturn:
    """Run the command line and leave the process."""
    process.terminate_by_interrupt()
    process.leave(call(owns_process=True))
