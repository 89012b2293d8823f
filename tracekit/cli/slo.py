"""``tracekit slo``: what request rate an objective allows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, output_options
from tracekit.cli.sizing._load_series import Length, Moment, from_csv, from_server
from tracekit.cli.sizing._slo_text import write_fit

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.slo import Samples, SloFit

__all__ = ["command"]

_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.group("slo", short_help="The request rate that an objective allows, from metrics.")
def command() -> None:
    """Work out from load, latency and DRAM activity what request rate can be promised."""


@command.command("fit")
@click.option("--prometheus", metavar="URL", help="Server to read, as http://localhost:9090.")
@click.option(
    "--csv",
    "table",
    metavar="FILE",
    type=PATH,
    help="Table to read: qps, latency_s (or latency_ms), time_s, dram_active, kv_cache.",
)
@click.option(
    "--dcgm-csv",
    metavar="FILE",
    type=PATH,
    help="DRAM activity on its own clock, next to --csv: time_s, dram_active.",
)
@click.option(
    "--latency",
    type=click.Choice(("e2e", "ttft", "tpot")),
    default="e2e",
    show_default=True,
    help="Which latency of the engine the objective is about.",
)
@click.option(
    "--quantile",
    type=_SHARE,
    default=0.95,
    show_default=True,
    help="Quantile of the latency.",
)
@click.option("--mean", is_flag=True, help="The mean latency instead of a quantile.")
@click.option("--objective", type=Length(), help="Latency to keep, such as 2s.")
@click.option(
    "--headroom",
    type=click.FloatRange(0, 1, max_open=True),
    help="Share of the achievable DRAM activity to keep free.",
)
@click.option(
    "--achievable",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.8,
    show_default=True,
    help="DRAM activity that can be reached at most.",
)
@click.option(
    "--since", type=Length(), default=3600.0, help="Length of the period; 1h unless said."
)
@click.option("--until", type=Moment(), help="End of the period; now unless said.")
@click.option("--match", metavar="LABELS", default="", help="Labels of the engine's series.")
@click.option("--gpu-match", metavar="LABELS", default="", help="Labels of DCGM's series.")
@click.option(
    "--rate-window", type=Length(), default=60.0, help="Window of rates; 60s unless said."
)
@click.option("--any-order", is_flag=True, help="Accept load that rose and fell.")
@output_options
def fit(prometheus: str | None, table: Path | None, **options: Any) -> None:
    """Fit utilisation and latency over load; print the rate that objectives allow.

    Nothing is extrapolated: an objective that was never reached gives "at least" the largest rate
    observed.
    """
    from tracekit.sizing import charts
    from tracekit.sizing.slo import fit_slo, levels_of

    outputs: tuple[Path, ...] = options["outputs"]
    check(outputs, [p for p in (table, options["dcgm_csv"]) if p is not None])
    samples, source = _samples(prometheus, table, options)
    found = fit_slo(
        levels_of(samples),
        latency_s=options["objective"],
        beta=options["headroom"],
        achievable_frac=options["achievable"],
        any_order=options["any_order"],
    )

    def text(page: Lines) -> None:
        write_fit(page, found, options, source)

    document = {
        "source": source,
        "objective_s": options["objective"],
        "headroom": options["headroom"],
        "achievable_frac": options["achievable"],
        "fit": _document(found),
    }
    deliver(
        Answer(
            verb="slo fit",
            document=document,
            write=text,
            chart=lambda: charts.slo(found, options["objective"]),
        ),
        options["form"],
        outputs,
    )


def _samples(
    prometheus: str | None, table: Path | None, options: dict[str, Any]
) -> tuple[Samples, dict[str, object]]:
    """The series of the one source that was given, and what it is."""
    from tracekit.errors import UsageError

    if (prometheus is None) == (table is None):
        message = "one source is needed"
        raise UsageError(message, hint="give --prometheus URL or --csv FILE")
    if table is not None:
        return from_csv(table, options["dcgm_csv"]), {"csv": f"{table}"}
    if options["dcgm_csv"] is not None:
        message = "--dcgm-csv goes with --csv"
        raise UsageError(message)
    return from_server(prometheus or "", options)


def _document(found: SloFit) -> dict[str, object]:
    """The fit without the bootstrap's draws."""
    from dataclasses import fields

    document = {f.name: getattr(found, f.name) for f in fields(found)}
    if found.queue is not None:
        queue = found.queue
        names = [f.name for f in fields(queue) if f.name != "draws"]
        document["queue"] = {name: getattr(queue, name) for name in names}
    return document
