"""``tracekit list``: the analyses, what each needs, and how to record it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tracekit.cli.shell.output import print_text, terminal_options

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.trace.analysis import Analysis

__all__ = ["command"]


@click.command("list", short_help="Name the analyses, what each needs and how to record it.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--markdown",
    is_flag=True,
    help="Print the page of documentation that an analysis begins with, its columns filled in.",
)
def command(names: tuple[str, ...], *, markdown: bool) -> None:
    """Name the analyses with the question that each answers and the tables it needs.

    With NAMEs: only these, and every parameter for `tracekit analyze --param`.
    """
    from tracekit import analyses
    from tracekit.errors import UsageError
    from tracekit.report.text import Lines

    known = analyses.names()
    if unknown := sorted(set(names) - set(known)):
        message = f"no analysis named {', '.join(unknown)}"
        raise UsageError(message, hint=f"there are: {', '.join(known)}")
    if markdown:
        from tracekit.report.analysis_page import skeleton

        print_text("\n".join(skeleton(analyses.load(name)) for name in names or known))
        return
    page = Lines(**terminal_options(sys.stdout))
    for name in names or known:
        _describe(page, analyses.load(name), full=bool(names))
    if not names:
        _settings(page)
    print_text(page.text())


def _describe(page: Lines, analysis: Analysis, *, full: bool) -> None:
    from tracekit.model.catalog import record_command

    page.line(analysis.name, "bold")
    page.line(analysis.question, indent=2)
    page.fields(
        [
            ("Needs", _needs(analysis)),
            ("Better with", _tables(analysis.uses)),
        ]
    )
    what = "all of it"
    if analysis.record:
        page.line(f"Record {what} with:", "dim", 2)
        page.command(analysis.record)
        what = "its tables alone"
    page.line(f"Record {what} with:", "dim", 2)
    page.command(record_command((*analysis.requires, *analysis.uses)))
    if full:
        _parameters(page, analysis)
    page.line()


def _needs(analysis: Analysis) -> str:
    parts = (_tables(analysis.requires), analysis.needs)
    return "; ".join(p for p in parts if p) or "no table in particular"


def _tables(names: tuple[str, ...]) -> str:
    """Name tables as nsys does after the option that records them; some are always there."""
    from tracekit.model.catalog import CATALOG

    by_option: dict[str, list[str]] = {}
    for name in names:
        if option := CATALOG[name].recording.words():
            by_option.setdefault(option, []).append(CATALOG[name].sources[0])
    return "; ".join(f"{option}: {', '.join(tables)}" for option, tables in by_option.items())


def _parameters(page: Lines, analysis: Analysis) -> None:
    from tracekit.trace.analysis import parameters

    rows = [
        (f"{analysis.name}.{p.name}", f"{p.default}", p.unit, p.help)
        for p in parameters(analysis.params)
    ]
    _table(page, rows)


def _settings(page: Lines) -> None:
    from tracekit.settings import SETTINGS

    page.line("Settings that every analysis shares", "bold")
    _table(page, [(p.name, f"{p.default}", p.unit, p.help) for p in SETTINGS])


def _table(page: Lines, rows: list[tuple[str, str, str, str]]) -> None:
    """Write one line a parameter with its help below it."""
    for name, default, unit, text in rows:
        value = "not set" if default == "None" else f"{default} {_unit(unit)}".rstrip()
        page.fields([("--param", f"{name}  (default {value})"), ("", text)])


def _unit(unit: str) -> str:
    return "as a share, 0..1" if unit == "1" else unit
