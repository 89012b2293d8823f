"""``tracekit size traffic``: all-reduce bytes of tensor parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, hardware_table, output_options
from tracekit.cli.sizing._load import hardware_option, model_of
from tracekit.cli.sizing._recorded import links, recorded, write_links, write_recorded

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.bounds.traffic import Growth, StepTraffic

__all__ = ["command"]

_COUNT = click.IntRange(min=1)


@click.command("traffic", short_help="All-reduce bytes of a step, and how they grow.")
@click.option("--model", help="Built-in name, config.json, or its folder.")
@click.option("--tp", type=click.IntRange(min=2), help="Tensor-parallel GPUs.")
@click.option("--batch", type=_COUNT, default=1, show_default=True, help="Sequences a step.")
@click.option(
    "--prompt", type=_COUNT, default=2048, show_default=True, help="Tokens of one prompt."
)
@click.option(
    "--activation-dtype",
    type=click.Choice(("fp32", "bf16", "fp16", "fp8")),
    default="bf16",
    show_default=True,
    help="Format of the values that are reduced.",
)
@click.option("--all-reduces", type=_COUNT, help="All-reduces of a step; two a layer unless said.")
@click.option("--gpu", help="Name of the GPU: the time that its link takes at least.")
@click.option(
    "--runs",
    metavar="FILE",
    type=PATH,
    help="Measured runs as CSV: tokens (or batch and seq) and bytes or bytes_per_s.",
)
@click.option(
    "--trace",
    "reports",
    metavar="REPORT",
    type=PATH,
    multiple=True,
    help="Sizes and bandwidth that this report recorded; may be repeated, a rank each.",
)
@click.option(
    "--link-counters",
    metavar="FILE",
    type=PATH,
    help="Link counters as CSV: time_s, tx_kib, rx_kib, and gpu where there are several.",
)
@hardware_option
@output_options
def command(model: str | None, tp: int | None, **options: Any) -> None:
    """Show what each rank sends for all-reduces, and whether measured traffic grows linearly.

    Give a model with --tp for the prediction, --runs for measured growth, --trace for what a report
    recorded, --link-counters for the rates of a link; or several of them.
    """
    from tracekit.sizing import charts
    from tracekit.sizing.bounds.traffic import growth

    _check(model, tp, options)
    steps = () if model is None or tp is None else _predicted(model, tp, options)
    runs = None if options["runs"] is None else _runs(options["runs"])
    found = None if runs is None else growth(*runs)
    moved, rates = recorded(options["reports"], steps), links(options["link_counters"])

    def text(page: Lines) -> None:
        if steps:
            _prediction(page, steps, options["gpu"])
        if found is not None:
            _growth(page, found)
        if options["reports"]:
            write_recorded(page, *moved)
        write_links(page, rates)

    deliver(
        Answer(
            verb="size traffic",
            document={
                "model": model,
                "tp": tp,
                "predicted": steps,
                "growth": found,
                "recorded": moved[0],
                "bandwidth": moved[1],
                "links": rates,
            },
            write=text,
            chart=None if runs is None else lambda: charts.growth(*runs),
        ),
        options["form"],
        options["outputs"],
    )


def _check(model: str | None, tp: int | None, options: dict[str, Any]) -> None:
    """Refuse options that leave nothing to work out, and outputs that cannot be written."""
    from tracekit.errors import UsageError

    files = [options[name] for name in ("runs", "link_counters", "hardware")]
    check(options["outputs"], [p for p in (*files, *options["reports"]) if p is not None])
    measured = any((options["runs"], options["link_counters"], options["reports"]))
    if (model is None) != (tp is None) or (model is None and not measured):
        message = "nothing to work out"
        hint = "give --model with --tp, --runs FILE, --trace REPORT or --link-counters FILE"
        raise UsageError(message, hint=hint)


def _predicted(model: str, tp: int, options: dict[str, Any]) -> tuple[StepTraffic, ...]:
    from tracekit.model.hardware import find
    from tracekit.sizing.bounds.precision import bytes_per_value
    from tracekit.sizing.bounds.traffic import step_traffic

    shape = model_of(model, {})
    link = None
    if options["gpu"] is not None:
        one_way = find(options["gpu"], hardware_table(options["hardware"])).link_one_way_gb_per_s
        link = None if one_way is None else one_way * 1e9
    return tuple(
        step_traffic(
            shape,
            phase,
            tokens,
            tp,
            bytes_per_value=bytes_per_value(options["activation_dtype"]),
            n_all_reduces=options["all_reduces"],
            link_bytes_per_s=link,
        )
        for phase, tokens in (
            ("prefill", options["batch"] * options["prompt"]),
            ("decode", options["batch"]),
        )
    )


def _runs(path: Path) -> tuple[list[float], list[float]]:
    """Tokens and traffic of each measured run; rows that lack one are no runs."""
    from tracekit.errors import InputError
    from tracekit.sizing.tables import read_csv

    table = read_csv(path)
    measured = table.column("bytes", "bytes_per_s", "gb_per_s")
    if measured is None:
        message = "no column bytes, bytes_per_s or gb_per_s"
        raise InputError(message, path=path)
    if (tokens_name := table.column("tokens")) is not None:
        tokens = table.numbers(tokens_name)
    else:
        batches, lengths = table.numbers("batch"), table.numbers("seq")
        tokens = [
            None if b is None or s is None else b * s for b, s in zip(batches, lengths, strict=True)
        ]
    pairs = zip(tokens, table.numbers(measured), strict=True)
    known = [(t, m) for t, m in pairs if t is not None and m is not None]
    return [t for t, _ in known], [m for _, m in known]


def _prediction(page: Lines, steps: tuple[StepTraffic, ...], gpu: str | None) -> None:
    from tracekit.wording.numbers import count, duration, size

    page.line("Sent by each rank in one step", "bold")
    rows = [
        (
            s.phase,
            count(s.tokens),
            count(s.n_all_reduces),
            size(s.message_bytes),
            size(s.sent_bytes_each),
            size(s.sent_bytes),
            "unknown" if s.link_s is None else duration(s.link_s * 1e9),
        )
        for s in steps
    ]
    heads = ("phase", "tokens", "all-reduces", "message", "sent each", "sent", "link time >=")
    page.columns(heads, rows, (False, *(True,) * 6), indent=2)
    if gpu is None:
        page.line("The link is unknown: name the GPU with --gpu for its time.", indent=2)


def _growth(page: Lines, found: Growth) -> None:
    from tracekit.wording.numbers import significant

    page.line("Growth of measured traffic with tokens", "bold")
    pairs = [("Runs", f"{found.n}")]
    if found.exponent is not None:
        text = significant(found.exponent, 4)
        if found.low is not None and found.high is not None:
            text += f", 95 % interval {significant(found.low, 4)} to {significant(found.high, 4)}"
        pairs.append(("Exponent", text))
    pairs.append(("Verdict", found.verdict))
    page.fields([*pairs, *(("Unknown", str(one)) for one in found.missing)])
