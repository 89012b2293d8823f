"""One recording from start to end."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tracekit_injectors import environment as injector

from tracekit.errors import TracekitError, UsageError
from tracekit.recording import ranks
from tracekit.recording.convert import Converted, convert
from tracekit.recording.nsys import INSTALL_HINT, Nsys, find
from tracekit.recording.options import Metrics, metric_options, profile_options
from tracekit.recording.supervise import STDERR, STDOUT, supervise

__all__ = ["SIDECAR_FORMAT", "Outcome", "Request", "gather", "record"]

SIDECAR_FORMAT = 1
_META = ("META ", "SYNC ")


def gather(parts: Iterable[Path], target: Path) -> int:
    """Merge sidecar files into one, sorted by time, process, thread and text.

    Args:
        parts: Files in the format of ``tracekit_injectors.sidecar``; a line that was cut short
            by the end of its process is left out.
        target: Where to; replaced if it exists. It is not written when no marker was found.

    Returns:
        Number of markers other than meta data and clock marks.
    """
    records: list[dict[str, object]] = []
    for part in sorted(parts):
        records.extend(_records(part))
    count = sum(1 for record in records if not str(record["text"]).startswith(_META))
    if not count:
        return 0
    records.sort(key=lambda r: (r["t_mono_ns"], r["pid"], r["tid"], r["text"]))
    head = {
        "tracekit_sidecar": SIDECAR_FORMAT,
        "grammar": "tk1",
        "clock": "CLOCK_MONOTONIC",
        "pid": None,
        "mono_ns": time.monotonic_ns(),
        "utc_ns": time.time_ns(),
    }
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    with unfinished.open("w", encoding="ascii") as file:
        for record in (head, *records):
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
    unfinished.replace(target)
    return count


def _records(part: Path) -> Iterable[dict[str, object]]:
    with part.open(encoding="ascii", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and {"t_mono_ns", "pid", "tid", "text"} <= record.keys():
                yield record


Say = Callable[[str], None]
_ATTEMPTS = 2
"""nsys now and then fails to reach its own agent on a busy machine. Until the program has started,
another attempt costs nothing."""

# Runs as the profiled program and becomes it, so process id and exit code are the program's own.
# The preload goes in here because nsys puts its own library into LD_PRELOAD first. Output goes
# past nsys: it stays a terminal where it was one, and its text stays out of the report.
_BECOME = f"""
echo $$ > "$1"
if [ -n "$2" ]; then LD_PRELOAD="${{LD_PRELOAD:+$LD_PRELOAD:}}$2"; export LD_PRELOAD; fi
shift 2
exec "$@" >&{STDOUT} 2>&{STDERR} {STDOUT}>&- {STDERR}>&-
"""


@dataclass(frozen=True)
class Request:
    """What the user wants recorded.

    Attributes:
        command: Program and arguments.
        stem: Path of the outputs without a suffix.
        nsys: ``auto``, ``always``, ``never`` or a path.
        metrics: GPU counters.
        hooks: Whether the program gets the injector.
        nsys_options: Further options of ``nsys profile``, as typed.
        settings: Environment variables for the hooks.
    """

    command: tuple[str, ...]
    stem: Path
    nsys: str = "auto"
    metrics: Metrics = field(default_factory=Metrics)
    hooks: bool = True
    nsys_options: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        code: The program's exit code, as a shell reports it.
        converted: Report and export.
        sidecar: Merged markers outside the report, or None.
    """

    code: int
    converted: Converted
    sidecar: Path | None


def record(request: Request, say: Say) -> Outcome:
    """Run the program once and keep what can be recorded of it.

    Args:
        request: What to record.
        say: Called with lines for the user.

    Returns:
        The program's exit code and the files.

    Raises:
        UsageError: An option does not fit this nsys or machine.
        TracekitError: nsys was required and is missing or did not start the program.
    """
    if not sys.platform.startswith("linux"):
        message = "recording needs Linux"
        raise TracekitError(message, hint="analyze works anywhere: record where the GPUs are")
    if "%" in str(request.stem):
        message = f"-o {request.stem}: nsys would replace %"
        raise UsageError(message)
    nsys = find(request.nsys)
    options = _options(nsys, request, say) if nsys is not None else []
    with tempfile.TemporaryDirectory(prefix="tracekit-run-") as name:
        run = _Run(request, Path(name), say)
        if nsys is None:
            if request.nsys != "never":
                say(f"nsys is not on this machine, so only markers are kept; {INSTALL_HINT}")
            return Outcome(run.plainly(), Converted(), run.sidecar())
        code = run.recorded(nsys, options)
        if code is None:
            return Outcome(run.plainly(), Converted(), run.sidecar())
        return Outcome(code, convert(nsys, request.stem), run.sidecar())


