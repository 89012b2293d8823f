"""``tracekit info``: what one report holds and what can be judged from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.shell.output import print_text, terminal_options

if TYPE_CHECKING:
    from tracekit.inspection import Inspection
    from tracekit.model.inputs import Gpu
    from tracekit.report.text import Lines

__all__ = ["command"]

_METRICS = 12


@click.command("info", short_help="Show what a report holds and what can be judged from it.")
@click.argument("report", metavar="REPORT", type=click.Path(path_type=Path))
@click.option("--salvage", is_flag=True, help="Read what is left of a damaged report.")
def command(report: Path, *, salvage: bool) -> None:
    """Show the versions, GPUs, tables and counters of one REPORT, and what can be judged."""
    from tracekit.inspection import inspect
    from tracekit.opening import OpenOptions
    from tracekit.report.text import Lines

    found = inspect(report, options=OpenOptions(salvage=salvage))
    page = Lines(**terminal_options(sys.stdout))
    _head(page, found)
    _tables(page, found)
    _analyses(page, found)
    print_text(page.text())


def _head(page: Lines, found: Inspection) -> None:
    from tracekit.report.summary import report_line
    from tracekit.wording.names import printable
    from tracekit.wording.numbers import duration, moment

    report = found.report
    used = [g for g in found.gpus if g.used]
    rest = len(found.gpus) - len(used)
    page.line(report_line(report), "bold")
    page.fields(("GPU", _gpu(g)) for g in used)
    page.fields([("GPU", f"{rest} more of the host, unused" if rest else "")])
    if found.span_ns is None:
        page.fields([("Device", "no accelerator activity recorded")])
    else:
        start, end = found.span_ns
        page.fields(
            [("Device", f"active from {moment(start)} to {moment(end)}: {duration(end - start)}")]
        )
    graphs = {"graph": "as a whole (opaque)", "node": "node by node"}.get(report.graph_trace, "")
    page.fields([("CUDA graphs", graphs and f"traced {graphs}, where there are any")])
    page.fields(("Note", printable(note)) for note in report.notes)


def _gpu(gpu: Gpu) -> str:
    from tracekit.wording.names import printable
    from tracekit.wording.numbers import rate, size

    parts = [f"{gpu.index}: {printable(gpu.name) or 'unknown name'}"]
    if gpu.memory_bytes is not None:
        parts.append(f"{size(gpu.memory_bytes)} of memory")
    if gpu.bandwidth_bytes_per_s is not None:
        parts.append(f"{rate(gpu.bandwidth_bytes_per_s)} peak as the report states it")
    if gpu.l2_bytes is not None:
        parts.append(f"{size(gpu.l2_bytes)} of L2")
    return ", ".join(parts)


def _tables(page: Lines, found: Inspection) -> None:
    from tracekit.model.catalog import CATALOG
    from tracekit.wording.names import shorten
    from tracekit.wording.numbers import count

    rows = [
        (CATALOG[n].sources[0], count(k), CATALOG[n].doc.partition(";")[0].partition(" (")[0])
        for n, k in found.rows.items()
        if k
    ]
    page.line()
    page.columns(("table", "rows", "one row is"), rows, (False, True, False), indent=2, wrap=True)
    for table, reasons in sorted(found.report.dropped.items()):
        invalid = ", ".join(f"{count(n)} {reason}" for reason, n in sorted(reasons.items()))
        page.fields([("Invalid", f"{CATALOG[table].sources[0]}: {invalid}")])
    shown = [shorten(m, 50) for m in found.metrics[:_METRICS]]
    rest = len(found.metrics) - len(shown)
    text = ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
    page.fields([("Counters", text or "none sampled")])


def _analyses(page: Lines, found: Inspection) -> None:
    from tracekit import analyses
    from tracekit.model.catalog import CATALOG, record_command

    page.line()
    page.line("What can be judged, by the tables that are present", "bold")
    missing: dict[str, None] = {}
    for name, tables in sorted(found.missing.items()):
        analysis = analyses.load(name)
        if tables:
            sources = ", ".join(CATALOG[t].sources[0] for t in tables)
            page.fields([("no", f"{name}: needs {sources}")])
        elif analysis.requires:
            page.fields([("yes", name)])
        else:
            needs = f"needs {analysis.needs}" if analysis.needs else "run tracekit analyze to see"
            page.fields([("?", f"{name}: {needs}")])
        missing |= dict.fromkeys(tables)
    if missing:
        page.line("To record what is missing:", indent=2)
        page.command(record_command(missing, version=found.report.nsys_version))
