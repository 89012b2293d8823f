from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tracekit.recipe.exports import exported

ARGUMENTS = SimpleNamespace()


def age(path, export):
    """Make `path` younger than `export`, by ctime: only a later change of it can do that."""
    while path.stat().st_ctime_ns <= export.stat().st_ctime_ns:
        os.utime(path)


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "rank0.nsys-rep"
    path.touch()
    return path


def test_a_fresh_export_is_used_without_the_framework(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "nsys_recipe", None)
    export = report.with_suffix(".sqlite")
    export.write_bytes(b"fresh")
    assert exported(str(report), ARGUMENTS) == str(export)
    assert export.read_bytes() == b"fresh"


def test_a_missing_export_is_made_by_the_framework(framework, report):
    report.with_suffix(".capture").write_bytes(b"made")
    export = report.with_suffix(".sqlite")
    assert exported(str(report), ARGUMENTS) == str(export)
    assert export.read_bytes() == b"made"


def test_a_stale_export_is_made_again(framework, report):
    export = report.with_suffix(".sqlite")
    export.write_bytes(b"stale")
    report.with_suffix(".capture").write_bytes(b"made")
    age(report, export)
    assert exported(str(report), ARGUMENTS) == str(export)
    assert export.read_bytes() == b"made"


def test_a_failed_export_leaves_the_report_to_be_explained(framework, report):
    assert exported(str(report), ARGUMENTS) == str(report)


def test_a_stale_export_is_never_used(framework, report):
    export = report.with_suffix(".sqlite")
    export.write_bytes(b"stale")
    age(report, export)
    assert exported(str(report), ARGUMENTS) == str(report)


def test_a_framework_that_does_not_load_leaves_the_report(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "nsys_recipe", None)
    assert exported(str(report), ARGUMENTS) == str(report)


def test_reports_of_one_name_stay_apart_in_a_shared_folder(framework, tmp_path):
    places = set()
    shared = tmp_path / "exports"
    shared.mkdir()
    for rank in ("rank0", "rank1"):
        (tmp_path / rank).mkdir()
        report = tmp_path / rank / "run.nsys-rep"
        report.touch()
        report.with_suffix(".capture").write_bytes(rank.encode())
        place = exported(str(report), SimpleNamespace(export_dir=str(shared)))
        assert Path(place).read_bytes() == rank.encode()
        places.add(place)
    assert len(places) == 2
    assert all(p.startswith(f"{shared}{os.sep}run-") for p in places)


def test_the_mapper_travels_to_workers_without_the_recipe(framework):
    recipe = framework("tracekit.recipe.tracekit_diagnosis.tracekit_diagnosis")
    mapper = recipe.TracekitDiagnosis._mapper_func
    assert pickle.loads(pickle.dumps(mapper)) is exported
    assert mapper.__module__ == "tracekit.recipe.exports"
