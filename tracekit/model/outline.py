"""A diagnosis on one screen: as text for a prompt, as an HTML fragment for a notebook."""

from __future__ import annotations

from collections import Counter
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.model.diagnosis import Diagnosis

__all__ = ["as_html", "as_text"]

_WIDTH, _MOST = 79, 12
_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
_COLORS = {"critical": "#b3261e", "warn": "#8a5a00", "ok": "#1b6e3c", "unknown": "#5f6368"}


def as_text(diagnosis: Diagnosis) -> str:
    """Return the head and a line a finding, at most 79 columns and 15 lines."""
    lines = [_line(_head(diagnosis))]
    for finding in diagnosis.findings[:_MOST]:
        lines.append(_line(f"{finding.level.value}: {finding.title}", indent=2))
    rest = len(diagnosis.findings) - _MOST
    lines += [f"  and {rest} more in .findings"] if rest > 0 else []
    return "\n".join([*lines, "tracekit.render(diagnosis) shows all of it"])


def as_html(diagnosis: Diagnosis) -> str:
    """Return head, findings and advice as a fragment that needs no file, script or style sheet."""
    cell = '<td style="text-align:left">'
    rows = "".join(
        f'<tr>{cell}<b style="color:{_COLORS[f.level.value]}">{f.level.value}</b></td>'
        f"{cell}{_safe(f.title)}<br><small>{_safe(f.advice)}</small></td>"
        f"{cell}{f.confidence.label if f.confidence else ''}</td></tr>"
        for f in diagnosis.findings
    )
    names = ("", "finding", "confidence")
    heads = "".join(f'<th style="text-align:left">{name}</th>' for name in names)
    return (
        f"<div><p><b>{_safe(_head(diagnosis))}</b></p>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _head(diagnosis: Diagnosis) -> str:
    counts = Counter(f.level.value for f in diagnosis.findings)
    found = ", ".join(f"{counts[level]} {level}" for level in _COLORS if counts[level])
    names = ", ".join(r.name for r in diagnosis.reports)
    return f"Diagnosis: {found or 'no finding'}; {names}"


def _line(text: str, indent: int = 0) -> str:
    return " " * indent + shorten(_printable(text), _WIDTH - indent, placeholder=" ...")


def _safe(text: str) -> str:
    return escape(_printable(text))


def _printable(text: str) -> str:
    """Names come from the profiled program and may hold anything."""
    return "".join(c if c.isprintable() or c.isspace() else _UNPRINTABLE for c in text)
