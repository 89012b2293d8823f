"""A diagnosis as JSON: versioned, described by a JSON Schema, the same bytes for the same input.

What was not measured is ``null`` with a reason next to it, integers that a double cannot hold are
strings, and frames are column arrays with their row count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from typing import Any

import polars as pl

from tracekit.model.diagnosis import SCHEMA_VERSION, Diagnosis, Overview
from tracekit.model.finding import Finding, Level, Metric
from tracekit.model.inputs import Report
from tracekit.model.table import Table

__all__ = ["DEFAULT_TOP", "SCHEMA_ID", "document", "render", "schema"]

DEFAULT_TOP = 1000
"""Rows of every frame that are written unless more are requested."""
SCHEMA_ID = f"urn:tracekit:diagnosis:{SCHEMA_VERSION}"
_EXACT = 2**53
_REASONS = {
    "gpu": "the report does not name the device",
    "span_ns": "no device activity was recorded",
    "unclassified_frac": "no kernel was recorded",
    "n_launches": "host calls were not recorded",
    "schema_version": "the file states none",
    "nsys_version": "the file states none",
    "metric_hz": "no counter was sampled",
    "has_blobs": "the file does not say",
    "utc_epoch_ns": "the file does not say",
    "duration_ns": "the file does not say",
    "capture_ns": "the file does not say",
    "l2_bytes": "the file does not say",
    "memory_bytes": "the file does not say",
    "bandwidth_bytes_per_s": "the file does not say",
    "clock_hz": "the file does not say",
    "sm_count": "the file does not say",
    "mad_ns": "no collective was matched",
}


def render(diagnosis: Diagnosis, *, top: int | None = None) -> str:
    """Return `diagnosis` as indented JSON text, ending in a newline.

    Args:
        diagnosis: What to write.
        top: Rows of every frame; None for `DEFAULT_TOP`.
    """
    return _dumped(document(diagnosis, top=top), 0) + "\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) that every document satisfies."""
    file = resources.files("tracekit.report") / "schema" / "diagnosis.schema.json"
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def document(diagnosis: Diagnosis, *, top: int | None = None) -> dict[str, Any]:
    """Return `diagnosis` as JSON values.

    Args:
        diagnosis: What to write.
        top: Rows of every frame; None for `DEFAULT_TOP`.
    """
    limit = DEFAULT_TOP if top is None else top
    whole = {
        "schema": SCHEMA_ID,
        "schema_version": SCHEMA_VERSION,
        "worst": diagnosis.worst.value,
        "reports": [_report(r) for r in diagnosis.reports],
        "gpus": [_explained(asdict(g)) for g in diagnosis.gpus],
        "alignment": [_explained(asdict(a)) | {"aligned": a.aligned} for a in diagnosis.alignment],
        "overview": _overview(diagnosis.overview),
        "quality": [asdict(q) for q in diagnosis.quality],
        "findings": [_finding(f) for f in diagnosis.findings],
        "frames": {
            analysis: {
                name: _frame(frame, _table(diagnosis, analysis, name), limit)
                for name, frame in sorted(frames.items())
            }
            for analysis, frames in sorted(diagnosis.frames.items())
        },
        "questions": dict(sorted(diagnosis.questions.items())),
        "params": {name: dict(sorted(p.items())) for name, p in sorted(diagnosis.params.items())},
        "unreadable": dict(sorted(diagnosis.unreadable.items())),
        "provenance": dict(sorted(diagnosis.provenance.items())),
    }
    plain = _plain(whole)
    assert isinstance(plain, dict)
    return plain


def _explained(values: dict[str, Any]) -> dict[str, Any]:
    """Add ``unmeasured``: why each null is null."""
    nulls = [name for name, value in values.items() if value is None]
    return values | {"unmeasured": {name: _REASONS[name] for name in nulls}}


def _report(report: Report) -> dict[str, Any]:
    values = asdict(report)
    values["present"] = sorted(report.present)
    values["tables"] = dict(sorted(report.tables.items()))
    if report.nsys_version is not None:
        values["nsys_version"] = ".".join(str(n) for n in report.nsys_version)
    return _explained(values)


def _overview(overview: Overview) -> dict[str, Any]:
    values = asdict(overview)
    values["gpus"] = [_explained(asdict(g)) for g in overview.gpus]
    values["step_groups"] = {
        label: {"n": n, "median_gpu_span_ns": median}
        for label, (n, median) in overview.step_groups.items()
    }
    return _explained(values)


def _finding(finding: Finding) -> dict[str, Any]:
    sure = finding.confidence
    values = asdict(finding) | {
        "metrics": [_metric(m) for m in finding.metrics],
        "confidence": None
        if sure is None
        else asdict(sure) | {"value": sure.value, "label": sure.label},
        "scope": [{"what": what, "which": which} for what, which in finding.scope],
        "thresholds": {
            name: {"warn": warn, "critical": critical}
            for name, (warn, critical) in sorted(finding.thresholds.items())
        },
    }
    if finding.t_range_ns is not None:
        values["t_range_ns"] = list(finding.t_range_ns)
    unknown = finding.level is Level.UNKNOWN
    reason = "could not be judged" if unknown else "no saving is claimed"
    values["unmeasured"] = {} if finding.at_stake_ns is not None else {"at_stake_ns": reason}
    return values


def _metric(metric: Metric) -> dict[str, Any]:
    """A number that is absent or not finite gives its reason."""
    values = asdict(metric)
    if _plain(metric.value) is None:
        values["reason"] = "not measured" if metric.value is None else "no finite value"
    return values


def _table(diagnosis: Diagnosis, analysis: str, name: str) -> Table | None:
    return next((t for t in diagnosis.tables.get(analysis, ()) if t.name == name), None)


def _frame(frame: pl.DataFrame, table: Table | None, limit: int) -> dict[str, Any]:
    """One array a column; units and meanings where the analysis states them."""
    shown = frame.head(limit)
    described = {c.name: c for c in table.columns} if table else {}
    return {
        "doc": table.doc if table else "",
        "rows": frame.height,
        "rows_shown": shown.height,
        "dtypes": {name: str(dtype) for name, dtype in frame.schema.items()},
        "units": {name: c.unit for name, c in described.items() if c.unit},
        "docs": {name: c.doc for name, c in described.items() if c.doc},
        "columns": {name: shown[name].to_list() for name in shown.columns},
    }


def _dumped(value: Any, depth: int) -> str:
    """Return JSON text, one line for every object or array that holds only scalars."""
    inside = list(
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    if not any(isinstance(v, dict | list) and v for v in inside):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    pad, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, list):
        return f"[{pad}" + f",{pad}".join(_dumped(v, depth + 1) for v in value) + f"{end}]"
    items = (
        f"{json.dumps(k, ensure_ascii=False)}: {_dumped(v, depth + 1)}" for k, v in value.items()
    )
    return f"{{{pad}" + f",{pad}".join(items) + f"{end}}}"


def _plain(value: Any) -> Any:
    """Return `value` as JSON can hold it exactly: see the module's docstring."""
    match value:
        case bool() | None:
            return value
        case int():
            return value if -_EXACT <= value <= _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else None
        case str():
            # A lone surrogate has no UTF-8 form.
            return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
        case bytes():
            return value.hex()
        case Mapping():
            return {str(_plain(str(k))): _plain(v) for k, v in value.items()}
        case list() | tuple() | set() | frozenset() | pl.Series():
            items = sorted(value) if isinstance(value, set | frozenset) else value
            return [_plain(v) for v in items]
        case _:
            return _plain(str(value))