def _options(nsys: Nsys, request: Request, say: Say) -> list[str]:
    found = profile_options(nsys)
    counters, reason = metric_options(nsys, request.metrics)
    if reason and request.metrics.choice != "none":
        say(f"GPU metrics are not sampled: {reason}")
    return [*found, *counters, *request.nsys_options]


class _Run:
    """The program's start, with or without nsys.

    Args:
        request: What to record.
        folder: A private folder that goes away afterwards.
        say: Called with lines for the user.
    """

    def __init__(self, request: Request, folder: Path, say: Say) -> None:
        self._request = request
        self._folder = folder
        self._say = say
        self._started = folder / "started"
        self._parts = folder / "markers"
        self._parts.mkdir()
        self._library = self._find_library()

    def plainly(self) -> int:
        """Run the program without nsys and return its exit code."""
        found = self._environment()
        if self._library:
            library = Path(self._library)
            found["LD_PRELOAD"] = injector.with_preload(found.get("LD_PRELOAD", ""), library)
        return supervise(self._request.command, found)

    def recorded(self, nsys: Nsys, options: Sequence[str]) -> int | None:
        """Run the program under nsys.

        Returns:
            Its exit code; None when nsys failed before it started the program and may be left
            out.

        Raises:
            TracekitError: nsys failed before it started the program.
        """
        become = ["/bin/sh", "-c", _BECOME, "sh", str(self._started), self._library]
        output = f"--output={self._request.stem}"
        words = [str(nsys.path), "profile", *options, output, *become, *self._request.command]
        code = 0
        for _ in range(_ATTEMPTS):
            code = supervise(words, self._environment(), self._target, apart=True)
            if self._started.exists():
                return code
        message = f"nsys {nsys.version_text} did not start the program (exit {code})"
        if self._request.nsys == "auto":
            self._say(f"{message}; it runs without being recorded")
            return None
        raise TracekitError(message, hint="tracekit doctor; or --nsys never to run without it")

    def sidecar(self) -> Path | None:
        """Merge what the processes wrote outside the report."""
        stem = self._request.stem
        target = stem.with_name(f"{stem.name}.markers.jsonl")
        return target if gather(self._parts.glob("*.jsonl"), target) else None

    def _target(self, profiler: int) -> int:
        """Return the program's process id, which nsys started; nsys's own until it has."""
        try:
            return int(self._started.read_text())
        except (OSError, ValueError):
            return profiler

    def _environment(self) -> dict[str, str]:
        found = dict(os.environ)
        if not self._request.hooks:
            return found
        python_path = injector.hooked(found, preload=False)
        return {
            **python_path,
            "TRACEKIT_SIDECAR": str(self._parts / "markers.jsonl"),
            **self._request.settings,
        }

    def _find_library(self) -> str:
        """Return the library to preload, by a path without blanks; "" for none."""
        library = injector.native_library() if self._request.hooks else None
        if library is None:
            if self._request.hooks:
                self._say("the native injector was not built: no allocation and NCCL markers")
            return ""
        if injector.can_preload(library):
            return str(library)
        link = self._folder / injector.LIBRARY
        if not link.exists():
            link.symlink_to(library)
        if injector.can_preload(link):
            return str(link)
        self._say(f"the native injector's path cannot be preloaded: {library}")
        return ""


def free_stem(folder: Path) -> Path:
    """Return ``tracekit-run``, or the first ``tracekit-run-N`` that nothing is called yet."""
    taken = {path.name.partition(".")[0] for path in folder.glob("tracekit-run*")}
    number = 1
    while (name := "tracekit-run" if number == 1 else f"tracekit-run-{number}") in taken:
        number += 1
    return folder / name


def record_ranks(request: Request, options: Sequence[str], say: Say) -> int:
    """Run a launcher whose workers record themselves; return its exit code.

    Args:
        request: The launcher and where the outputs go; each gets ``.rankN`` before its suffix.
        options: Options for ``tracekit run`` in each worker.
        say: Called with lines for the user.
    """
    with tempfile.TemporaryDirectory(prefix="tracekit-run-") as name:
        found = ranks.wrap_workers(request.command, options, Path(name), os.environ)
        code = supervise(request.command, found)
    made = sorted(request.stem.parent.glob(f"{request.stem.name}.rank*"))
    if not made:
        say(
            "no rank recorded itself: --per-rank knows torchrun and what builds on it;"
            " with mpirun or srun, put tracekit run behind the launcher instead"
        )
    return code


def program_exists(program: str) -> bool:
    """Return whether a shell would find `program`."""
    return shutil.which(program) is not None
