"""The load of a model, separate from the steady state that follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import KernelKind
from tracekit.numerics.rows.shares import by_kind
from tracekit.trace import Trace, view
from tracekit.views.device.activity import WORK_KIND, activity, clock_spans
from tracekit.views.launches.attribution import steps
from tracekit.wording.numbers import share

__all__ = ["LoadPhase", "load_phase"]

Int64: TypeAlias = NDArray[np.int64]
_KINDS = WORK_KIND.categories.to_list()
_LOADING = [_KINDS.index(KernelKind.REPACK.value), _KINDS.index("memcpy HtoD")]
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
        by_steps: Whether it ends at the first step, or at the last repacking of weights.
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
            f"{share(self.frac)} of GPU time is load, before {until} ({_listed(self.before)});"
            f" the steady state after it: {_listed(self.after)}"
        )


@view
def load_phase(trace: Trace) -> LoadPhase | None:
    """Return the load phase; None where it takes no share worth saying, or is not known.

    What comes before the first step is a load only where weights are copied or repacked in most of
    its time: it may as well be a prefill that nothing marks as a step.
    """
    work = activity(trace)
    if work.is_empty() or clock_spans(trace)["clock"].n_unique() > 1:
        return None
    first = steps(trace)["gpu_start_ns"].min()
    by_steps = first is not None
    end = int(str(first)) if by_steps else _last_repack(work)
    if end is None:
        return None
    before, after = np.zeros(len(_KINDS), np.int64), np.zeros(len(_KINDS), np.int64)
    for low, high in _of_gpus(work["gpu"]):
        begun = work["start_ns"].slice(low, high - low)
        first_after = low + int(np.searchsorted(begun.to_numpy(), end))
        before += _times(work.slice(low, first_after - low))
        after += _times(work.slice(first_after, high - first_after))
    load_ns, rest_ns = int(before.sum()), int(after.sum())
    if not rest_ns or load_ns < _WORTH_SAYING * (load_ns + rest_ns):
        return None
    if before[_LOADING].sum() <= _MOSTLY * load_ns:
        return None
    frac = load_ns / (load_ns + rest_ns)
    return LoadPhase(end, frac, _shares(before), _shares(after), by_steps=by_steps)


def _of_gpus(gpu: pl.Series) -> Iterator[tuple[int, int]]:
    """First and last row of each GPU: work is sorted by it."""
    low = 0
    for n in gpu.rle().struct.field("len"):
        yield low, low + n
        low += n


def _times(work: pl.DataFrame) -> Int64:
    """Summed durations of each kind of work, int64[kinds], ns."""
    start, end = (work[c].to_numpy() for c in ("start_ns", "end_ns"))
    return by_kind(start, end, work["kind"].to_physical().to_numpy(), len(_KINDS))[1]


def _last_repack(work: pl.DataFrame) -> int | None:
    """End of the repacking of weights, where that is most of what ran until then."""
    end = work.filter(pl.col("kind") == KernelKind.REPACK.value)["end_ns"].max()
    if end is None:
        return None
    early = work.filter(pl.col("start_ns") < end)
    length = early["end_ns"] - early["start_ns"]
    own = length.filter(early["kind"] == KernelKind.REPACK.value).sum()
    return int(str(end)) if own > _MOSTLY * int(length.sum()) else None


def _shares(time_ns: Int64) -> tuple[tuple[str, float], ...]:
    """The longest kinds and their shares."""
    top = np.argsort(-time_ns, kind="stable")[:_SHOWN]
    return tuple((_KINDS[i], int(time_ns[i]) / int(time_ns.sum())) for i in top if time_ns[i])


def _listed(shares: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{kind} {share(frac)}" for kind, frac in shares)
