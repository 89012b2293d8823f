"""A real nsys: capture, export, and the same markers come back."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tracekit.model.markers import EVENTS, Marker, parse
from tracekit.opening import open_trace
from tracekit.views.nvtx.markers import markers

from .conftest import Lab

IMPORTERS = ("/usr/lib/nsight-systems/host-linux-x64/QdstrmImporter",)


def _capture(lab: Lab, name: str, *command: str, **env: str) -> Path:
    """Record a command under nsys and export it; skip where nsys is not there."""
    nsys = shutil.which("nsys")
    if nsys is None:
        pytest.skip("needs nsys (Debian: nsight-systems)")
    report = lab.root / name
    settings = {"LD_PRELOAD": str(lab.library), "LD_LIBRARY_PATH": str(lab.root), **env}
    variables = ",".join(f"{key}={value}" for key, value in settings.items())
    _must([nsys, "profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true",
           "-o", str(report), "-e", variables, *command])  # fmt: skip
    recording = report.with_suffix(".nsys-rep")
    if not recording.exists():
        importer = next((path for path in IMPORTERS if Path(path).exists()), None)
        if importer is None:
            pytest.skip("nsys left a .qdstrm and there is no QdstrmImporter")
        _must([importer, "-i", str(report.with_suffix(".qdstrm"))])
    export = report.with_suffix(".sqlite")
    _must(
        [
            nsys,
            "export",
            "-t",
            "sqlite",
            "--force-overwrite",
            "true",
            "-o",
            str(export),
            str(recording),
        ]
    )
    return export


def _must(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


MOVING = {"comm", "pid", "mono_ns", "addr", "handle"}
"""Keys whose values differ from run to run."""


def _stable(text: str) -> tuple[str, dict[str, object]] | None:
    """A marker without what differs from run to run."""
    marker: Marker | None = parse(text)
    if marker is None:
        return None
    return marker.event, {k: v for k, v in marker.values.items() if k not in MOVING}


@pytest.mark.parametrize("case", ["collectives", "expandable", "state"])
def test_markers_come_back_from_an_export(release: Lab, case: str) -> None:
    """What a recording holds is what the program's calls were told as."""
    told = [e for e in release.run(release.linked(), case).events if e.what != "pop"]
    export = _capture(release, f"nsys_{case}", str(release.linked()), case)
    with sqlite3.connect(f"file:{export}?mode=ro", uri=True) as db:
        rows = db.execute(
            "SELECT text, eventType, end IS NULL, category FROM NVTX_EVENTS"
            " WHERE eventType IN (34, 59) AND domainId ="
            " (SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = 'tracekit')"
            " ORDER BY start"
        ).fetchall()
    assert [_stable(row[0]) for row in rows] == [_stable(e.text) for e in told]
    assert [(row[1], row[2]) for row in rows] == [
        (59, 0) if e.what == "push" else (34, 1) for e in told
    ]
    assert [row[3] for row in rows] == [e.category for e in told]
    read = _as_analyses_see_them(export)
    for event in {e.name for e in told}:
        wanted = [_stable(e.text) for e in told if e.name == event]
        assert [(event, values) for values in read[event]] == wanted


def _as_analyses_see_them(export: Path) -> dict[str, list[dict[str, object]]]:
    """The values of each event's markers, through the project's own reader."""
    with open_trace(export) as trace:
        rows = {event: frame.to_dicts() for event, frame in markers(trace).items()}
    return {event: [_told(event, row) for row in of_event] for event, of_event in rows.items()}


def _told(event: str, row: dict[str, object]) -> dict[str, object]:
    """What the marker itself said, in the order of its keys."""
    stable = [key for key in EVENTS[event].keys if key not in MOVING]
    return {key: row[key] for key in stable if row.get(key) is not None}
