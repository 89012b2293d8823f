"""``tracekit size quant``: what a lower precision gained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, output_options

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.runs.quantisation import Split

__all__ = ["command"]

_FORMATS = click.Choice(("fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4"))
_POSITIVE = click.FloatRange(min=0, min_open=True)
_UTIL = click.FloatRange(0, 1, min_open=True)
_SIDES = (("before", "first"), ("after", "second"))


def _side_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of both runs."""
    for side, which in reversed(_SIDES):
        for option in (
            click.option(f"--{side}-rate", type=_POSITIVE, help=f"Throughput of the {which} run."),
            click.option(
                f"--{side}-util", type=_UTIL, help=f"Memory utilisation of the {which} run, 0..1."
            ),
            click.option(
                f"--{side}-dtype", type=_FORMATS, help=f"Format of the {which} run's weights."
            ),
            click.option(
                f"--{side}-trace",
                metavar="REPORT",
                type=PATH,
                help=f"Report of the {which} run, in place of its rate and utilisation.",
            ),
            click.option(
                f"--{side}-steps",
                metavar="TEXT",
                default="",
                help=f"Which steps of that report: a part of their text ({which} run).",
            ),
        ):
            function = option(function)
    return function


@click.command("quant", short_help="Split the speed-up of two runs: bytes saved, memory kept busy.")
@_side_options
@output_options
def command(outputs: tuple[Path, ...], form: str, **options: Any) -> None:
    """Split the speed-up from one run to another into bytes saved and utilisation gained.

    Both runs must be on the same device with the same load; rates are requests/s, tokens/s or, of
    reports, steps/s.
    """
    from tracekit.sizing.bounds.precision import bytes_per_value
    from tracekit.sizing.runs.quantisation import split

    reports = [options[f"{side}_trace"] for side, _ in _SIDES]
    check(outputs, [path for path in reports if path is not None])
    before, after = (_run(side, options) for side, _ in _SIDES)
    ratio = None
    if options["before_dtype"] is not None and options["after_dtype"] is not None:
        sizes = [bytes_per_value(options[f"{side}_dtype"]) for side, _ in _SIDES]
        ratio = sizes[1] / sizes[0]
    found = split(before, after, weight_ratio=ratio)
    document = {"before": before, "after": after, "weight_ratio": ratio, "split": found}
    answer = Answer(verb="size quant", document=document, write=lambda page: _write(page, found))
    deliver(answer, form, outputs)


def _run(side: str, options: dict[str, Any]) -> tuple[float, float]:
    """Throughput and memory utilisation of one run."""
    from tracekit.errors import UsageError

    rate, util, report = (options[f"{side}_{what}"] for what in ("rate", "util", "trace"))
    if report is not None and rate is None and util is None:
        return _recorded(report, options[f"{side}_steps"])
    if report is None and rate is not None and util is not None:
        return rate, util
    message = f"the run {side}: rate with utilisation, or a report"
    raise UsageError(message, hint=f"give --{side}-rate with --{side}-util, or --{side}-trace")


def _recorded(report: Path, text: str) -> tuple[float, float]:
    """Steps a second and DRAM activity of the one kind of step whose text holds `text`."""
    from tracekit.errors import InputError
    from tracekit.opening import open_trace
    from tracekit.sizing.measured.phases import phases

    with open_trace([report]) as trace:
        steps = [step for step in phases(trace) if text in step.group]
    names = ", ".join(sorted({step.group for step in steps}))
    if len(steps) != 1:
        message = f"{len(steps)} kinds of steps on GPUs match {text!r}"
        raise InputError(message, path=report, hint=names and f"choose one of: {names}")
    (one,) = steps
    if one.dram_frac is None:
        raise InputError(str(one.missing[0]), path=report)
    return 1 / one.time_s, one.dram_frac


def _write(page: Lines, found: Split) -> None:
    from tracekit.wording.numbers import ratio, share

    page.line(f"Speed-up {ratio(found.speedup)}", "bold")
    saved = 1 - found.bytes_ratio
    page.fields(
        [
            ("Bytes", f"{share(saved)} fewer a request: {ratio(found.bytes_factor)} of it"),
            ("Utilisation", f"{ratio(found.utilisation_factor)} of it"),
            (
                "Share",
                ""
                if found.bytes_share is None
                else f"{share(found.bytes_share)} of it by fewer bytes, on a logarithmic scale",
            ),
            (
                "Weights",
                ""
                if found.weight_share is None
                else f"{share(found.weight_share)} of the traffic before, if only weights shrank",
            ),
            *(("Unknown", str(one)) for one in found.missing),
        ]
    )
