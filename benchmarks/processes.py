"""Measure child processes: time, processor time, and peak anonymous memory; interleaved."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

__all__ = ["Case", "Run", "Series", "interleaved", "measure", "python"]

ROOT = Path(__file__).resolve().parent.parent
SAMPLE_S = 0.01
"""How often the memory of a child is read."""
MOST_S = 1800
"""A child that runs longer is killed and counts as failed."""


@dataclass(frozen=True)
class Run:
    """One process, measured.

    Attributes:
        seconds: Wall time; that of the work alone when the child reports it.
        cpu_seconds: User and system time of the same stretch.
        peak_bytes: Largest anonymous memory of the process and its children seen while it ran;
            None where the system does not tell.
        output_bytes: What it wrote on standard output.
        said: The JSON object that a child of this package printed; empty for others.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int | None
    output_bytes: int
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Series:
    """Runs of one way to do one piece of work.

    Attributes:
        suite: Which measurement it belongs to.
        work: What is done.
        way: How.
        kernels: Size of the report; 0 when it plays no role.
        runs: The runs so far.
        note: Why there are none, or what to know about them.
    """

    suite: str
    work: str
    way: str
    kernels: int = 0
    runs: list[Run] = field(default_factory=list)
    note: str = ""

    @property
    def seconds(self) -> float | None:
        """Median wall time."""
        return statistics.median(r.seconds for r in self.runs) if self.runs else None

    @property
    def cpu_seconds(self) -> float | None:
        """Median processor time."""
        return statistics.median(r.cpu_seconds for r in self.runs) if self.runs else None

    @property
    def peak_bytes(self) -> int | None:
        """Largest anonymous memory over the runs."""
        peaks = [r.peak_bytes for r in self.runs if r.peak_bytes is not None]
        return max(peaks) if peaks else None


@dataclass(frozen=True)
class Case:
    """A command and where its measurements go.

    Attributes:
        series: Receives the runs.
        command: Arguments; the first is the program.
        reports: Whether the child prints a JSON object with its own times.
        stays: Whether one child serves all rounds: it prints a line when it is ready, then answers
            each line with such an object.
        env: Variables on top of the environment.
        prepare: Called before each run, outside the clock.
        fine: Exit codes that count as success.
    """

    series: Series
    command: Sequence[str]
    reports: bool = False
    stays: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[], object] | None = None
    fine: frozenset[int] = frozenset({0})


def python(*arguments: str) -> list[str]:
    """Return a command line of this interpreter."""
    return [sys.executable, *arguments]


def interleaved(cases: Sequence[Case], rounds: int, tell: Callable[[str], None]) -> list[Series]:
    """Run every case once a round, beginning a round at another case each time.

    A case that fails is not run again; its series says why.

    Args:
        cases: What to run.
        rounds: How often.
        tell: Told what is being run.

    Returns:
        The series of all cases.
    """
    with ExitStack() as stack:
        once = {c.series.way: stack.enter_context(_Server(c)).ask for c in cases if c.stays}
        for number in range(rounds):
            turn = number % len(cases)
            for case in (*cases[turn:], *cases[:turn]):
                series = case.series
                if series.note.startswith("failed"):
                    continue
                tell(f"round {number + 1}/{rounds}  {series.suite}: {series.work}, {series.way}")
                try:
                    series.runs.append(once[series.way]() if case.stays else measure(case))
                except (subprocess.SubprocessError, OSError, ValueError) as error:
                    series.note, series.runs = f"failed: {str(error)[:300]}", []
    return [case.series for case in cases]


def measure(case: Case) -> Run:
    """Run a case once.

    Raises:
        CalledProcessError: It exits with a code that is not `fine`, or runs for too long.
        OSError: It cannot be started.
        ValueError: It does not print the JSON that it should.
    """
    if case.prepare is not None:
        case.prepare()
    env = _environment(case)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        before = time.perf_counter()
        child = subprocess.Popen(case.command, stdout=out, stderr=err, env=env, cwd=ROOT)
        watch = _Watch(child)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - before
        child.returncode = os.waitstatus_to_exitcode(status)
        peak = watch.stop()
        out.seek(0), err.seek(0)
        printed, complained = out.read(), err.read().decode(errors="replace")
    if child.returncode not in case.fine:
        last = complained.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        raise subprocess.SubprocessError(last[0])
    said = json.loads(printed.splitlines()[-1]) if case.reports else {}
    return Run(
        said.get("seconds", seconds),
        said.get("cpu_seconds", usage.ru_utime + usage.ru_stime),
        peak,
        len(printed),
        said,
    )


def _environment(case: Case) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "injectors"), os.environ.get("PYTHONPATH", "")])
    # What is installed has its bytecode; a checkout gets it at the first run.
    own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYTHONPATH": path, **case.env}


class _Server:
    """A child that is asked again and again."""

    def __init__(self, case: Case) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self._child = subprocess.Popen(
            case.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(case),
            cwd=ROOT,
        )

    def ask(self) -> Run:
        """Let it do its work once."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        watch, line = _Watch(self._child), b""
        # A child that died has said why on standard error.
        with suppress(BrokenPipeError):
            self._child.stdin.write(b"\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        peak = watch.stop()
        if not line:
            self._errors.seek(0)
            complaint = self._errors.read().decode(errors="replace").strip()
            raise subprocess.SubprocessError((complaint.splitlines() or ["no answer"])[-1])
        said = json.loads(line)
        return Run(said["seconds"], said["cpu_seconds"], peak, len(line), said)

    def __enter__(self) -> Self:
        assert self._child.stdout is not None
        self._child.stdout.readline()  # "ready": nothing else runs while a case is timed
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(BrokenPipeError):
            self._child.communicate()
        self._errors.close()


class _Watch:
    """Follows the anonymous memory of a process and its children on a thread."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._peak: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> int | None:
        """Return the largest memory seen, in bytes."""
        self._over.set()
        self._thread.join()
        return self._peak

    def _follow(self) -> None:
        deadline = time.monotonic() + MOST_S
        while not self._over.wait(SAMPLE_S):
            seen = _anonymous_bytes(self._child.pid)
            if seen is not None:
                self._peak = max(self._peak or 0, seen)
            if time.monotonic() > deadline:
                self._child.kill()
                return


def _anonymous_bytes(pid: int) -> int | None:
    """Return RssAnon of a process and all its descendants; None when it cannot be read."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    own = next((s.split()[1] for s in status.splitlines() if s.startswith("RssAnon:")), None)
    if own is None:
        return None
    return int(own) * 1024 + sum(_anonymous_bytes(int(c)) or 0 for c in children)
