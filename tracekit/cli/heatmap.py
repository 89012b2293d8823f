"""``tracekit heatmap``: memory and link utilisation of every GPU over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.shell.options import WINDOW
from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, output_options

if TYPE_CHECKING:
    import polars as pl

    from tracekit.report.text import Lines
    from tracekit.sizing.measured.heatmap import Heatmap

__all__ = ["command"]

_CXL = "CXL traffic is not measurable from these inputs: needs counters of the host's root ports"


@click.command("heatmap", short_help="Memory and link utilisation of every GPU over time.")
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True, type=PATH)
@click.option(
    "--bin-ms",
    type=click.FloatRange(min=0, min_open=True),
    help="Length of a bin, milliseconds; at least ten sampling periods.",
)
@click.option(
    "--bins", type=click.IntRange(min=1), default=200, show_default=True, help="Number of bins."
)
@click.option("--window", type=WINDOW, help="Look only at this part of the session.")
@click.option(
    "--pcie-gen",
    type=click.IntRange(3, 5),
    help="Generation of the x16 host link, to compare copies with its peak.",
)
@output_options
def command(reports: tuple[Path, ...], **options: Any) -> None:
    """Show how busy memory, NVLink and PCIe of every GPU are over time.

    Also the rates that the counters mean, and how evenly copies over PCIe run for each process.
    """
    from tracekit.model.hardware import pcie_gb_per_s
    from tracekit.opening import OpenOptions, open_trace
    from tracekit.sizing import charts
    from tracekit.sizing.measured.copies import tenants
    from tracekit.sizing.measured.heatmap import heatmap

    check(options["outputs"], reports)
    generation, length = options["pcie_gen"], options["bin_ms"]
    peak = None if generation is None else pcie_gb_per_s(generation) * 1e9
    with open_trace(reports, options=OpenOptions(window_ns=options["window"])) as trace:
        bin_ns = None if length is None else round(length * 1e6)
        found = heatmap(trace, bin_ns=bin_ns, bins=options["bins"])
        copies = tenants(trace, peak_bytes_per_s=peak)

    def text(page: Lines) -> None:
        _totals(page, found)
        _copies(page, copies)

    deliver(
        Answer(
            verb="heatmap",
            document={
                "bin_ns": found.bin_ns,
                "cells": found.cells.to_dicts(),
                "totals": found.totals.to_dicts(),
                "silent": found.silent,
                "without": found.without,
                "copies": copies.to_dicts(),
                "unknown": [_CXL],
            },
            write=text,
            chart=lambda: charts.heatmap(found.cells.to_dicts()),
            csv=lambda: found.cells.write_csv(),
        ),
        options["form"],
        options["outputs"],
    )


def _totals(page: Lines, found: Heatmap) -> None:
    from tracekit.wording.numbers import duration, rate, share

    page.line(f"Utilisation in bins of {duration(found.bin_ns)}", "bold")
    rows = [
        (
            f"{row['gpu']}",
            row["group"],
            share(row["mean_frac"]),
            share(row["busiest_frac"]),
            "unknown" if row["mean_bytes_per_s"] is None else rate(row["mean_bytes_per_s"]),
            share(row["coverage_frac"]),
        )
        for row in found.totals.iter_rows(named=True)
    ]
    heads = ("GPU", "counter", "mean", "busiest bin", "mean rate", "covered")
    page.columns(heads, rows, (True, False, True, True, True, True), indent=2)
    silent = ", ".join(
        f"GPU {gpu} {name.removesuffix(' [Throughput %]')}" for gpu, name in found.silent
    )
    page.fields(
        [
            ("Zero", f"{silent}: idle, or a partitioned GPU" if silent else ""),
            ("No counters", ", ".join(f"GPU {gpu}" for gpu in found.without)),
            ("Unknown", _CXL),
        ]
    )


def _copies(page: Lines, copies: pl.DataFrame) -> None:
    from tracekit.wording.numbers import count, duration, rate, share

    if copies.is_empty():
        return
    page.line()
    page.line("Copies between host and device, by process", "bold")
    rows = []
    for row in copies.iter_rows(named=True):
        tail = duration(row["jitter_ns_per_mb"])
        rows.append(
            (
                f"{row['pid']}",
                f"{row['gpu']}",
                row["direction"],
                count(row["n"]),
                count(row["n_small"]),
                rate(row["median_bytes_per_s"]),
                f"{tail} *" if row["insufficient_n"] and row["n"] else tail,
                share(row["drop_frac"]),
            )
        )
    heads = ("process", "GPU", "way", "copies", "small", "median rate", "jitter a MB", "below peak")
    page.columns(heads, rows, (True, True, False, *(True,) * 5), indent=2)
    page.line(
        "Jitter is P99 - P50; * of fewer than 100 copies. Small: below 1 MiB, not rated.", indent=2
    )
