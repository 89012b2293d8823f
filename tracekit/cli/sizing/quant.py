"""``tracekit size quant``: what a lower precision gained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.sizing._answer import Answer, check, deliver, output_options

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.runs.quantisation import Split

__all__ = ["command"]

_FORMATS = click.Choice(("fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4"))
_POSITIVE = click.FloatRange(min=0, min_open=True)
_UTIL = click.FloatRange(0, 1, min_open=True)


@click.command("quant", short_help="Split the speed-up of two runs: bytes saved, memory kept busy.")
@click.option("--before-rate", type=_POSITIVE, required=True, help="Throughput of the first run.")
@click.option("--after-rate", type=_POSITIVE, required=True, help="Throughput of the second run.")
@click.option("--before-util", type=_UTIL, required=True, help="Its memory utilisation, 0..1.")
@click.option("--after-util", type=_UTIL, required=True, help="Its memory utilisation, 0..1.")
@click.option("--before-dtype", type=_FORMATS, help="Format of the first run's weights.")
@click.option("--after-dtype", type=_FORMATS, help="Format of the second run's weights.")
@output_options
def command(
    before_rate: float,
    after_rate: float,
    before_util: float,
    after_util: float,
    before_dtype: str | None,
    after_dtype: str | None,
    outputs: tuple[Path, ...],
    form: str,
) -> None:
    """Split the speed-up from one run to another into bytes saved and utilisation gained.

    Both runs must be on the same device with the same load; rates are requests/s or tokens/s.
    """
    from tracekit.sizing.bounds.precision import bytes_per_value
    from tracekit.sizing.runs.quantisation import split

    check(outputs)
    ratio = None
    if before_dtype is not None and after_dtype is not None:
        ratio = bytes_per_value(after_dtype) / bytes_per_value(before_dtype)
    found = split((before_rate, before_util), (after_rate, after_util), weight_ratio=ratio)
    deliver(
        Answer(
            verb="size quant",
            document={"split": found, "weight_ratio": ratio},
            write=lambda page: _write(page, found),
        ),
        form,
        outputs,
    )


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
