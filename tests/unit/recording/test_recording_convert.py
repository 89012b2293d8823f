from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tracekit.recording.convert import convert
from tracekit.recording.nsys import Nsys, find

MakeNsys = Callable[..., Path]
COPIES = 'cp "${1#--input-file=}" "${2#--output-file=}"'


@pytest.fixture
def stem(tmp_path: Path) -> Path:
    (tmp_path / "my out").mkdir()
    return tmp_path / "my out" / "run.v1"


def opened(path: Path) -> Nsys:
    found = find(str(path))
    assert found is not None
    return found


def beside(stem: Path, suffix: str) -> Path:
    return stem.with_name(f"{stem.name}.{suffix}")


def test_a_report_is_exported_with_blobs(make_nsys: MakeNsys, stem: Path) -> None:
    program = make_nsys()
    beside(stem, "nsys-rep").touch()
    done = convert(opened(program), stem)
    assert (done.report, done.export) == (beside(stem, "nsys-rep"), beside(stem, "sqlite"))
    assert done.problem == ""
    called = (program.parent / "export-called").read_text()
    assert called.startswith("export --type=sqlite --include-blobs=true --force-overwrite=true")


def test_blobs_only_where_the_version_has_them(make_nsys: MakeNsys, stem: Path) -> None:
    program = make_nsys(export_help="\t-t, --type=\n")
    beside(stem, "nsys-rep").touch()
    assert convert(opened(program), stem).problem == ""
    assert "include-blobs" not in (program.parent / "export-called").read_text()


def test_a_stream_is_imported_and_removed(make_nsys: MakeNsys, stem: Path) -> None:
    beside(stem, "qdstrm").write_text("stream")
    done = convert(opened(make_nsys(importer=COPIES)), stem)
    assert done.problem == ""
    assert beside(stem, "nsys-rep").read_text() == "stream"
    assert not beside(stem, "qdstrm").exists()


def test_a_stream_without_an_importer_is_kept_and_said(
    make_nsys: MakeNsys, stem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nsys, "importer", None)
    beside(stem, "qdstrm").touch()
    done = convert(opened(make_nsys()), stem)
    assert (done.report, done.export) == (None, None)
    assert "run.v1.qdstrm was not converted" in done.problem
    assert beside(stem, "qdstrm").exists()


def test_an_importer_that_fails(make_nsys: MakeNsys, stem: Path) -> None:
    beside(stem, "qdstrm").touch()
    program = make_nsys(importer="echo 'libdw.so.1: cannot open shared object file' >&2; exit 127")
    done = convert(opened(program), stem)
    assert "libdw.so.1" in done.problem
    assert "QdstrmImporter --input-file=" in done.problem
    assert beside(stem, "qdstrm").exists()


def test_an_export_that_fails_keeps_the_report(make_nsys: MakeNsys, stem: Path) -> None:
    beside(stem, "nsys-rep").touch()
    done = convert(opened(make_nsys(export="echo no space left; exit 1")), stem)
    assert done.report == beside(stem, "nsys-rep")
    assert done.export is None
    assert "the export failed: no space left; try: " in done.problem


def test_nothing_was_left(make_nsys: MakeNsys, stem: Path) -> None:
    assert convert(opened(make_nsys()), stem).problem == "nsys left no report"
