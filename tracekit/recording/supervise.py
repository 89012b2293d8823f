"""Running a program as if it had been started directly: signals go in, the exit code comes out."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence

__all__ = ["STDERR", "STDOUT", "exit_code", "supervise"]

_FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_FROM_KERNEL = 0x80
STDOUT, STDERR = 8, 9
"""Where a program that is started `apart` finds the real output: a shell can name these."""
_APART = (
    (os.POSIX_SPAWN_DUP2, 1, STDOUT),
    (os.POSIX_SPAWN_DUP2, 2, STDERR),
    (os.POSIX_SPAWN_DUP2, 2, 1),
)


def exit_code(status: int) -> int:
    """Return a wait status as a shell reports it: 128 + N after signal N."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def supervise(
    words: Sequence[str],
    environment: Mapping[str, str],
    receiver: Callable[[int], int] = lambda child: child,
    *,
    apart: bool = False,
) -> int:
    """Start a program, pass signals on, wait for its end.

    A signal that the terminal sends (Ctrl-C) reaches the program by itself, since it belongs to
    the same process group; only signals that somebody sent to this process alone are passed on.

    Args:
        words: Program (searched in this process's ``PATH``) and arguments.
        environment: Its environment, whole.
        receiver: From the child's process id to the id that signals go to.
        apart: Give the child this process's stdout and stderr as `STDOUT` and `STDERR`, and as
            its own stdout this process's stderr: what it says itself stays out of the output of
            the program that it starts.

    Returns:
        Its exit code; 128 + N when signal N ended it.

    Raises:
        OSError: The program cannot be started.
    """
    watched = {*_FORWARDED, signal.SIGCHLD}
    moves = _APART if apart else ()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = os.posix_spawnp(
            words[0], list(words), environment, file_actions=moves, setsigmask=mask
        )
        return _wait(child, watched, receiver)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(child: int, watched: set[signal.Signals], receiver: Callable[[int], int]) -> int:
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return exit_code(status)
        arrived = signal.sigwaitinfo(watched)
        if arrived.si_signo != signal.SIGCHLD and arrived.si_code != _FROM_KERNEL:
            _send(receiver(child), arrived.si_signo)


def _send(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return
