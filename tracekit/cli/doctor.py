"""``tracekit doctor``: whether this machine can record."""

from __future__ import annotations

import click

from tracekit.cli.shell.output import print_text

__all__ = ["command"]

_FAILED = 1


@click.command("doctor", short_help="Check what this machine can record, and what to do.")
def command() -> int:
    """Check what a recording needs: one line each, with what to do where something is missing.

    Exit code 1 means that nothing can be recorded here; warnings leave it 0.
    """
    from tracekit.recording.doctor import State, checks

    failed = False
    for check in checks():
        advice = f"  -> {check.advice}" if check.advice else ""
        print_text(f"{check.state.value:<4}  {check.name}: {check.found}{advice}\n")
        failed = failed or check.state is State.FAIL
    return _FAILED if failed else 0
