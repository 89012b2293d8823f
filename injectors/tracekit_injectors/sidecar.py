"""The sidecar: markers in a JSON Lines file, for when no tool listens or markers cost too much.

The format, version 1, UTF-8 (ASCII in fact), one object a line:

- the first line is the header::

    {"tracekit_sidecar": 1, "grammar": "tk1", "clock": "CLOCK_MONOTONIC",
     "pid": 4711, "mono_ns": 1000, "utc_ns": 1764470000000000000}

  ``mono_ns`` and ``utc_ns`` were read together: a reader without ``SYNC`` marks of the same
  process can place the file on the wall clock with them (to some microseconds at best);
- every other line is one record::

    {"t_mono_ns": 2000, "pid": 4711, "tid": 4711, "text": "KV_BLOCK layer=0 ..."}

  ``text`` is the marker as it would stand in an NVTX message. A range has a further key,
  ``end_mono_ns``, and is written when it closes; ``t_mono_ns`` is its start.

Times are nanoseconds of ``CLOCK_MONOTONIC``, which all processes of one machine share. Records are
in the order of writing, which is not exactly the order of time. A process that dies by a signal
leaves what it had written (at most 0.2 s is lost); the last line may then be cut short.
Each process writes a file of its own: ``TRACEKIT_SIDECAR=run.jsonl`` gives ``run.4711.jsonl``. A
merged file has one header, with ``pid`` null, and records sorted by time.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from .grammar import GRAMMAR, Row, text

__all__ = ["FORMAT", "VARIABLE", "Sidecar", "header"]

FORMAT = 1
VARIABLE = "TRACEKIT_SIDECAR"
_POLL_S = 0.2
_SLICE = 64

_Record = tuple[int, int | None, int, str, Row]


def header(pid: int | None) -> str:
    """Return the header line, with both clocks read now."""
    utc_ns, mono_ns = time.time_ns(), time.monotonic_ns()
    who = "null" if pid is None else str(pid)
    return (
        f'{{"tracekit_sidecar":{FORMAT},"grammar":"{GRAMMAR}","clock":"CLOCK_MONOTONIC",'
        f'"pid":{who},"mono_ns":{mono_ns},"utc_ns":{utc_ns}}}\n'
    )


class Sidecar:
    """Collects records cheaply and writes them from a thread, a few at a time.

    The caller pays for one small tuple; formatting waits for the writer, which gives way after
    every few records.

    Args:
        path: Path of the file; each process inserts its process id before the suffix.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[_Record] = []
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        self._pid = 0
        self._broken = False
        os.register_at_fork(after_in_child=self._after_fork)

    def append(self, event: str, values: Row, start_ns: int, end_ns: int | None = None) -> None:
        """Record one marker.

        Args:
            event: Name of the event.
            values: One value for each of its keys.
            start_ns: Time of the mark, or start of the range, ns of ``CLOCK_MONOTONIC``.
            end_ns: End of the range; None for a mark.
        """
        if self._broken:
            return
        if not self._pid:
            self._begin()
        self._pending.append((start_ns, end_ns, threading.get_native_id(), event, values))

    def drain(self) -> None:
        """Write everything that is pending."""
        while self._write_some():
            pass

    def _begin(self) -> None:
        self._pid = os.getpid()
        threading.Thread(target=self._poll, name="tracekit-sidecar", daemon=True).start()
        atexit.register(self.drain)
        # A process forked by multiprocessing ends without running atexit.
        children = sys.modules.get("multiprocessing.util")
        if children is not None:
            children.Finalize(None, self.drain, exitpriority=0)

    def _poll(self) -> None:
        pid = self._pid
        while pid == self._pid and not self._broken:
            time.sleep(_POLL_S)
            while self._write_some():
                time.sleep(0)

    def _write_some(self) -> bool:
        """Write one slice; return whether there may be more."""
        with self._lock:
            batch = self._pending[:_SLICE]
            if not batch or self._broken:
                return False
            del self._pending[: len(batch)]
            lines = "".join(self._line(*record) for record in batch)
            try:
                if self._file is None:
                    self._file = self._open()
                self._file.write(lines)
                self._file.flush()
            except OSError as problem:
                self._broken = True
                self._pending.clear()
                print(f"tracekit: no markers are kept: {problem.strerror}", file=sys.stderr)
                return False
            return True

    def _line(self, start: int, end: int | None, tid: int, event: str, values: Row) -> str:
        until = "" if end is None else f'"end_mono_ns":{end},'
        # The text is ASCII without quotes or backslashes of its own making; words come from the
        # program, so both are replaced.
        marker = text(event, values).replace("\\", "_").replace('"', "_")
        return f'{{"t_mono_ns":{start},{until}"pid":{self._pid},"tid":{tid},"text":"{marker}"}}\n'

    def _open(self) -> TextIO:
        path, stem = self._path, self._path.stem
        for attempt in range(1000):
            again = f"-{attempt}" if attempt else ""
            name = path.with_name(f"{stem}.{self._pid}{again}{path.suffix or '.jsonl'}")
            try:
                file = name.open("x", encoding="ascii")
            except FileExistsError:
                continue
            file.write(header(self._pid))
            return file
        raise FileExistsError(17, "every name for a sidecar is taken", str(path))

    def _after_fork(self) -> None:
        """Start anew in a forked child: its records go to a file of its own."""
        self._pending, self._lock, self._file, self._pid = [], threading.Lock(), None, 0
