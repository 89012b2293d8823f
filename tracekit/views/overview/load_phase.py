"""The load of a model, told from the steady state that follows."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tracekit.model.kernels import KernelKind
from tracekit.trace import Trace, view
from tracekit.views.device.activity import activity, clock_spans
from tracekit.views.launches.attribution import steps

__all__ = ["LoadPhase", "load_phase"]

_WORTH_SAYING = 0.2
_MOSTLY = 0.5
_SHOWN = 3


class LoadPhase(NamedTuple):
    """Device work before the steady state.

    Attributes:
        end_ns: When it ends, ns.
        frac: Share of the summed durations of all device work.
        before: Longest classes of work during the load, with their share of its time.
        after: The same of what follows.
        by_steps: Whether the first step tells its end, or the last repacking of weights.
    """

    end_ns: int
    frac: float
    before: tuple[tuple[str, float], ...]
    after: tuple[tuple[str, float], ...]
    by_steps: bool

    def words(self) -> str:
        """Return it as one sentence."""
        until = "the first step" if self.by_steps else "the last repacking of weights"
        return (
            f"{self.frac:.1%} of GPU time is load, before {until} ({_listed(self.before)});"
            f" the steady state after it: {_listed(self.after)}"
        )


@view(of=[activity, clock_spans, steps])
def load_phase(trace: Trace) -> LoadPhase | None:
    """Return the load phase; None where it takes no share worth saying, or cannot be told."""
    work = activity(trace)
    if work.is_empty() or clock_spans(trace)["clock"].n_unique() > 1:
        return None
    first = steps(trace)["gpu_start_ns"].min()
    by_steps = first is not None
    end = int(str(first)) if by_steps else _last_repack(work)
    if end is None:
        return None
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("time_ns")
    rows = work.select("kind", length, (pl.col("start_ns") < end).alias("early"))
    sums = rows.group_by("kind", "early").agg(pl.col("time_ns").sum())
    before, after = (sums.filter(pl.col("early") == early) for early in (True, False))
    load_ns, rest_ns = (int(part["time_ns"].sum()) for part in (before, after))
    if not rest_ns or load_ns < _WORTH_SAYING * (load_ns + rest_ns):
        return None
    frac = load_ns / (load_ns + rest_ns)
    return LoadPhase(end, frac, _shares(before), _shares(after), by_steps=by_steps)


def _last_repack(work: pl.DataFrame) -> int | None:
    """End of the repacking of weights, where that is most of what ran until then."""
    end = work.filter(pl.col("kind") == KernelKind.REPACK.value)["end_ns"].max()
    if end is None:
        return None
    early = work.filter(pl.col("start_ns") < end)
    length = early["end_ns"] - early["start_ns"]
    own = length.filter(early["kind"] == KernelKind.REPACK.value).sum()
    return int(str(end)) if own > _MOSTLY * int(length.sum()) else None


def _shares(sums: pl.DataFrame) -> tuple[tuple[str, float], ...]:
    total = int(sums["time_ns"].sum())
    top = sums.sort(["time_ns", "kind"], descending=[True, False]).head(_SHOWN)
    return tuple((str(kind), ns / total) for kind, ns in top.select("kind", "time_ns").iter_rows())


def _listed(shares: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{kind} {frac:.0%}" for kind, frac in shares)
