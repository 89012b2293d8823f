"""``tracekit size pareto``: which devices nothing else beats on every axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, hardware_table, output_options
from tracekit.cli.sizing._load import hardware_option

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.choice.pareto import Front

__all__ = ["command"]

_USUAL = ("dram_gb_per_s:max", "fp16_tflops:max", "tdp_w:min")
_LESS_IS_BETTER = ("tdp_w", "price_usd_per_hour")


@click.command("pareto", short_help="Devices that no other beats on every axis.")
@click.option(
    "--axis",
    "axes",
    metavar="NAME[:max|:min]",
    multiple=True,
    help="A figure of the table and which way is better; may be repeated;"
    f" {', '.join(_USUAL)} unless said.",
)
@click.option(
    "--csv",
    "table",
    metavar="FILE",
    type=PATH,
    help="Compare the rows of this table, its first column the name, instead of devices.",
)
@hardware_option
@output_options
def command(
    axes: tuple[str, ...],
    table: Path | None,
    hardware: Path | None,
    outputs: tuple[Path, ...],
    form: str,
) -> None:
    """Name the rows that no other row beats on every axis, and one that beats each of the rest.

    Being undominated makes a device worth a look; it does not say that one advantage makes up for
    another.
    """
    from tracekit.sizing import charts
    from tracekit.sizing.choice import pareto

    check(outputs, [p for p in (table, hardware) if p is not None])
    names, columns = _devices(hardware) if table is None else _rows(table)
    if table is None or axes:
        maximise = _directions(axes or _USUAL, columns)
    else:
        maximise = _directions([f"{name}:max" for name in columns], columns)
    found = pareto.front(names, columns, maximise=maximise)

    def text(page: Lines) -> None:
        _write(page, found, names, columns)

    deliver(
        Answer(
            verb="size pareto",
            document={"front": found, "names": names, "values": {a: columns[a] for a in maximise}},
            write=text,
            chart=lambda: charts.pareto(found, names, columns),
        ),
        form,
        outputs,
    )


def _devices(hardware: Path | None) -> tuple[list[str], dict[str, list[float | None]]]:
    """Every figure of the table as a column."""
    from dataclasses import fields

    from tracekit.model.hardware import Hardware

    rows = hardware_table(hardware)
    words = {"key", "pattern", "chip", "unsupported", "unverified", "cells"}
    figures = [f.name for f in fields(Hardware) if f.name not in words]
    return [row.key for row in rows], {n: [getattr(row, n) for row in rows] for n in figures}


def _rows(path: Path) -> tuple[list[str], dict[str, list[float | None]]]:
    from tracekit.sizing.tables import read_csv

    found = read_csv(path)
    name, *values = found.names
    return found.texts(name), {v: found.numbers(v) for v in values}


def _directions(given: Sequence[str], columns: Mapping[str, object]) -> dict[str, bool]:
    from tracekit.errors import UsageError

    found = {}
    for one in given:
        name, colon, way = one.rpartition(":")
        if not colon:
            name, way = one, "min" if one in _LESS_IS_BETTER else "max"
        if way not in ("min", "max") or name not in columns:
            message = f"--axis {one}: not a column with :max or :min"
            raise UsageError(message, hint=f"there are: {', '.join(columns)}")
        found[name] = way == "max"
    return found


def _write(
    page: Lines,
    found: Front,
    names: Sequence[str],
    columns: Mapping[str, Sequence[float | None]],
) -> None:
    from tracekit.wording.names import printable
    from tracekit.wording.numbers import NOT_MEASURED, significant

    ways = [f"{axis} ({'more' if more else 'less'})" for axis, more in found.axes.items()]
    page.line(f"Better is: {', '.join(ways)}", "bold")
    if not found.dominated and len(found.front) > 1:
        page.line("No row beats another on every axis: these axes rule nothing out.", indent=2)
    rows = []
    for i, name in enumerate(names):
        cells = (columns[axis][i] for axis in found.axes)
        shown = (NOT_MEASURED if c is None or c != c else significant(c) for c in cells)
        where = "front" if name in found.front else f"beaten by {found.dominated.get(name)}"
        if name in found.missing:
            where = f"unknown: no {', '.join(found.missing[name])}"
        rows.append((printable(name), *shown, printable(where)))
    page.line()
    heads = ("row", *found.axes, "")
    page.columns(heads, rows, (False, *(True for _ in found.axes), False), indent=2)
