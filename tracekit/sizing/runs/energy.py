"""Energy of a run from a counter or from power samples, and what its tokens cost.

An energy counter (NVML field 83, ``DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION``) counts millijoules since
the driver was loaded and starts anew with it; a fall splits the series. Power samples are
integrated by the trapezoidal rule where they follow each other closely. A power limit is a bound,
never a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.errors import InputError
from tracekit.sizing.unknown import Missing

__all__ = [
    "Efficiency",
    "Energy",
    "efficiency",
    "from_counter",
    "from_limit",
    "from_power",
    "total",
]

_GAP = 3.0
"""An interval longer than this many medians has lost samples."""
_COMPLETE_FRAC = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy over a period.

    Attributes:
        joules: Energy of the covered time.
        span_s: From the first sample to the last.
        covered_s: Time that the energy is known for.
        mean_w: Mean power over the covered time; None if there is none.
        source: ``counter``, ``power samples`` or ``power limit`` (an upper bound).
        n_samples: Samples used.
        n_resets: Falls of the counter: the energy around each is not known.
        n_gaps: Intervals with lost samples.
        pieces: Covered stretches as (start, end), seconds.
    """

    joules: float
    span_s: float
    covered_s: float
    mean_w: float | None
    source: str
    n_samples: int
    n_resets: int = 0
    n_gaps: int = 0
    pieces: tuple[tuple[float, float], ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the energy covers nearly all of the period."""
        return self.span_s > 0 and self.covered_s >= _COMPLETE_FRAC * self.span_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What tokens cost.

    Attributes:
        tokens: Tokens of the covered time; None if unknown.
        tokens_per_j: Tokens a joule; a lower bound where the source is a power limit; None if
            unknown.
        j_per_token: Joules a token; None if unknown.
        source: As of the energy.
        missing: What is not known, and what it would take.
    """

    tokens: float | None
    tokens_per_j: float | None
    j_per_token: float | None
    source: str
    missing: tuple[Missing, ...] = ()


def _series(
    time_s: npt.ArrayLike, values: npt.ArrayLike, what: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    time, value = np.asarray(time_s, np.float64), np.asarray(values, np.float64)
    known = np.isfinite(time) & np.isfinite(value)
    time, value = time[known], value[known]
    if len(time) < 2:
        message = f"{what}: fewer than two samples with a number"
        raise InputError(message)
    if np.any(np.diff(time) <= 0):
        message = f"{what}: times do not rise"
        raise InputError(message)
    if np.any(value < 0):
        message = f"{what}: a value is negative"
        raise InputError(message)
    return time, value


def _pieces(
    time: npt.NDArray[np.float64], joined: npt.NDArray[np.bool_]
) -> tuple[tuple[float, float], ...]:
    """Stretches whose samples are all joined to their successors."""
    edges = np.flatnonzero(~joined)
    starts, ends = np.concatenate([[0], edges + 1]), np.concatenate([edges, [len(time) - 1]])
    return tuple(
        (float(time[a]), float(time[b])) for a, b in zip(starts, ends, strict=True) if b > a
    )


def from_counter(time_s: npt.ArrayLike, energy_mj: npt.ArrayLike) -> Energy:
    """Return the energy between the samples of one device's counter.

    Args:
        time_s: Rising times, seconds.
        energy_mj: Counter, millijoules; NaN where a sample failed.

    Raises:
        InputError: Fewer than two samples, times that do not rise, a negative value.
    """
    time, counter = _series(time_s, energy_mj, "energy counter")
    steps = np.diff(counter)
    joined = steps >= 0
    joules = float(steps[joined].sum()) / 1000
    covered = float(np.diff(time)[joined].sum())
    return Energy(
        joules=joules,
        span_s=float(time[-1] - time[0]),
        covered_s=covered,
        mean_w=joules / covered if covered else None,
        source="counter",
        n_samples=len(time),
        n_resets=int((~joined).sum()),
        pieces=_pieces(time, joined),
    )


def from_power(time_s: npt.ArrayLike, power_w: npt.ArrayLike) -> Energy:
    """Return the energy under the power samples of one device.

    Args:
        time_s: Rising times, seconds.
        power_w: Board power, watts; NaN where a sample failed.

    Raises:
        InputError: Fewer than two samples, times that do not rise, a negative value.
    """
    time, power = _series(time_s, power_w, "power samples")
    steps = np.diff(time)
    joined = steps <= _GAP * np.median(steps)
    joules = float((steps * (power[1:] + power[:-1]) / 2)[joined].sum())
    covered = float(steps[joined].sum())
    return Energy(
        joules=joules,
        span_s=float(time[-1] - time[0]),
        covered_s=covered,
        mean_w=joules / covered if covered else None,
        source="power samples",
        n_samples=len(time),
        n_gaps=int((~joined).sum()),
        pieces=_pieces(time, joined),
    )


def from_limit(limit_w: float, seconds: float) -> Energy:
    """Return the most that a device with a power limit uses in a time: a bound."""
    return Energy(
        joules=limit_w * seconds,
        span_s=seconds,
        covered_s=seconds,
        mean_w=limit_w,
        source="power limit",
        n_samples=0,
        pieces=((0.0, seconds),),
    )


def total(devices: Sequence[Energy]) -> Energy:
    """Return the energy of several devices over the same period.

    Covered is only what every device covers. Stretches are kept where each device has one; others
    would have to be cut to each other.
    """
    first = devices[0]
    if len(devices) == 1:
        return first
    covered = min(one.covered_s for one in devices)
    whole: tuple[tuple[float, float], ...] = ()
    if all(len(one.pieces) == 1 for one in devices):
        starts, ends = zip(*(one.pieces[0] for one in devices), strict=True)
        whole = ((max(starts), min(ends)),)
    return Energy(
        joules=sum(one.joules for one in devices),
        span_s=max(one.span_s for one in devices),
        covered_s=covered,
        mean_w=sum(one.mean_w or 0.0 for one in devices) if covered else None,
        source=first.source,
        n_samples=sum(one.n_samples for one in devices),
        n_resets=sum(one.n_resets for one in devices),
        n_gaps=sum(one.n_gaps for one in devices),
        pieces=whole,
    )


def efficiency(
    energy: Energy,
    *,
    tokens: float | None = None,
    token_time_s: npt.ArrayLike = (),
    token_count: npt.ArrayLike = (),
) -> Efficiency:
    """Return what tokens cost.

    Args:
        energy: Of one device, or the sum of several.
        tokens: Tokens of the whole period; needs an energy that covers it.
        token_time_s: Times of a token counter, rising; used instead of `tokens` if not empty.
        token_count: The counter. Only tokens of covered stretches count.

    Raises:
        InputError: The token counter has fewer than two samples or falls in time.
    """
    counted = tokens
    if np.size(token_count) and not energy.pieces:
        needs = "several devices lost samples at different times; measure anew"
        return _unknown(energy, Missing("tokens a joule", needs))
    if np.size(token_count):
        counted = _tokens_within(energy.pieces, token_time_s, token_count)
    elif tokens is not None and not energy.is_complete:
        covered = f"{energy.covered_s:.4g} of {energy.span_s:.4g} s"
        needs = f"energy covers only {covered}; a token counter next to it would do"
        return _unknown(energy, Missing("tokens a joule", needs))
    if counted is None:
        return _unknown(energy, Missing("tokens a joule", "needs the number of tokens"))
    if energy.joules <= 0 or counted <= 0:
        return _unknown(energy, Missing("tokens a joule", "no energy or no token was counted"))
    return Efficiency(
        tokens=counted,
        tokens_per_j=counted / energy.joules,
        j_per_token=energy.joules / counted,
        source=energy.source,
    )


def _unknown(energy: Energy, missing: Missing) -> Efficiency:
    return Efficiency(
        tokens=None, tokens_per_j=None, j_per_token=None, source=energy.source, missing=(missing,)
    )


def _tokens_within(
    pieces: tuple[tuple[float, float], ...], time_s: npt.ArrayLike, count: npt.ArrayLike
) -> float:
    """Tokens inside the covered stretches; a counter that starts anew loses one interval."""
    time, counter = _series(time_s, count, "token counter")
    gained = np.concatenate([[0.0], np.cumsum(np.maximum(0.0, np.diff(counter)))])
    ends = np.interp([end for _, end in pieces], time, gained)
    starts = np.interp([start for start, _ in pieces], time, gained)
    return float((ends - starts).sum())
