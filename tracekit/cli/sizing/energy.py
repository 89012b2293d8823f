"""``tracekit size energy``: tokens a joule, from a counter, power samples or a power limit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, hardware_table, output_options
from tracekit.cli.sizing._load import hardware_option

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.runs.energy import Efficiency, Energy
    from tracekit.sizing.tables import Table

__all__ = ["command", "measured"]

_POSITIVE = click.FloatRange(min=0, min_open=True)
_TIMES = ("time_s", "timestamp_s", "timestamp")
_COUNTERS = {"energy_mj": 1.0, "total_energy_mj": 1.0, "energy_j": 1000.0}
_POWERS = (
    "power_w",
    "power.draw [W]",
    "power.draw.average [W]",
    "power.draw.instant [W]",
    "power.draw",
)
_DEVICES = ("gpu", "index", "uuid", "device")


@click.command("energy", short_help="Tokens a joule, measured; a power limit only as a bound.")
@click.argument("samples", metavar="[CSV]", type=PATH, required=False)
@click.option("--tokens", type=_POSITIVE, help="Tokens generated in the period.")
@click.option("--gpu", help="Bound instead of a measurement: name of the GPU.")
@click.option("--gpus", type=click.IntRange(min=1), default=1, help="Number of GPUs; for --gpu.")
@click.option("--seconds", type=_POSITIVE, help="Length of the period; for --gpu.")
@hardware_option
@output_options
def command(samples: Path | None, **options: Any) -> None:
    """Work out tokens a joule from samples of an energy counter or of power.

    CSV holds time_s and energy_mj (a counter) or power_w, or what `nvidia-smi
    --query-gpu=timestamp,index,power.draw --format=csv -lms 100` prints; a column tokens is a
    counter of generated tokens.
    """
    from tracekit.errors import UsageError
    from tracekit.sizing.runs.energy import efficiency, total

    outputs: tuple[Path, ...] = options["outputs"]
    check(outputs, [p for p in (samples, options["hardware"]) if p is not None])
    if (samples is None) == (options["gpu"] is None):
        message = "one source is needed"
        raise UsageError(message, hint="give a CSV of samples, or --gpu with --seconds")
    counter: tuple[Sequence[float], Sequence[float]] = ((), ())
    if samples is None:
        each = {"bound": _bound(options)}
    else:
        each, counter = measured(samples)
    found = total(list(each.values()))
    cost = efficiency(
        found, tokens=options["tokens"], token_time_s=counter[0], token_count=counter[1]
    )
    deliver(
        Answer(
            verb="size energy",
            document={"energy": found, "efficiency": cost, "devices": each},
            write=lambda page: _write(page, found, cost, len(each)),
        ),
        options["form"],
        outputs,
    )


def _bound(options: dict[str, Any]) -> Energy:
    from tracekit.errors import UsageError
    from tracekit.model.hardware import find
    from tracekit.sizing.runs.energy import from_limit

    if options["seconds"] is None:
        message = "a power limit needs a time"
        raise UsageError(message, hint="give --seconds")
    device = find(options["gpu"], hardware_table(options["hardware"]))
    return from_limit(device.tdp_w * options["gpus"], options["seconds"])


def measured(
    path: Path,
) -> tuple[dict[str, Energy], tuple[Sequence[float], Sequence[float]]]:
    """Return the energy of each device, and the token counter if there is one."""
    from tracekit.errors import InputError
    from tracekit.sizing.runs.energy import from_counter, from_power
    from tracekit.sizing.tables import read_csv

    table = read_csv(path)
    time = _times(table)
    counted, drawn = table.column(*_COUNTERS), table.column(*_POWERS)
    name = counted or drawn
    if name is None:
        message = "no column energy_mj (a counter) or power_w"
        raise InputError(message, path=path, hint=f"there are: {', '.join(table.names)}")
    values = _numbers(table, name, _COUNTERS.get(name, 1.0))
    device = table.column(*_DEVICES)
    devices = ["0"] * table.n_rows if device is None else table.texts(device)
    read = from_power if counted is None else from_counter
    found = {}
    for one in dict.fromkeys(devices):
        rows = [i for i, d in enumerate(devices) if d == one]
        try:
            found[one] = read([time[i] for i in rows], [values[i] for i in rows])
        except InputError as error:
            message = f"GPU {one}: {error.message}"
            raise InputError(message, path=path) from None
    return found, _tokens(table, time, devices)


def _tokens(
    table: Table, time: list[float], devices: list[str]
) -> tuple[Sequence[float], Sequence[float]]:
    """The token counter on the rows of the first device, which all devices repeat."""
    if table.column("tokens") is None:
        return (), ()
    counter = _numbers(table, "tokens", 1.0)
    rows = [i for i, d in enumerate(devices) if d == devices[0]]
    return [time[i] for i in rows], [counter[i] for i in rows]


def _numbers(table: Table, name: str, factor: float) -> list[float]:
    return [float("nan") if v is None else v * factor for v in table.numbers(name)]


def _times(table: Table) -> list[float]:
    from tracekit.errors import InputError

    name = table.column(*_TIMES)
    if name is None:
        message = "no column time_s or timestamp"
        raise InputError(message, path=table.path)
    if name != "timestamp":
        return _numbers(table, name, 1.0)
    found = []
    for line, text in enumerate(table.texts(name), 2):
        try:
            found.append(datetime.fromisoformat(text.replace("/", "-")).timestamp())
        except ValueError:
            message = f"line {line}, column 'timestamp': {text[:40]!r} is no date and time"
            raise InputError(message, path=table.path) from None
    return found


def _write(page: Lines, found: Energy, cost: Efficiency, n_devices: int) -> None:
    from tracekit.wording.numbers import duration, significant

    bound = found.source == "power limit"
    page.line(
        "Energy at the power limit: a bound, not a measurement" if bound else "Energy", "bold"
    )
    covered = f"{duration(found.covered_s * 1e9)} of {duration(found.span_s * 1e9)}"
    lost = []
    if found.n_resets:
        lost.append(f"the counter started anew {found.n_resets} time(s)")
    if found.n_gaps:
        lost.append(f"{found.n_gaps} gap(s) in the samples")
    pairs = [
        ("Source", f"{found.source}, {n_devices} device(s), {found.n_samples} samples"),
        ("Energy", f"{significant(found.joules)} J over {covered}"),
        ("Mean power", "unknown" if found.mean_w is None else f"{significant(found.mean_w)} W"),
        ("Lost", ", ".join(lost)),
    ]
    if cost.tokens_per_j is not None and cost.j_per_token is not None:
        least, most = ("at least ", "at most ") if bound else ("", "")
        text = f"{least}{significant(cost.tokens_per_j)} tokens/J, {most}"
        pairs.append(("Tokens", f"{text}{significant(cost.j_per_token)} J a token"))
    page.fields([*pairs, *(("Unknown", str(one)) for one in cost.missing)])
