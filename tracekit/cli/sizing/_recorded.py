"""What reports and link counters recorded of traffic, read and written for ``size traffic``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.bounds.traffic import StepTraffic

__all__ = ["links", "recorded", "write_links", "write_recorded"]

Rows = list[dict[str, Any]]


def recorded(reports: tuple[Path, ...], steps: tuple[StepTraffic, ...]) -> tuple[Rows, Rows]:
    """Return all-reduce bytes of steps next to the prediction, and bandwidths of collectives."""
    if not reports:
        return [], []
    from tracekit.opening import open_trace
    from tracekit.sizing.measured.bandwidth import bus_bandwidths, step_traffic_of

    with open_trace(reports) as trace:
        traffic, bandwidth = step_traffic_of(trace).to_dicts(), bus_bandwidths(trace).to_dicts()
    for row in traffic:
        phase = "prefill" if "prefill" in row["group"].lower() else "decode"
        predicted = next((s.sent_bytes for s in steps if s.phase == phase), None)
        row["predicted_bytes_per_step"] = predicted
        row["of_predicted"] = None if predicted is None else row["sent_bytes_per_step"] / predicted
    return traffic, bandwidth


def links(path: Path | None) -> Rows:
    """Return the median rate of each GPU's link in each direction, from counters."""
    if path is None:
        return []
    import numpy as np

    from tracekit.errors import InputError
    from tracekit.sizing.runs.links import counter_rates
    from tracekit.sizing.tables import read_csv

    table = read_csv(path)
    names = [n for n in ("tx_kib", "rx_kib") if n in table.names]
    time = [np.nan if t is None else t for t in table.numbers("time_s")]
    if not names:
        message = "no column tx_kib or rx_kib"
        raise InputError(message, path=path)
    gpus = table.texts("gpu") if "gpu" in table.names else ["0"] * table.n_rows
    found = []
    for gpu in dict.fromkeys(gpus):
        at = [i for i, g in enumerate(gpus) if g == gpu]
        for name in names:
            column = [np.nan if v is None else v for v in table.numbers(name)]
            rates = counter_rates([time[i] for i in at], [column[i] for i in at])
            known = rates[np.isfinite(rates)]
            row = {"gpu": gpu, "direction": name.removesuffix("_kib"), "n": len(known)}
            row["n_lost"] = len(rates) - len(known)
            row["median_bytes_per_s"] = float(np.median(known)) if len(known) else None
            found.append(row)
    return found


def write_recorded(page: Lines, traffic: Rows, bandwidth: Rows) -> None:
    """Write what the steps sent, and how fast collectives were."""
    from tracekit.wording.names import shorten
    from tracekit.wording.numbers import count, ratio, significant, size

    page.line()
    if not traffic:
        page.line("No all-reduce with a recorded size inside steps: unknown what a step sends.")
    else:
        rows = [
            (
                shorten(r["group"], 40),
                f"{r['rank_id']}",
                count(r["n_steps"]),
                significant(r["all_reduces_per_step"]),
                size(r["sent_bytes_per_step"]),
                "unknown" if r["of_predicted"] is None else ratio(r["of_predicted"]),
            )
            for r in traffic
        ]
        heads = ("steps", "rank", "n", "all-reduces", "sent a step", "of prediction")
        page.columns(heads, rows, (False, *(True,) * 5), indent=2)
    _write_bandwidth(page, bandwidth)


def _write_bandwidth(page: Lines, bandwidth: Rows) -> None:
    from tracekit.wording.numbers import count, duration, rate, share, size

    page.line()
    if not bandwidth:
        page.line("No collective matched across ranks: its bandwidth is unknown, because with one")
        page.line("rank visible time includes waiting. Give the reports of all ranks.")
        return
    rows = [
        (
            r["device"],
            r["op"],
            size(r["bytes"]),
            f"{r['nranks']}",
            count(r["n"]),
            duration(r["transfer_ns"]),
            "unknown" if r["bus_gb_per_s"] is None else rate(r["bus_gb_per_s"] * 1e9),
            "unknown" if r["link_frac"] is None else share(r["link_frac"]),
        )
        for r in bandwidth
    ]
    heads = ("device", "collective", "message", "ranks", "n", "transfer", "bus", "of link")
    page.columns(heads, rows, (False, False, *(True,) * 6), indent=2)


def write_links(page: Lines, rates: Rows) -> None:
    """Write the rates of links."""
    from tracekit.wording.numbers import count, rate

    if not rates:
        return
    rows = [
        (
            r["gpu"],
            r["direction"],
            "unknown" if r["median_bytes_per_s"] is None else rate(r["median_bytes_per_s"]),
            count(r["n"]),
            count(r["n_lost"]),
        )
        for r in rates
    ]
    page.line()
    heads = ("GPU", "way", "median rate", "intervals", "lost")
    page.columns(heads, rows, (False, False, True, True, True), indent=2)
