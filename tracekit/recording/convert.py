"""From what nsys left to an SQLite export."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tracekit.recording.nsys import Nsys, ask

__all__ = ["Converted", "convert"]

_CONVERT_S = 3600


@dataclass(frozen=True)
class Converted:
    """What there is after a recording.

    Attributes:
        report: The ``.nsys-rep``, or None.
        export: The SQLite export, or None.
        problem: Why something is missing, with the command that would make it; "" if nothing is.
    """

    report: Path | None = None
    export: Path | None = None
    problem: str = ""


def convert(nsys: Nsys, stem: Path) -> Converted:
    """Make the report from a stream where nsys left only that, and export it.

    Args:
        nsys: The nsys that recorded.
        stem: Path of the recording without a suffix.

    Returns:
        What there is now. A stream that was turned into a report is removed.
    """
    report = stem.with_name(f"{stem.name}.nsys-rep")
    stream = stem.with_name(f"{stem.name}.qdstrm")
    if not report.is_file():
        if not stream.is_file():
            return Converted(problem="nsys left no report")
        problem = _import(nsys, stream, report)
        if problem:
            return Converted(problem=problem)
        stream.unlink()
    export = stem.with_name(f"{stem.name}.sqlite")
    words = [str(nsys.path), "export", "--type=sqlite"]
    if "include-blobs" in nsys.export_options:
        words.append("--include-blobs=true")
    words += ["--force-overwrite=true", "--quiet=true", f"--output={export}", str(report)]
    code, said = ask(_with_host(nsys, words), timeout_s=_CONVERT_S)
    if code or not export.is_file():
        return Converted(report, None, f"the export failed: {_last(said)}; try: {' '.join(words)}")
    return Converted(report, export)


def _import(nsys: Nsys, stream: Path, report: Path) -> str:
    """Run the importer; return what is wrong, or ""."""
    if nsys.importer is None:
        return (
            f"{stream.name} was not converted: this nsys has no QdstrmImporter;"
            f" open {stream.name} with a full Nsight Systems, or run its QdstrmImporter -i"
        )
    words = [str(nsys.importer), f"--input-file={stream}", f"--output-file={report}"]
    code, said = ask(_with_host(nsys, words), timeout_s=_CONVERT_S)
    if report.is_file():
        return ""
    return f"{stream.name} was not converted ({_last(said)}, exit {code}); try: {' '.join(words)}"


def _with_host(nsys: Nsys, words: list[str]) -> list[str]:
    """Let the importer's folder be searched for libraries too: some packages need it."""
    if nsys.importer is None:
        return words
    folders = [str(nsys.importer.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return ["env", f"LD_LIBRARY_PATH={':'.join(f for f in folders if f)}", *words]


def _last(said: str) -> str:
    lines = [line.strip() for line in said.replace("\r", "\n").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
