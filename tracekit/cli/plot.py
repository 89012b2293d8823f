"""``tracekit plot``: the figure of one analysis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tracekit.cli.shell.app import progress
from tracekit.cli.shell.options import SETTING, WINDOW, merged_params
from tracekit.cli.shell.output import check_places, write

if TYPE_CHECKING:
    from tracekit.model.chart import Chart
    from tracekit.model.diagnosis import Diagnosis

__all__ = ["command"]

_PATH = click.Path(path_type=Path)


@click.command("plot", short_help="Draw the figure of one analysis as SVG, PNG or PDF.")
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True, type=_PATH)
@click.argument("name", metavar="NAME")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    required=True,
    type=_PATH,
    help="Write to this file; its suffix (.svg, .png or .pdf) chooses the format.",
)
@click.option("--window", type=WINDOW, help="Look only at this part of the session.")
@click.option(
    "--param", "params", type=SETTING, multiple=True, help="Set a parameter, as for analyze."
)
@click.option(
    "--redact",
    is_flag=True,
    help="Leave out names that may reveal something about a machine or its users.",
)
def command(reports: tuple[Path, ...], name: str, output: Path, **options: Any) -> None:
    """Draw the figure of the analysis NAME from its REPORTs.

    `tracekit list` names the analyses. The same input gives the same bytes.
    """
    form = _form(output)
    check_places([output], reports)
    with progress() as notify:
        from tracekit import engine
        from tracekit.opening import OpenOptions

        answer = engine.analyze(
            reports,
            only=[name],
            params=merged_params(options["params"], None),
            options=OpenOptions(
                window_ns=options["window"], redact="yes" if options["redact"] else "no"
            ),
            with_charts=True,
            progress=notify,
        )
    chart = answer.charts.get(name)
    if chart is None:
        _refuse(answer, f"{name} has nothing to draw")
    write(output, _drawn(chart, form))


def _drawn(chart: Chart, form: str) -> bytes:
    if form == "svg":
        from tracekit.report.charts.svg import chart_file

        return chart_file(chart)
    from tracekit.report.charts import figure

    return figure.render(chart, form)


def _form(output: Path) -> str:
    from tracekit.errors import UsageError

    form = output.suffix.lower().removeprefix(".")
    if form not in ("svg", "png", "pdf"):
        message = f"-o {output}: the suffix chooses the format"
        raise UsageError(message, hint="use one of .svg, .png, .pdf")
    return form


def _refuse(answer: Diagnosis, why: str) -> NoReturn:
    """Say why there is no figure, in the words of the findings."""
    from tracekit.errors import InputError

    said = "; ".join(f.title for f in answer.findings)
    raise InputError(why, hint=said or None)
