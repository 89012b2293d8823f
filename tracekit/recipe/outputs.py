"""The reduce step: one diagnosis of all reports, and the files that it is written to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import engine
from tracekit.model.diagnosis import Diagnosis
from tracekit.model.finding import Finding
from tracekit.model.pandas_frames import to_pandas
from tracekit.opening import OpenOptions, Redact
from tracekit.report import document, markdown
from tracekit.report.page import html

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["findings", "frames", "headlines", "metrics", "read", "write"]

_FILES = {"report": pl.UInt32, "file": pl.String}
_FINDINGS = {
    "rank": pl.UInt32,
    "id": pl.String,
    "analysis": pl.String,
    "level": pl.String,
    "title": pl.String,
    "scope": pl.String,
    "at_stake_ns": pl.Int64,
    "at_stake_frac": pl.Float64,
    "at_stake_of": pl.String,
    "confidence": pl.Float64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "advice": pl.String,
    "caveats": pl.String,
    "missing": pl.String,
    "command": pl.String,
}
_METRICS = {
    "id": pl.String,
    "name": pl.String,
    "value": pl.Float64,
    "text": pl.String,
    "unit": pl.String,
    "lo": pl.Float64,
    "hi": pl.Float64,
    "n": pl.Int64,
    "doc": pl.String,
}


def frames(diagnosis: Diagnosis) -> dict[str, pl.DataFrame]:
    """Return every frame by its file name without suffix.

    ``files`` (report UInt32, file String) names the inputs, `findings` and `metrics` are the
    answer, ``frames/<analysis>.<frame>`` are the results as the analysis computed them.
    """
    files = [(r.index, r.name) for r in diagnosis.reports]
    named = {
        "files": pl.DataFrame(files, schema=_FILES, orient="row"),
        "findings": findings(diagnosis),
        "metrics": metrics(diagnosis),
    }
    for analysis, results in sorted(diagnosis.frames.items()):
        named |= {f"frames/{analysis}.{name}": frame for name, frame in sorted(results.items())}
    return named


def findings(diagnosis: Diagnosis) -> pl.DataFrame:
    """Return one row a finding, the most important first; what is not known is null.

    Columns: rank (UInt32, from 1), id, analysis, level, title, scope ("gpu 0, ..."), at_stake_ns
    (Int64), at_stake_frac (Float64, 0..1) of at_stake_of, confidence (Float64, 0..1), start_ns
    and end_ns (Int64, ns of session time: the worst window), advice, caveats, missing, command.
    """
    rows = [_finding(rank, f) for rank, f in enumerate(diagnosis.findings, 1)]
    return pl.DataFrame(rows, schema=_FINDINGS, orient="row")


def _finding(rank: int, finding: Finding) -> dict[str, object]:
    commands = dict.fromkeys(m.command for m in finding.missing)
    start_ns, end_ns = finding.t_range_ns or (None, None)
    return {
        "rank": rank,
        "id": finding.id,
        "analysis": finding.id.partition("/")[0],
        "level": finding.level.value,
        "title": finding.title,
        "scope": _text(", ", [f"{what} {which}" for what, which in finding.scope]),
        "at_stake_ns": finding.at_stake_ns,
        "at_stake_frac": finding.at_stake_frac,
        "at_stake_of": finding.at_stake_of or None,
        "confidence": finding.confidence.value if finding.confidence else None,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "advice": finding.advice or None,
        "caveats": _text(" ", finding.caveats),
        "missing": _text("; ", [m.what for m in finding.missing]),
        "command": _text("; ", [c for c in commands if c]),
    }


def metrics(diagnosis: Diagnosis) -> pl.DataFrame:
    """Return one row a number that a finding rests on, in the order of the findings.

    Columns: id (of the finding), name, value (Float64 in `unit`; null when not measured), text
    (the value where it is no number), unit, lo and hi (Float64, the 95% interval), n (Int64),
    doc.
    """
    rows = []
    for finding in diagnosis.findings:
        for m in finding.metrics:
            words = isinstance(m.value, str)
            value, text = (None, m.value) if words else (m.value, None)
            rows.append((finding.id, m.name, value, text, m.unit, m.lo, m.hi, m.n, m.doc))
    return pl.DataFrame(rows, schema=_METRICS, orient="row")


def _text(between: str, parts: list[str] | tuple[str, ...]) -> str | None:
    return between.join(parts) or None


Place = Callable[[str], str]
_FORMS = {
    "diagnosis.json": (document.render, False),
    "diagnosis.html": (html.render, False),
    "diagnosis.md": (markdown.render, True),
}
"""File to its renderer, and whether it is redacted unless the user says otherwise."""


def write(
    reports: Sequence[str],
    keywords: Mapping[str, Any],
    place: Place,
    *,
    redact: bool | None = None,
    keep_nvtx: bool = False,
    top: int | None = None,
    csv: bool = False,
) -> Diagnosis:
    """Diagnose the reports of one run and write the answer in every form.

    Args:
        reports: SQLite exports; what else is among them is said to be unreadable.
        keywords: See `tracekit.recipe.options.analyze_keywords`.
        place: Function from a file name to the path to write it to; not called before there is
            an answer.
        redact: Whether names are left out; None for Markdown only.
        keep_nvtx: When redacting, let the program's own NVTX text pass.
        top: Rows of each table in the documents; None for their defaults.
        csv: Write frames as CSV, too.

    Returns:
        What was found, unredacted unless `redact`.

    Raises:
        TracekitError: No report can be used, or an option has a wrong value.
    """
    paths = [Path(r) for r in reports]
    hidden: Redact = "keep nvtx" if keep_nvtx else "yes"
    answers: dict[Redact, Diagnosis] = {}
    modes: dict[str, Redact] = {
        name: hidden if (private if redact is None else redact) else "no"
        for name, (_, private) in _FORMS.items()
    }
    for mode in sorted(set(modes.values())):
        options = replace(keywords.get("options", OpenOptions()), redact=mode)
        given = {**keywords, "options": options}
        answers[mode] = engine.analyze(paths, **given, with_pictures=True)
    for name, mode in modes.items():
        text = _FORMS[name][0](answers[mode], top=top)
        Path(place(name)).write_text(text, encoding="utf-8")
    answer = answers[modes["diagnosis.json"]]
    Path(place("frames")).mkdir(exist_ok=True)
    for name, frame in frames(answer).items():
        frame.write_parquet(place(f"{name}.parquet"))
        if csv:
            frame.write_csv(place(f"{name}.csv"))
    return answer


def read(folder: Path) -> dict[str, pd.DataFrame]:
    """Return findings, metrics and files that `write` left in a folder, as pandas frames.

    Args:
        folder: Where ``findings.parquet`` and the others are.
    """
    names = ("findings", "metrics", "files")
    return {name: to_pandas(pl.read_parquet(folder / f"{name}.parquet")) for name in names}


def headlines(diagnosis: Diagnosis) -> list[str]:
    """Return one line a finding that needs attention, the worst first."""
    return [f"{f.level}: {f.title}" for f in diagnosis.findings if f.level in ("critical", "warn")]
