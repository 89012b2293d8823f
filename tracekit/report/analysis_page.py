"""An analysis as a page of documentation: what it takes and returns, and what its author writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracekit.model.catalog import CATALOG, record_command
from tracekit.model.table import Table
from tracekit.trace.analysis import Analysis, parameters
from tracekit.wording.numbers import unit_of_column

__all__ = ["reference", "skeleton"]

_TO_WRITE = (
    ("What is measured", "Which rows, which times, what is compared with what."),
    ("Levels", "From which number on a finding is a warning, and from which critical."),
    ("When it says unknown", "What must be recorded, and which finding says so."),
    ("How it can be wrong", "One line for each way."),
)
_CHART = ("Chart", "What the chart shows and how to read it.")


def skeleton(analysis: Analysis) -> str:
    """Return a page to fill in, ending with its `reference`."""
    command = analysis.record or record_command((*analysis.requires, *analysis.uses))
    lines = [
        f"# {analysis.name}",
        "",
        analysis.question,
        "",
        "```",
        command,
        f"tracekit analyze run.sqlite --only {analysis.name}",
        "```",
    ]
    for title, what in (*_TO_WRITE, *([_CHART] if analysis.chart else ())):
        lines += ["", f"## {title}", "", f"TODO: {what}"]
    return "\n".join(lines) + f"\n\n{reference(analysis)}"


def reference(analysis: Analysis) -> str:
    """Return needs, parameters and result tables, all of it from the analysis itself."""
    lines = [f"<!-- from here on as `tracekit list {analysis.name} --markdown` prints it -->"]
    lines += ["", "## What it reads", "", _reads(analysis)]
    if params := parameters(analysis.params):
        rows = [(f"`{p.name}`", f"{p.default}", _unit(p.unit), p.help) for p in params]
        lines += ["", "## Parameters", "", *_table(("parameter", "default", "unit", "what"), rows)]
    lines += ["", "## Tables"]
    for table in analysis.results:
        lines += ["", f"### {table.name}", "", f"{table.doc[:1].upper()}{table.doc[1:]}.", ""]
        lines += _table(("column", "unit", "what"), list(_columns(table)))
    return "\n".join(lines) + "\n"


def _reads(analysis: Analysis) -> str:
    needs = [*_sources(analysis.requires), *([analysis.needs] if analysis.needs else [])]
    parts = [f"Needs {', '.join(needs)}." if needs else "Needs no table in particular."]
    if analysis.uses:
        parts.append(f"Better with {', '.join(_sources(analysis.uses))}.")
    return " ".join(parts)


def _sources(names: Sequence[str]) -> list[str]:
    return [f"`{CATALOG[name].sources[0]}`" for name in names]


def _columns(table: Table) -> Iterator[tuple[str, str, str]]:
    for column in table.columns:
        unit = column.unit or unit_of_column(column.name)[1]
        yield f"`{column.name}`", _unit(unit), column.doc


def _unit(unit: str) -> str:
    return "share, 0..1" if unit == "1" else unit


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = (head, ["---"] * len(head), *rows)
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells]
