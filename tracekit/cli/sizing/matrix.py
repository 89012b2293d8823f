"""``tracekit size matrix``: what runs reached, side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, output_options

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.runs.matrix import About, Row
    from tracekit.sizing.runs.stability import Stability

__all__ = ["command"]

_UNSURE = 0.5


@click.command("matrix", short_help="Runs side by side: TFLOPS, bandwidth, P99, power, tokens/J.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=PATH)
@click.option(
    "--about",
    "about_file",
    metavar="FILE",
    type=PATH,
    help="What runs were, as CSV: run (file name), model, dtype, batch, context, tp, power_csv.",
)
@click.option(
    "--requests",
    metavar="FILE",
    type=PATH,
    multiple=True,
    help="Records of requests as CSV: time_s and latency_s (or latency_ms); may be repeated.",
)
@output_options
def command(
    runs: tuple[Path, ...],
    about_file: Path | None,
    requests: tuple[Path, ...],
    outputs: tuple[Path, ...],
    form: str,
) -> None:
    """Put what runs reached side by side, each number with n and confidence.

    A RUN is a report, or a folder with the reports of its ranks. Request records show how stable a
    load was.
    """
    from tracekit.errors import UsageError
    from tracekit.sizing import charts
    from tracekit.sizing.runs.matrix import as_table

    check(outputs, [*runs, *requests, *([about_file] if about_file else [])])
    if not runs and not requests:
        message = "nothing to compare"
        raise UsageError(message, hint="give RUNs, or --requests FILE")
    known = {} if about_file is None else _about(about_file)
    if strange := sorted(set(known) - {run.name for run in runs}):
        message = f"--about names no RUN {strange[0]!r}"
        raise UsageError(message, hint=f"there are: {', '.join(run.name for run in runs)}")
    rows = [row for run in runs for row in _rows(run, known.get(run.name, {}), about_file)]
    loads = {path.name: _stability(path) for path in requests}

    def text(page: Lines) -> None:
        _matrix(page, rows)
        _loads(page, loads)

    deliver(
        Answer(
            verb="size matrix",
            document={"rows": rows, "loads": loads},
            write=text,
            chart=lambda: charts.matrix(rows),
            csv=lambda: _csv(as_table(rows)),
        ),
        form,
        outputs,
    )


def _about(path: Path) -> dict[str, dict[str, str]]:
    """Cells of each run by its file name."""
    from tracekit.sizing.tables import read_csv

    table = read_csv(path)
    columns = {name: table.texts(name) for name in table.names}
    runs = table.texts("run")
    return {run: {name: columns[name][i] for name in columns} for i, run in enumerate(runs)}


def _rows(run: Path, given: dict[str, str], about_file: Path | None) -> list[Row]:
    from tracekit.opening import open_trace
    from tracekit.sizing.measured.phases import phases
    from tracekit.sizing.runs.matrix import Seen, row

    with open_trace([run]) as trace:
        steps = phases(trace)
    return [
        row(
            run.name,
            step.device,
            step.gpu,
            step.group,
            Seen(
                n_steps=step.n_steps,
                p50_s=step.time_s,
                p99_s=step.p99_s,
                dram_frac=step.dram_frac,
                coverage_frac=step.coverage_frac,
            ),
            _known(given, step.phase, about_file),
        )
        for step in steps
    ]


def _known(given: dict[str, str], phase: str | None, about_file: Path | None) -> About:
    """What `given` says of steps of a phase; FLOPs and tokens only where the phase is known."""
    from tracekit.cli.sizing._load import model_of
    from tracekit.sizing.bounds.roofline import Setting, decode, prefill
    from tracekit.sizing.runs.matrix import About

    numbers = {name: _count(given, name) for name in ("batch", "context", "tp")}
    batch, context, tp = numbers["batch"], numbers["context"], numbers["tp"] or 1
    flops = tokens = None
    if batch is not None and phase is not None:
        tokens = float(batch if phase == "decode" else batch * (context or 0)) or None
    if given.get("model") and batch is not None and context is not None and phase is not None:
        count = decode if phase == "decode" else prefill
        # Only FLOPs are wanted; they rest on no format and no peak.
        setting = Setting(
            weight_bytes_per_value=2,
            cache_bytes_per_value=2,
            dram_bytes_per_s=1.0,
            flop_per_s=None,
            tp=tp,
        )
        flops = count(model_of(given["model"], {}), [context] * batch, setting).flops
    power = _power(given.get("power_csv", ""), about_file)
    return About(
        model=given.get("model") or None,
        dtype=given.get("dtype") or None,
        batch=batch,
        context=context,
        flops_per_step=flops,
        tokens_per_step=tokens,
        gpus=tp,
        mean_w=power[0],
        power_samples=power[1],
    )


def _count(given: dict[str, str], name: str) -> int | None:
    from tracekit.errors import InputError

    text = given.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or not int(text):
        message = f"--about: {name} is {text!r}, not a positive whole number"
        raise InputError(message)
    return int(text)


def _power(name: str, about_file: Path | None) -> tuple[float | None, int]:
    """Mean power of one GPU from a file next to the one that names it, and its samples."""
    if not name or about_file is None:
        return None, 0
    from tracekit.cli.sizing.energy import measured

    each, _ = measured(about_file.parent / name)
    means = [one.mean_w for one in each.values() if one.mean_w is not None]
    n_samples = sum(one.n_samples for one in each.values())
    return (sum(means) / len(means) if means else None), n_samples


def _stability(path: Path) -> Stability:
    from tracekit.errors import InputError
    from tracekit.sizing.runs.stability import stability
    from tracekit.sizing.tables import read_csv

    table = read_csv(path)
    name = table.column("latency_s", "latency_ms")
    if name is None:
        message = "no column latency_s or latency_ms"
        raise InputError(message, path=path)
    factor = 1e-3 if name.endswith("_ms") else 1.0
    absent = float("nan")
    time = [absent if v is None else v for v in table.numbers("time_s")]
    latency = [absent if v is None else v * factor for v in table.numbers(name)]
    try:
        return stability(time, latency)
    except InputError as error:
        raise InputError(error.message, path=path) from None


def _csv(table: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    if table:
        writer = csv.DictWriter(out, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return out.getvalue()


def _matrix(page: Lines, rows: list[Row]) -> None:
    from tracekit.wording.names import shorten
    from tracekit.wording.numbers import count, duration, share, significant

    if not rows:
        return
    page.line("Runs, per kind of step and GPU", "bold")

    def shown(one: Row, name: str) -> str:
        cell = one.cells[name]
        if cell.value is None:
            return "unknown"
        text = significant(cell.value)
        if name.endswith("_s") and not name.startswith("tokens"):
            text = duration(cell.value * 1e9)
        elif name.endswith("_frac"):
            text = share(cell.value)
        return text if cell.confidence >= _UNSURE else f"{text} ?"

    columns = ("effective_tflops", "dram_frac", "p99_s", "mean_w", "tokens_per_s", "tokens_per_j")
    table = [
        (
            shorten(one.run, 30),
            shorten(one.group, 30),
            f"{one.gpu}",
            count(one.cells["p50_s"].n),
            *(shown(one, name) for name in columns),
        )
        for one in rows
    ]
    heads = ("run", "steps", "GPU", "n", "TFLOPS", "DRAM", "P99", "W", "tokens/s", "tokens/J")
    page.columns(heads, table, (False, False, *(True,) * 8), indent=2)
    page.line("? rests on too few steps or samples (confidence below 0.5).", indent=2)
    needs = {str(m): None for one in rows for m in one.missing}
    page.fields(("Unknown", text) for text in needs)


def _loads(page: Lines, loads: dict[str, Stability]) -> None:
    from tracekit.wording.names import shorten
    from tracekit.wording.numbers import count, duration, share, significant

    if not loads:
        return
    page.line()
    page.line("Load stability, from request records", "bold")
    rows = []
    for name, load in loads.items():
        tail = duration(load.p99.value * 1e9)
        drift = load.drift_ms_per_min
        rows.append(
            (
                shorten(name, 30),
                count(load.n),
                duration(load.mean_s * 1e9),
                share(load.cv),
                duration(load.p50.value * 1e9),
                duration(load.p95.value * 1e9),
                f"{tail} ?" if load.p99.insufficient_n else tail,
                "unknown" if drift is None else f"{significant(drift)} ms/min",
            )
        )
    heads = ("records", "n", "mean", "CV", "P50", "P95", "P99", "drift")
    page.columns(heads, rows, (False, *(True,) * 7), indent=2)
