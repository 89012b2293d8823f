"""``tracekit size select``: devices for a model and its objectives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import Answer, deliver, hardware_table, output_options
from tracekit.cli.sizing._load import (
    check_inputs,
    hardware_option,
    load_options,
    model_lines,
    model_of,
    workload_of,
)

if TYPE_CHECKING:
    from tracekit.model.hardware import Hardware
    from tracekit.report.text import Lines
    from tracekit.sizing.choice.selection import Candidate, Constraint, Objectives

__all__ = ["command"]

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_POSITIVE = click.FloatRange(min=0, min_open=True)


class _Times(click.ParamType[tuple[str, float]]):
    """``NAME=TIME``, such as ``tpot=20ms``."""

    def __init__(self, name: str, names: str, example: str) -> None:
        self.name = name
        self._form = re.compile(rf"({names})=(\d+(?:\.\d+)?)(us|ms|s)")
        self._example = example

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Return (name, seconds)."""
        if isinstance(value, tuple):
            return value
        match = self._form.fullmatch(str(value))
        if match is None or not float(match[2]):
            self.fail(f"{value!r} is not {self.name}, such as {self._example!r}", param, ctx)
        return match[1], float(match[2]) * _SECONDS[match[3]]


_OBJECTIVE = _Times("tpot|ttft|p99=TIME", "tpot|ttft|p99", "tpot=20ms")
_MEASURED = _Times("GPU=TIME", ".+", "H200 SXM=850ms")


@click.command("select", short_help="Rank devices for a model; say what rules the others out.")
@click.option("--model", required=True, help="Built-in name, config.json, or its folder.")
@click.option(
    "--slo",
    "slos",
    type=_OBJECTIVE,
    multiple=True,
    help="Objective: tpot, ttft or p99 with a time, such as tpot=20ms; may be repeated.",
)
@load_options
@click.option(
    "--output-tokens",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Tokens that a request produces; for p99.",
)
@click.option(
    "--measured-p99",
    "measured",
    type=_MEASURED,
    multiple=True,
    help="Measured P99 of a request on a GPU; may be repeated.",
)
@click.option("--max-watts", type=_POSITIVE, help="Power limit of the GPUs of one instance.")
@click.option("--max-usd-per-hour", type=_POSITIVE, help="Price limit of one instance.")
@click.option(
    "--max-gpus",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Largest instance to try; sizes double from --tp.",
)
@click.option(
    "--rank-by",
    type=click.Choice(("tokens_per_s", "tokens_per_j", "price")),
    default="tokens_per_s",
    show_default=True,
    help="Order of what is left; rates count per GPU.",
)
@hardware_option
@output_options
def command(model: str, **options: Any) -> None:
    """Rank devices for a model and its objectives, with the failing constraint of each other one.

    A bound rules out for certain and never rules in: what it allows is `possible` until measured.
    """
    from tracekit.sizing.choice.selection import select

    outputs: tuple[Path, ...] = options["outputs"]
    check_inputs(model, options)
    devices = hardware_table(options["hardware"])
    shape = model_of(model, options)
    load = workload_of(shape, options)
    wanted = _objectives(options, devices)
    order, most = options["rank_by"], options["max_gpus"]
    found = select(shape, devices, load, wanted, max_gpus=most, rank_by=order)

    def text(page: Lines) -> None:
        page.line(f"GPUs for {shape.name}", "bold")
        model_lines(page, shape, load)
        _kept(page, [c for c in found if not c.rejected])
        _rejected(page, [c for c in found if c.rejected])

    deliver(
        Answer(
            verb="size select",
            document={
                "model": shape,
                "workload": load,
                "objectives": wanted,
                "rank_by": order,
                "candidates": found,
            },
            write=text,
        ),
        options["form"],
        outputs,
    )


def _objectives(options: Mapping[str, Any], devices: Sequence[Hardware]) -> Objectives:
    from tracekit.model.hardware import find
    from tracekit.sizing.choice.selection import Objectives

    limits = dict(options["slos"])
    return Objectives(
        tpot_s=limits.get("tpot"),
        ttft_s=limits.get("ttft"),
        p99_s=limits.get("p99"),
        output_tokens=options["output_tokens"],
        max_w=options["max_watts"],
        max_usd_per_hour=options["max_usd_per_hour"],
        measured_p99_s={find(gpu, devices).key: s for gpu, s in options["measured"]},
    )


def _kept(page: Lines, found: list[Candidate]) -> None:
    from tracekit.wording.numbers import significant

    page.line()
    if not found:
        page.line("No device is left.", "bold")
        return
    rows = []
    for candidate in found:
        open_ones = [c.name for c in candidate.constraints if c.verdict in ("possible", "unknown")]
        numbers = (
            candidate.tokens_per_s,
            candidate.tokens_per_j,
            candidate.usd_per_million_tokens,
        )
        shown = ("unknown" if n is None else significant(n) for n in numbers)
        rows.append((candidate.device, f"{candidate.gpus}", *shown, ", ".join(open_ones) or "-"))
    heads = ("device", "GPUs", "tokens/s <=", "tokens/J <=", "USD/M tokens >=", "to be measured")
    page.columns(heads, rows, (False, True, True, True, True, False), indent=2)
    page.line("Rates are bounds; tokens/J takes the power limit, not a measurement.", indent=2)


def _rejected(page: Lines, found: list[Candidate]) -> None:
    if not found:
        return
    page.line()
    page.line("Ruled out", "bold")
    for candidate in found:
        reasons = [_reason(c) for c in candidate.constraints if c.verdict == "failed"]
        text = "; ".join(reasons) or candidate.note
        page.bullet(f"{candidate.device} ({candidate.gpus} GPU(s)): {text}", indent=2)


def _reason(failed: Constraint) -> str:
    from tracekit.wording.numbers import duration, quantity

    def shown(value: float | None) -> str:
        if value is None:
            return "too much by its memory alone"
        return duration(value * 1e9) if failed.unit == "s" else quantity(value, failed.unit)

    what = {"bound": "at least ", "measured": "measured ", "figure": ""}[failed.kind]
    return f"{failed.name}: {what}{shown(failed.value)}, allowed {shown(failed.limit)}"
