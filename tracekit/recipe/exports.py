"""The map step: from a report to its SQLite export.

It runs in a worker process of nsys's pool, so it computes nothing itself: Polars must not be used
in a forked process.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
from pathlib import Path
from typing import Any

__all__ = ["exported"]

_PROBE = ("StringIds", ["id"])
"""A table that every export has: reading it makes the framework export what is missing."""


def exported(report_path: str, parsed_args: argparse.Namespace) -> str:
    """Return the SQLite export of a report, made by nsys unless a fresh one is there.

    Args:
        report_path: A ``.nsys-rep``.
        parsed_args: Arguments of the recipe.

    Returns:
        The export, or `report_path` where there is none: what reads it says what to do.
    """
    report = Path(report_path)
    export = _place(report, getattr(parsed_args, "export_dir", None))
    if not _fresh(export, report):
        _export(report, export, parsed_args)
    return str(export if _fresh(export, report) else report)


def _place(report: Path, folder: str | None) -> Path:
    """Return where the export belongs; in a shared folder reports of one name stay apart."""
    if folder is None:
        return report.with_suffix(".sqlite")
    where = hashlib.sha256(str(report.resolve()).encode()).hexdigest()[:8]
    return Path(folder) / f"{report.stem}-{where}.sqlite"


def _fresh(export: Path, report: Path) -> bool:
    """Whether `export` is younger than `report`, by the time that nsys compares."""
    return export.is_file() and report.stat().st_ctime_ns <= export.stat().st_ctime_ns


def _export(report: Path, export: Path, parsed_args: argparse.Namespace) -> None:
    """Let nsys's framework export `report`; it logs what goes wrong."""
    try:
        from nsys_recipe.data_service import DataService
    except ImportError:
        return  # nsys 2023.4 imports asyncore there, which Python 3.12 no longer has
    service = _service(DataService, str(report), parsed_args)
    hints = {"format": "sqlite", "path": str(export)}
    table, columns = _PROBE
    if hasattr(service, "queue_table"):
        service.queue_table(table, columns)
        service.read_queued_tables(hints=hints)
    else:
        service.read_tables({table: columns}, hints=hints)


def _service(kind: Any, report: str, parsed_args: argparse.Namespace) -> Any:
    """Return a data service; since nsys 2024.5 it takes the arguments of the recipe, too."""
    if "parsed_args" in inspect.signature(kind).parameters:
        return kind(report, parsed_args)
    return kind(report)
