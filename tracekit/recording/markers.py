"""Gathering the sidecars that the processes of one run wrote."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["SIDECAR_FORMAT", "gather"]

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
