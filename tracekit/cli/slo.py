"""``tracekit slo``: what request rate an objective allows."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, output_options

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tracekit.report.text import Lines
    from tracekit.sizing.slo import Limit, Samples, SloFit
    from tracekit.sizing.tables import Table

__all__ = ["command"]

_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class _Length(click.ParamType[float]):
    """A length of time such as ``2s``, ``6h``."""

    name = "TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        text = str(value)
        number = text.rstrip("smhd")
        unit = text[len(number) :]
        try:
            length = float(number) * _UNITS[unit]
        except (ValueError, KeyError):
            length = 0.0
        if not 0 < length < float("inf"):
            self.fail(f"{value!r} is no length of time such as 500ms, 2s or 6h", param, ctx)
        return length


class _Moment(click.ParamType[float]):
    """A date and time, or Unix seconds."""

    name = "WHEN"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return Unix seconds."""
        if isinstance(value, float):
            return value
        text = str(value)
        try:
            return float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
        except ValueError:
            self.fail(f"{value!r} is no date and time such as 2026-12-07T12:00:00Z", param, ctx)


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
    help="DRAM activity on its own clock, beside --csv: time_s, dram_active.",
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
@click.option("--objective", type=_Length(), help="Latency to keep, such as 2s.")
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
    "--since", type=_Length(), default=3600.0, help="Length of the period; 1h unless said."
)
@click.option("--until", type=_Moment(), help="End of the period; now unless said.")
@click.option("--match", metavar="LABELS", default="", help="Labels of the engine's series.")
@click.option("--gpu-match", metavar="LABELS", default="", help="Labels of DCGM's series.")
@click.option(
    "--rate-window", type=_Length(), default=60.0, help="Window of rates; 60s unless said."
)
@click.option("--any-order", is_flag=True, help="Accept load that rose and fell.")
@output_options
def fit(prometheus: str | None, table: Path | None, **options: Any) -> None:
    """Fit utilisation and latency over load; print the rate that objectives allow.

    Nothing is extrapolated: an objective that was never reached gives "at least" the largest rate
    observed.
    """
    from tracekit.errors import UsageError
    from tracekit.sizing.slo import fit_slo, levels_of

    outputs: tuple[Path, ...] = options["outputs"]
    check(outputs, [p for p in (table, options["dcgm_csv"]) if p is not None])
    if (prometheus is None) == (table is None):
        message = "one source is needed"
        raise UsageError(message, hint="give --prometheus URL or --csv FILE")
    if table is None and options["dcgm_csv"] is not None:
        message = "--dcgm-csv goes with --csv"
        raise UsageError(message)
    source: dict[str, object] = {"csv": None if table is None else f"{table}"}
    if table is not None:
        samples = _from_csv(table, options["dcgm_csv"])
    else:
        samples, source = _from_server(prometheus or "", options)
    found = fit_slo(
        levels_of(samples),
        latency_s=options["objective"],
        beta=options["headroom"],
        achievable_frac=options["achievable"],
        any_order=options["any_order"],
    )

    def text(page: Lines) -> None:
        _write(page, found, options, source)

    from tracekit.sizing import figures

    deliver(
        Answer(
            verb="slo fit",
            document={
                "source": source,
                "objective_s": options["objective"],
                "headroom": options["headroom"],
                "achievable_frac": options["achievable"],
                "fit": _document(found),
            },
            write=text,
            plot=lambda axes: figures.slo(found, options["objective"], axes),
            title="Latency over request rate",
        ),
        options["form"],
        outputs,
    )


def _document(found: SloFit) -> dict[str, object]:
    """The fit without the bootstrap's draws."""
    from dataclasses import fields

    document = {f.name: getattr(found, f.name) for f in fields(found)}
    if found.queue is not None:
        queue = found.queue
        names = [f.name for f in fields(queue) if f.name != "draws"]
        document["queue"] = {name: getattr(queue, name) for name in names}
    return document


def _from_server(url: str, options: dict[str, Any]) -> tuple[Samples, dict[str, object]]:
    from tracekit.sizing.slo.prometheus import Query, fetch

    end = time.time() if options["until"] is None else options["until"]
    found = fetch(
        Query(
            url=url,
            start_s=end - options["since"],
            end_s=end,
            latency=options["latency"],
            quantile=None if options["mean"] else options["quantile"],
            match=options["match"],
            gpu_match=options["gpu_match"],
            window_s=options["rate_window"],
        )
    )
    source = {"prometheus": url, "step_s": found.step_s, "window_s": found.window_s}
    return found.samples, {**source, "series": found.series}


