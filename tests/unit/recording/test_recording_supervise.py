from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tracekit.recording.supervise import exit_code, supervise

# Says its process id, then that it is ready, then takes what comes. What it watches for is held
# back until it is waited for, so that none is lost between two instructions.
TARGET = """
import os, signal, sys
watched = {getattr(signal, name) for name in sys.argv[2:]}
signal.pthread_sigmask(signal.SIG_BLOCK, watched)
with open(sys.argv[1] + ".tmp", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
if watched:
    sys.exit(100 + signal.sigwait(watched))
while True:
    signal.pause()
"""
SUPERVISOR = """
import os, sys
from tracekit.recording.supervise import supervise
sys.exit(supervise(sys.argv[1:], os.environ))
"""


def test_exit_codes() -> None:
    environment = dict(os.environ)
    assert supervise(["sh", "-c", "exit 0"], environment) == 0
    assert supervise(["sh", "-c", "exit 7"], environment) == 7
    assert supervise(["sh", "-c", "kill -KILL $$"], environment) == 137
    assert exit_code(9) == 137


def test_the_environment_is_the_one_given() -> None:
    words = ["sh", "-c", 'test "$ONLY" = "a b" && test -z "$HOME"']
    assert supervise(words, {"ONLY": "a b", "PATH": os.environ["PATH"]}) == 0


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        supervise(["/no/such/program"], {})


def test_signals_are_not_blocked_in_the_child_nor_afterwards() -> None:
    code = "import signal, sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert supervise([sys.executable, "-c", code], dict(os.environ)) == len(before)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"])
@pytest.mark.parametrize("handled", [True, False])
def test_signals_pass_through(name: str, handled: bool, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    target = [sys.executable, "-c", TARGET, str(ready), *([name] if handled else [])]
    number = getattr(signal, name)
    outer = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, *target],
        stderr=subprocess.DEVNULL,
        # Whoever runs the tests, under nohup for example, may ignore it.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    while not ready.exists():
        assert outer.poll() is None
    outer.send_signal(number)
    code = outer.wait(60)
    # Python itself turns an unhandled SIGINT into an exception and then ends by the signal.
    assert code == (100 + number if handled else 128 + number)


def test_signals_go_to_the_receiver(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    inner = [sys.executable, "-c", TARGET, str(ready), "SIGTERM"]
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tracekit.recording.supervise import supervise\n"
        "ready = Path(sys.argv[1])\n"
        "words = ['sh', '-c', '\"$@\"; exit $?', 'sh', *sys.argv[2:]]\n"
        "sys.exit(supervise(words, os.environ, lambda child: int(ready.read_text())))\n"
    )
    outer = subprocess.Popen([sys.executable, "-c", code, str(ready), *inner])
    while not ready.exists():
        assert outer.poll() is None
    outer.send_signal(signal.SIGTERM)
    assert outer.wait(60) == 115
