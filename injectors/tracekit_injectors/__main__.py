"""``python -m tracekit_injectors COMMAND ...``: run a command with the hooks, without recording."""

from __future__ import annotations

import os
import sys

from .environment import hooked

__all__ = ["main"]


def main(command: list[str]) -> int:
    """Become the command.

    Args:
        command: Program and arguments; with none, the usage is printed.

    Returns:
        127 when the program is not found; otherwise it does not return.
    """
    if not command or command[0] in ("-h", "--help"):
        print("usage: python -m tracekit_injectors COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    try:
        os.execvpe(command[0], command, hooked(os.environ))
    except FileNotFoundError:
        print(f"tracekit: {command[0]}: command not found", file=sys.stderr)
        return 127
    except PermissionError:
        print(f"tracekit: {command[0]}: permission denied", file=sys.stderr)
        return 126


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
