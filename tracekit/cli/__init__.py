"""The command line: one module a command, named after it.

A module of this folder without a leading underscore is a command: it holds ``command``, a click
command whose callback returns the exit code (None for 0). At its top it imports nothing heavier
than click, so that ``tracekit --help`` stays quick; what it needs to work it imports in its body.
There is no list to edit.
"""

from __future__ import annotations

from tracekit.cli.shell.app import main

__all__ = ["main"]
