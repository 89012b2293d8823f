"""``tracekit size roofline``: the bound of prefill and decode on one GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import (
    PATH,
    Answer,
    deliver,
    hardware_table,
    output_options,
)
from tracekit.cli.sizing._load import (
    check_inputs,
    hardware_option,
    load_options,
    model_lines,
    model_of,
    workload_of,
)

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.bounds.against_bound import AgainstBound
    from tracekit.sizing.bounds.roofline import Phase
    from tracekit.sizing.bounds.workload import Assessment, Claim, Target
    from tracekit.sizing.measured.phases import MeasuredPhase

__all__ = ["command"]

_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command("roofline", short_help="Bytes, FLOPs, time and bound of prefill and decode.")
@click.option("--model", required=True, help="Built-in name, config.json, or its folder.")
@click.option("--gpu", required=True, help="Name of the GPU.")
@load_options
@click.option(
    "--achievable-bw",
    metavar="GB/S",
    type=_POSITIVE,
    help="Measured memory bandwidth in place of the published peak.",
)
@click.option("--target-ms", type=_POSITIVE, help="Wanted time per output token, milliseconds.")
@click.option(
    "--trace",
    "reports",
    metavar="REPORT",
    type=PATH,
    multiple=True,
    help="Put the steps of this report next to the prediction; may be repeated, a rank each.",
)
@click.option("--claim", type=_POSITIVE, help="Claimed decode rate to check, tokens/s.")
@hardware_option
@output_options
def command(model: str, gpu: str, **options: Any) -> None:
    """Show what prefill and decode of a model can at most reach on a GPU.

    Times are lower bounds: activations, communication and launch gaps are not counted.
    """
    from tracekit.model.hardware import find
    from tracekit.sizing import charts
    from tracekit.sizing.bounds.workload import assess, claim, target

    outputs: tuple[Path, ...] = options["outputs"]
    check_inputs(model, options)
    devices = hardware_table(options["hardware"])
    shape, device = model_of(model, options), find(gpu, devices)
    load = workload_of(shape, options)
    found = assess(shape, device, load, achievable_gb_per_s=options["achievable_bw"])
    target_ms, claimed = options["target_ms"], options["claim"]
    wanted = None if target_ms is None else target(found, target_ms / 1e3, devices)
    said = None if claimed is None else claim(found, claimed)
    ran = _measured(options["reports"], found)

    def text(page: Lines) -> None:
        page.line(f"{shape.name} on {found.device}", "bold")
        model_lines(page, shape, load)
        _peaks(page, found)
        _phases(page, (found.prefill, found.decode))
        _verdicts(page, found, wanted, said)
        _comparison(page, ran)

    document: dict[str, Any] = {"model": shape, "workload": load, "assessment": found}
    document |= {"target": wanted, "claim": said}
    document["measured"] = [{"step": one, "bound": other} for one, other in ran]
    deliver(
        Answer(
            verb="size roofline",
            document=document,
            write=text,
            chart=lambda: charts.roofline(found, shape.name),
        ),
        options["form"],
        outputs,
    )


def _measured(
    reports: tuple[Path, ...], found: Assessment
) -> list[tuple[MeasuredPhase, AgainstBound | None]]:
    """Steps of the reports, with the comparison where their text names the phase."""
    if not reports:
        return []
    from tracekit.opening import open_trace
    from tracekit.sizing.bounds.against_bound import against_bound
    from tracekit.sizing.measured.phases import phases

    bounds = {"prefill": found.prefill, "decode": found.decode}
    with open_trace(reports) as trace:
        steps = phases(trace)
    return [
        (
            step,
            None
            if step.phase is None
            else against_bound(
                bounds[step.phase], step.time_s, step.dram_bytes, found.peak.gb_per_s * 1e9
            ),
        )
        for step in steps
    ]


def _comparison(page: Lines, ran: list[tuple[MeasuredPhase, AgainstBound | None]]) -> None:
    from tracekit.wording.names import shorten
    from tracekit.wording.numbers import count, duration, rate, ratio, size

    if not ran:
        return
    page.line()
    page.line("Measured next to the bound, per step and GPU", "bold")
    rows = []
    for step, other in ran:
        moved = None if other is None else other.bytes_ratio
        rows.append(
            (
                shorten(step.group, 40),
                f"{step.gpu}",
                count(step.n_steps),
                duration(step.time_s * 1e9),
                "unknown" if other is None else ratio(other.time_ratio),
                "unknown" if step.dram_bytes is None else size(step.dram_bytes),
                "unknown" if moved is None else ratio(moved),
                "unknown" if step.dram_bytes_per_s is None else rate(step.dram_bytes_per_s),
            )
        )
    heads = ("steps", "GPU", "n", "median time", "of bound", "bytes", "of bound", "bandwidth")
    page.columns(heads, rows, (False, *(True,) * 7), indent=2)
    for step, other in ran:
        text = "the text of the steps names no phase (prefill, decode)"
        if other is not None:
            text = ": ".join((other.verdict, "; ".join(other.reasons))).removesuffix(": ")
        missing = "".join(f"; {one}" for one in step.missing)
        page.bullet(f"GPU {step.gpu}, {shorten(step.group, 40)}: {text}{missing}", indent=2)


def _peaks(page: Lines, found: Assessment) -> None:
    from tracekit.wording.numbers import rate, significant

    source = {"user": "measured by you", "table": "published peak", "device": "device's own"}
    checked = "" if found.peak.verified else ", not checked against a primary source"
    memory = f"{rate(found.peak.gb_per_s * 1e9)} ({source[found.peak.source]}{checked})"
    compute = (
        "unknown"
        if found.flop_per_s is None
        else f"{significant(found.flop_per_s / 1e12)} TFLOPS dense"
    )
    page.fields([("Peaks", f"memory {memory}; compute {compute}")])


def _phases(page: Lines, phases: tuple[Phase, ...]) -> None:
    from tracekit.wording.numbers import duration, significant, size

    rows = []
    for phase in phases:
        time = "unknown" if phase.time_s is None else duration(phase.time_s * 1e9)
        speed = "unknown" if phase.tokens_per_s is None else significant(phase.tokens_per_s)
        rows.append(
            (
                phase.name,
                phase.bound,
                time,
                speed,
                size(phase.bytes),
                f"{significant(phase.flops / 1e12)} T",
                significant(phase.intensity),
            )
        )
    page.line()
    heads = ("phase", "bound by", "time >=", "tokens/s <=", "bytes/GPU", "FLOP/GPU", "FLOP/byte")
    page.columns(heads, rows, (False, False, True, True, True, True, True), indent=2)
    if phases[0].ridge is not None:
        page.line(
            f"The device turns from memory to compute bound at"
            f" {significant(phases[0].ridge)} FLOP/byte.",
            indent=2,
        )


def _verdicts(page: Lines, found: Assessment, wanted: Target | None, said: Claim | None) -> None:
    from tracekit.wording.numbers import count, duration, rate, significant, size

    room = found.capacity
    fits = "fit" if room.fits else "do not fit"
    page.line()
    pairs = [
        (
            "Memory",
            f"{size(room.weight_bytes)} of weights and {size(room.cache_bytes)} of cache {fits}"
            f" into {size(room.allowed_bytes)} of a GPU; {count(room.max_batch)} sequences would",
        )
    ]
    if found.balance_batch is not None:
        text = f"weights alone turn compute bound at batch {significant(found.balance_batch)}"
        pairs.append(("Batch", text))
    if wanted is not None:
        met = {True: "met at best", False: "cannot be met", None: "unknown"}[wanted.met]
        text = (
            f"{duration(wanted.target_s * 1e9)} a token takes {rate(wanted.needed_bytes_per_s)} a"
            f" GPU: {met} here; enough: {', '.join(wanted.enough) or 'none of the table'}"
        )
        pairs.append(("Target", text))
    if said is not None:
        bound = said.bound_tokens_per_s
        text = f"{significant(said.tokens_per_s)} tokens/s is {said.verdict}"
        if bound is not None:
            text += f": the bound is {significant(bound)} tokens/s"
        pairs.append(("Claim", text))
    pairs += [("Unknown", str(one)) for one in found.missing]
    page.fields(pairs)
