"""Every error that tracekit raises on purpose.

    TracekitError                 exit code 3 unless a subclass says otherwise
    ├── UsageError                a wrong option or parameter (exit code 2)
    └── InputError                an input that cannot be used (exit code 3)
        ├── NotAReportError       the file is something else than an export
        ├── DamagedReportError    the file is an export, but truncated or damaged
        ├── EmptyWindowError      the requested time window holds no event
        └── DuplicateReportError  the same capture was given twice

Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "DamagedReportError",
    "DuplicateReportError",
    "EmptyWindowError",
    "InputError",
    "NotAReportError",
    "TracekitError",
    "UsageError",
]


class TracekitError(Exception):
    """Base of every deliberate error; its text is one line for a user.

    Args:
        message: What is wrong.
        path: The file or folder it is about, if any.
        hint: What to do next (a command where there is one).
    """

    exit_code = 3

    def __init__(self, message: str, *, path: Path | None = None, hint: str | None = None) -> None:
        self.message = message
        self.path = path
        self.hint = hint
        super().__init__(self.one_line())

    def one_line(self) -> str:
        """Return ``path: message; hint`` on one line."""
        where = f"{self.path}: " if self.path is not None else ""
        then = f"; {self.hint}" if self.hint else ""
        return " ".join(f"{where}{self.message}{then}".split())


class UsageError(TracekitError):
    """An option, a parameter or a name that does not exist or has a wrong value."""

    exit_code = 2


class InputError(TracekitError):
    """An input that cannot be read or used."""


class NotAReportError(InputError):
    """The input is not an nsys SQLite export."""


class DamagedReportError(InputError):
    """The input is an export, but truncated or damaged."""


class EmptyWindowError(InputError):
    """The requested time window holds no event."""


class DuplicateReportError(InputError):
    """The same capture was given more than once."""
