"""Load, latency and DRAM activity from a server or from CSV, for ``tracekit slo``."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tracekit.sizing.slo import Samples
    from tracekit.sizing.tables import Table

__all__ = ["Length", "Moment", "from_csv", "from_server"]

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Length(click.ParamType[float]):
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


class Moment(click.ParamType[float]):
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


def from_server(url: str, options: dict[str, Any]) -> tuple[Samples, dict[str, object]]:
    """Return the series of a Prometheus server, and which they are.

    Raises:
        InputError: No answer, or no series of an engine.
    """
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


def from_csv(path: Path, dcgm: Path | None) -> Samples:
    """Return the series of a table, and of another one with DRAM activity on its own clock.

    Raises:
        InputError: A file cannot be used.
    """
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
