"""A diagnosis as one self-contained HTML page: no network, no server, the same bytes again.

The text is written into the page and can be read without scripts; tables and the timeline are
drawn by the page's own script from JSON in the same page. The page's policy allows exactly that
script and that style sheet, by their hashes, and nothing from anywhere else.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tracekit.model.diagnosis import Diagnosis, GpuTime
from tracekit.model.finding import Finding, Level
from tracekit.report import summary
from tracekit.report.charts import palette
from tracekit.report.evidence import analysis_of
from tracekit.report.page.charts import pictures
from tracekit.report.page.data import evidence, fitting_tables, script_json, tables
from tracekit.report.page.timeline import timeline
from tracekit.wording.names import printable, shorten
from tracekit.wording.numbers import duration, share

__all__ = ["render"]

_SCRIPTS = ("cells.js", "table.js", "scale.js", "tracks.js", "timeline.js", "page.js")
_STYLES = ("page.css", "timeline.css", "chart.css")
_TITLE = 80


def render(diagnosis: Diagnosis, *, top: int | None = None) -> str:
    """Return `diagnosis` as an HTML page.

    Args:
        diagnosis: What to show; with `Diagnosis.pictures` it has a timeline and maps.
        top: Rows of every table; None for 5,000, fewer where the page would grow too large.
    """
    drawn = fitting_tables(diagnosis) if top is None else tables(diagnosis, top)
    findings = [_finding(diagnosis, f, drawn) for f in diagnosis.findings]
    data = {
        "tables": drawn,
        "evidence": [f["evidence"] for f in findings],
        "timeline": timeline(diagnosis),
    }
    style = palette.style() + palette.fills() + _joined(_STYLES)
    script = "(() => {\n'use strict';\n" + _joined(_SCRIPTS) + "})();\n"
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=_title(diagnosis),
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash(style),
            script_hash=_hash(script),
            data=Markup(script_json(data)),
            diagnosis=diagnosis,
            findings=findings,
            verdict=summary.verdict(diagnosis),
            gpus=[_gpu(diagnosis, t) for t in diagnosis.overview.gpus],
            classes=_classes(diagnosis),
            recorded=_recorded(diagnosis),
            quality=summary.quality_lines(diagnosis),
            unjudged=tuple(summary.unjudged(diagnosis)),
            pictures=pictures(diagnosis.charts.values()),
            questions=diagnosis.questions,
            tables=drawn,
            printable=printable,
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("tracekit.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _joined(names: tuple[str, ...]) -> str:
    folder = resources.files("tracekit.report") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _title(diagnosis: Diagnosis) -> str:
    return ", ".join(shorten(r.name, _TITLE) for r in diagnosis.reports[:2]) or "diagnosis"


def _finding(diagnosis: Diagnosis, finding: Finding, drawn: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything that the page says about a finding, as text."""
    return {
        "analysis": analysis_of(finding),
        "level": finding.level.value,
        "word": summary.LEVEL_WORDS[finding.level],
        "bad": finding.level in (Level.CRITICAL, Level.WARN),
        "title": printable(finding.title),
        "stake": summary.stake(finding),
        "advice": printable(finding.advice),
        "place": summary.place(finding),
        "confidence": summary.confidence(finding),
        "sure": finding.confidence.label if finding.confidence else "",
        "caveats": [printable(c) for c in finding.caveats],
        "metrics": [summary.metric_cells(m) for m in finding.metrics],
        "needs": [printable(m.what) for m in finding.missing if m.what],
        "window": finding.t_range_ns is not None,
        "evidence": evidence(diagnosis, finding, drawn),
    }


@dataclass(frozen=True)
class Part:
    """One part of a bar.

    Attributes:
        label: What it is.
        text: Time and share.
        x: Where it starts, percent of the bar.
        width: Percent of the bar.
        colour: Class of the style sheet.
    """

    label: str
    text: str
    x: float
    width: float
    colour: str


def _gpu(diagnosis: Diagnosis, time: GpuTime) -> dict[str, Any]:
    """How one GPU spent its span; parts follow each other and fill the bar."""
    names: dict[int | None, str] = {g.index: printable(g.name) for g in diagnosis.gpus}
    known = max(0, time.busy_ns - time.opaque_ns - time.comm_ns)
    idle = max(0, time.idle_ns - time.idle_in_profiler_ns)
    busy = time.busy_ns / time.span_ns if time.span_ns else None
    lengths = (
        ("communication, at least" if time.opaque_ns else "communication", time.comm_ns, "c1"),
        ("other work" if time.comm_ns else "work", known, "c2"),
        ("opaque graphs: what ran inside was not recorded", time.opaque_ns, "c7"),
        ("idle, blocked by the profiler", time.idle_in_profiler_ns, "c8"),
        ("idle", idle, "idle"),
    )
    return {
        "name": time.label,
        "about": f"{names.get(time.gpu, '')}: busy {share(busy)} of {duration(time.span_ns)}",
        "parts": _stacked(lengths, time.span_ns),
    }


def _classes(diagnosis: Diagnosis) -> list[tuple[str, str, float, int]]:
    """Device time by class: label, text, share in percent, rows."""
    return [
        (printable(c.kind), f"{duration(c.time_ns)}, {share(c.frac)}", 100 * c.frac, c.n)
        for c in diagnosis.overview.classes
    ]


def _stacked(lengths: tuple[tuple[str, int, str], ...], whole: int) -> list[Part]:
    parts, at = [], 0
    for label, length, colour in lengths:
        if length > 0 and whole > 0:
            text = f"{duration(length)}, {share(length / whole)}"
            x, width = round(100 * at / whole, 3), round(100 * length / whole, 3)
            parts.append(Part(label, text, x, width, colour))
            at += length
    return parts


def _recorded(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    rows = [("Report", summary.report_line(r)) for r in diagnosis.reports]
    rows += [("Window", line) for line in [summary.window_line(diagnosis)] if line]
    rows += [("Clock", line) for line in summary.clock_lines(diagnosis)]
    steps = summary.step_line(diagnosis)
    shares = ", ".join(summary.class_shares(diagnosis))
    rows += [(k, v) for k, v in (("Steps", steps), ("GPU time", shares)) if v]
    rows += [("Kernel", line) for line in summary.kernel_lines(diagnosis)]
    rows += [(f"SHA-256 of report {r.index}", printable(r.sha256)) for r in diagnosis.reports]
    for name, value in sorted(diagnosis.provenance.items()):
        if value not in (None, "", {}):
            rows.append((name.replace("_", " "), printable(str(value))))
    return rows
