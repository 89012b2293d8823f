"""Opens the inputs of one run: files and folders to reports, each capture once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tracekit.errors import DuplicateReportError, InputError, NotAReportError
from tracekit.io.export import opened
from tracekit.io.ncu import NcuInput, open_ncu
from tracekit.io.nsys.markers_file import MarkerSource, Sidecar, attach, open_sidecar
from tracekit.io.nsys.reader import ReportReader
from tracekit.io.run.run import Run
from tracekit.io.source import Reader, open_source
from tracekit.model.catalog import CATALOG

__all__ = ["open_run"]

REPORT_SUFFIXES = (".sqlite", ".db", ".sqlite3")
PACKED_SUFFIXES = ("", ".xz", ".gz", ".zst", ".bz2")
MARKER_SUFFIX = ".markers.jsonl"
OTHER_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")
_DESCRIPTIVE = frozenset({"strings", "gpus", "cuda_devices", "session", "capture", "metric_names"})


@dataclass
class _Inputs:
    """What was opened so far, see `Run`."""

    readers: list[ReportReader] = field(default_factory=list)
    ncu: list[NcuInput] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def open_run(
    paths: Sequence[Path], stack: ExitStack, *, reader: Reader = "auto", salvage: bool = False
) -> Run:
    """Open every input; one that fails among several is set aside with its reason.

    Args:
        paths: Reports, folders of reports, raw pages of Nsight Compute.
        stack: Closes files and removes temporary ones.
        reader: How tables are read.
        salvage: Leave damaged tables out instead of refusing the file.

    Raises:
        InputError: The only input, or every one, cannot be used.
        DuplicateReportError: The same capture was given twice.
    """
    files = [file for path in paths for file in _expanded(path)]
    inputs, failures = _Inputs(), []
    sidecars: list[tuple[Path, Sidecar]] = []
    for path in files:
        try:
            sidecar = open_sidecar(path)
            if sidecar is not None:
                sidecars.append((path, sidecar))
                continue
            one = open_ncu(path) or _open(path, len(inputs.readers), stack, reader, salvage=salvage)
            if len(files) > 1:
                _refuse_empty(one, path)
        except InputError as error:
            failures.append(error)
            inputs.unreadable[path.name] = error.message
            continue
        if isinstance(one, NcuInput):
            _refuse_again(inputs.ncu, one, path)
            inputs.ncu.append(one)
        else:
            _refuse_twin(inputs.readers, one, path)
            inputs.readers.append(one)
    _note_markers(files, inputs)
    _place(sidecars, inputs)
    if not inputs.readers and not inputs.ncu:
        raise failures[0]
    return Run(tuple(inputs.readers), tuple(inputs.ncu), inputs.unreadable)


def _place(sidecars: Sequence[tuple[Path, Sidecar]], inputs: _Inputs) -> None:
    """Give each marker file to the report of its processes; without any report it is one."""
    reports = tuple(inputs.readers)
    for path, sidecar in sidecars:
        if not reports:
            source = MarkerSource(path, sidecar)
            alone = ReportReader(source, len(inputs.readers), path.name, sidecar.sha256)
            _refuse_twin(inputs.readers, alone, path)
            inputs.readers.append(alone)
        elif not attach(sidecar, reports):
            inputs.unreadable[path.name] = "markers of another run than the reports"


def _open(
    path: Path, index: int, stack: ExitStack, reader: Reader, *, salvage: bool
) -> ReportReader:
    file = stack.enter_context(opened(path))
    source = stack.enter_context(open_source(file.path, reader, salvage=salvage))
    one = ReportReader(source, index, path.name, file.fingerprint, salvage=salvage)
    if not any(one.table_name(name) for name in CATALOG):
        message = "an SQLite database, but not an nsys export: it has none of its tables"
        raise NotAReportError(message, path=path, hint="give what nsys export -t sqlite wrote")
    _note_stale(path, one)
    return one


def _refuse_empty(one: ReportReader | NcuInput, path: Path) -> None:
    if isinstance(one, ReportReader) and not any(one.report.tables.keys() - _DESCRIPTIVE):
        message = "empty: the export holds no event"
        raise InputError(message, path=path)


def _note_stale(path: Path, reader: ReportReader) -> None:
    stem = path.name.split(".sqlite")[0]
    report = path.with_name(f"{stem}.nsys-rep")
    if os.path.exists(report) and report.stat().st_mtime > path.stat().st_mtime:  # noqa: PTH110
        reader.report.notes.append(
            f"{report.name} is newer than {path.name}: the export may be of an earlier capture;"
            f" run: nsys export -t sqlite --force-overwrite=true -o {path.name} {report.name}"
        )


def _note_markers(files: Sequence[Path], inputs: _Inputs) -> None:
    """Say of a report that markers of its run lie next to it and were not given."""
    reports = {reader.report.name: reader.report for reader in inputs.readers}
    for path in files:
        stem = _stem(path, REPORT_SUFFIXES)
        markers = path.with_name(f"{stem}{MARKER_SUFFIX}")
        if stem and path.name in reports and markers not in files and os.path.exists(markers):  # noqa: PTH110
            note = f"{markers.name} lies next to {path.name} and was not given: add it"
            reports[path.name].notes.append(note)


def _refuse_twin(readers: Sequence[ReportReader], one: ReportReader, path: Path) -> None:
    new = one.report
    for known in (r.report for r in readers):
        same_session = new.utc_epoch_ns is not None and (
            (new.utc_epoch_ns, new.duration_ns, new.tables)
            == (known.utc_epoch_ns, known.duration_ns, known.tables)
        )
        if new.sha256 == known.sha256 or same_session:
            message = f"the same capture as {known.name}"
            raise DuplicateReportError(message, path=path, hint="give each rank's report once")


def _refuse_again(known: Sequence[NcuInput], one: NcuInput, path: Path) -> None:
    twin = next((k for k in known if k.sha256 == one.sha256), None)
    if twin is not None:
        message = f"the same results as {twin.name}"
        raise DuplicateReportError(message, path=path, hint="give each file once")


def _expanded(path: Path) -> list[Path]:
    """Return the reports of a folder, exports before what was not exported; a file as it is.

    What cannot be looked at is left to whoever opens it, so that the failure gets its reason.
    """
    try:
        inside = sorted(path.iterdir()) if path.is_dir() else []
    except OSError:
        return [path]
    exports = [p for p in inside if _stem(p, REPORT_SUFFIXES) is not None]
    stems = {_stem(p, REPORT_SUFFIXES) for p in exports}
    others = [p for p in inside if p.suffix in OTHER_SUFFIXES and p.stem not in stems]
    markers = [p for p in inside if p.name.endswith(MARKER_SUFFIX)]
    return [*exports, *others, *markers] or [path]


def _stem(path: Path, suffixes: Sequence[str]) -> str | None:
    endings = [s + packed for s in suffixes for packed in PACKED_SUFFIXES]
    return next((path.name[: -len(e)] for e in endings if path.name.endswith(e)), None)
