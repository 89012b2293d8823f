"""The reduce step: one diagnosis of all reports, and the files that it is written to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracekit import engine
from tracekit.engine import Redact
from tracekit.model.diagnosis import Diagnosis
from tracekit.recipe.frames import frames
from tracekit.report import document, markdown
from tracekit.report.page import html

__all__ = ["headlines", "write"]

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
        answers[mode] = engine.analyze(paths, **keywords, redact=mode, with_pictures=True)
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


def headlines(diagnosis: Diagnosis) -> list[str]:
    """Return one line a finding that needs attention, the worst first."""
    return [f"{f.level}: {f.title}" for f in diagnosis.findings if f.level in ("critical", "warn")]