def _from_csv(path: Path, dcgm: Path | None) -> Samples:
    import numpy as np

    from tracekit.sizing.slo import Samples
    from tracekit.sizing.tables import read_csv

    table = read_csv(path)
    nothing = np.full(table.n_rows, np.nan)
    time_s = _scaled(table, {"time_s": 1.0, "timestamp_s": 1.0})
    qps = _scaled(table, {"qps": 1.0})
    latency = _scaled(table, {"latency_s": 1.0, "latency_ms": 1e-3})
    if qps is None or latency is None:
        from tracekit.errors import InputError

        message = "needs the columns qps and latency_s (or latency_ms)"
        raise InputError(message, path=path)
    util = _scaled(table, {"dram_active": 1.0, "util_frac": 1.0, "dram_active_pct": 0.01})
    cache = _scaled(table, {"kv_cache": 1.0, "kv_cache_frac": 1.0, "kv_cache_pct": 0.01})
    clock = np.arange(table.n_rows, dtype=np.float64) if time_s is None else time_s
    cache = nothing if cache is None else cache
    if dcgm is not None:
        clock, (qps, latency, cache), util = _beside(path, time_s, (qps, latency, cache), dcgm)
    _check(path, clock, util)
    return Samples(clock, qps, latency, nothing if util is None else util, cache)


def _beside(
    path: Path,
    time_s: npt.NDArray[np.float64] | None,
    columns: tuple[npt.NDArray[np.float64], ...],
    dcgm: Path,
) -> tuple[npt.NDArray[np.float64], list[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    """Columns and DRAM activity on the clock of the coarser of the two files."""
    from tracekit.errors import InputError
    from tracekit.sizing.slo.levels import coarser
    from tracekit.sizing.tables import read_csv

    other = read_csv(dcgm)
    other_time = _scaled(other, {"time_s": 1.0, "timestamp_s": 1.0})
    activity = _scaled(other, {"dram_active": 1.0, "util_frac": 1.0, "dram_active_pct": 0.01})
    if time_s is None:
        message = "needs a column time_s to go with --dcgm-csv"
        raise InputError(message, path=path)
    if other_time is None or activity is None:
        message = "needs the columns time_s and dram_active"
        raise InputError(message, path=dcgm)
    joined = [coarser(time_s, column, other_time, activity) for column in columns]
    return joined[0][0], [one for _, one, _ in joined], joined[0][2]


def _scaled(table: Table, names: dict[str, float]) -> npt.NDArray[np.float64] | None:
    """The first of `names` that is a column, times its factor; NaN where a cell is empty."""
    import numpy as np

    name = table.column(*names)
    if name is None:
        return None
    values = [np.nan if v is None else v * names[name] for v in table.numbers(name)]
    return np.array(values, dtype=np.float64)


def _check(
    path: Path, clock: npt.NDArray[np.float64], util: npt.NDArray[np.float64] | None
) -> None:
    import numpy as np

    from tracekit.errors import InputError

    if np.isnan(clock).any() or np.any(np.diff(clock) <= 0):
        message = "column time_s does not rise from row to row"
        raise InputError(message, path=path)
    if util is not None and np.nanmax(util, initial=0.0) > 1:
        message = "column dram_active is above 1"
        raise InputError(message, path=path, hint="name it dram_active_pct if it is percent")


def _write(page: Lines, found: SloFit, options: dict[str, Any], source: dict[str, object]) -> None:
    from tracekit.wording.numbers import NOT_MEASURED, count, duration, share, significant

    page.line("Request rate that the objectives allow", "bold")
    page.fields(
        [
            ("Allowed", _limit(found.qps, "requests/s")),
            ("By latency", _limit(found.by_latency, "requests/s") if options["objective"] else ""),
            (
                "By headroom",
                _limit(found.by_headroom, "requests/s") if options["headroom"] is not None else "",
            ),
            ("Capacity", _capacity(found)),
            *(("Forbids", text) for text in found.guards),
            *(("Note", text) for text in found.notes),
            *(("Unknown", str(one)) for one in found.missing),
        ]
    )
    series = source.get("series")
    if isinstance(series, dict):
        names = ", ".join(f"{what} from {name}" for what, name in series.items() if name)
        page.fields([("Series", names)])
    left = {h.qps: h.beta for h in found.headroom}
    rows = [
        (
            significant(level.qps),
            duration(level.latency_s * 1e9),
            share(level.util_frac) if level.util_frac is not None else NOT_MEASURED,
            share(left.get(level.qps)),
            count(level.n),
        )
        for level in found.levels.levels
    ]
    if rows:
        page.line()
        heads = ("requests/s", "latency", "DRAM active", "headroom", "samples")
        page.columns(heads, rows, (True,) * 5, indent=2)


def _limit(limit: Limit | None, unit: str) -> str:
    from tracekit.wording.numbers import significant

    if limit is None:
        return "unknown"
    if limit.at_least:
        return f"at least {significant(limit.qps)} {unit}, the most that was observed"
    text = f"{significant(limit.qps)} {unit}"
    if limit.low_qps is not None and limit.high_qps is not None:
        low, high = significant(limit.low_qps), significant(limit.high_qps)
        text += f" (95 % interval {low} to {high})"
    return text


def _capacity(found: SloFit) -> str:
    from tracekit.wording.numbers import duration, significant

    queue = found.queue
    if queue is None or queue.capacity_qps is None:
        return "unknown"
    low, high = queue.capacity_low_qps, queue.capacity_high_qps
    ends = f"{significant(low or 0)} to {'unknown' if high is None else significant(high)}"
    return (
        f"{significant(queue.capacity_qps)} requests/s (95 % interval {ends}); without load"
        f" {duration(queue.base_s * 1e9)}"
    )
