"""``tracekit compare``: device time of two runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.shell.output import print_text, terminal_options

if TYPE_CHECKING:
    import polars as pl

    from tracekit.comparison import Comparison
    from tracekit.report.text import Lines

__all__ = ["command"]

_UNKNOWN = "unknown"


@click.command("compare", short_help="Compare device time by class and kernel of two runs.")
@click.argument("before", metavar="BEFORE", type=click.Path(path_type=Path))
@click.argument("after", metavar="AFTER", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Kernels.")
def command(before: Path, after: Path, *, top: int) -> None:
    """Show what the device spent its time on in two runs, per step where both have steps.

    A run of several ranks is given as a folder of its reports.
    """
    from tracekit.comparison import compare
    from tracekit.report.text import Lines

    found = compare(before, after)
    page = Lines(**terminal_options(sys.stdout))
    _head(page, found)
    _table(page, "By class", found.by_kind, ("kind",), found, found.by_kind.height)
    _table(page, "By kernel", found.by_name, ("name", "seen"), found, top)
    page.line("Times only: less time is no proof of less memory traffic.", indent=2)
    if (found.by_kind["kind"] == "comm").any():
        text = "Communication includes waiting for other ranks and first collectives, which set up."
        page.line(text, indent=2)
    print_text(page.text())


def _head(page: Lines, found: Comparison) -> None:
    from tracekit.wording.names import printable
    from tracekit.wording.numbers import duration, percent, share

    names = (found.before, found.after)
    for label, own, n, opaque in zip(
        ("Before", "After"), names, found.n_steps, found.opaque_frac, strict=True
    ):
        text = f"{', '.join(map(printable, own))}: {n} steps with device work"
        if opaque is None:
            text = f"{', '.join(map(printable, own))}: no accelerator activity recorded"
        elif opaque:
            text += (
                f"; {share(opaque)} of busy time is opaque: what ran inside graphs is unknown,"
                " and times are lower bounds"
            )
        page.fields([(label, text)])
    for name, what, (before, after) in (
        ("Steps", "median GPU span of a step", found.step_ns),
        ("", "median idle time inside a step", found.idle_ns),
        ("", "median time to the next step", found.between_ns),
    ):
        if before is not None and after is not None and (before or after):
            text = f"{what}: {duration(before)} -> {duration(after)}"
            if before:
                change = 100 * (after / before - 1)
                text += f" ({'+' if change > 0 else ''}{percent(change)})"
            page.fields([(name, text)])
    unit = "per step" if found.per_step else "in all (no steps in both runs to divide by)"
    page.fields([("Times", unit)])


def _table(
    page: Lines,
    title: str,
    frame: pl.DataFrame,
    keys: tuple[str, ...],
    found: Comparison,
    top: int,
) -> None:
    from tracekit.wording.names import shorten
    from tracekit.wording.numbers import NOT_MEASURED, count, duration

    suffix = "_per_step_ns" if found.per_step else "_ns"
    rows = []
    for row in frame.head(top).iter_rows(named=True):
        cells = (
            duration(row[f"before{suffix}"]),
            duration(row[f"after{suffix}"]),
            _change(row["change_ns"]),
            count(row["n_before"]),
            count(row["n_after"]),
        )
        known = (_UNKNOWN if cell == NOT_MEASURED else cell for cell in cells)
        rows.append((*(shorten(row[k] or "", 56) for k in keys), *known))
    page.line()
    rest = frame.height - len(rows)
    page.line(f"{title}{f' ({len(rows)} of {frame.height})' if rest > 0 else ''}", "bold")
    heads = (*keys, "before", "after", "change", "n before", "n after")
    page.columns(heads, rows, (*(False for _ in keys), *(True for _ in range(5))), indent=2)


def _change(change_ns: float | None) -> str:
    from tracekit.wording.numbers import duration

    if change_ns is None:
        return _UNKNOWN
    sign = "+" if change_ns > 0 else "-" if change_ns < 0 else ""
    return sign + duration(abs(change_ns))
