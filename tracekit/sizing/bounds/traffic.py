"""All-reduce traffic of tensor parallelism: what a step sends, and how it grows.

Source: a ring all-reduce sends ``2(p-1)/p`` of the message from every rank (a reduce-scatter and an
all-gather, ``(p-1)/p`` each). A tensor-parallel layer makes two in a forward pass: behind attention
and behind the feed-forward part. A message holds ``tokens x hidden size`` values; a decode step has
one token for each sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.errors import InputError
from tracekit.sizing.models import ModelShape
from tracekit.sizing.student import t_quantile
from tracekit.sizing.unknown import Missing

__all__ = ["Growth", "StepTraffic", "all_reduce_bytes", "growth", "step_traffic"]

_FEWEST = 3
_SAME = 0.02
_WIDEST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTraffic:
    """What one rank sends in one step.

    Attributes:
        phase: ``prefill`` or ``decode``.
        tokens: Tokens of the step.
        n_all_reduces: All-reduces of the step.
        message_bytes: Size of one message.
        sent_bytes_each: What a rank sends for one all-reduce.
        sent_bytes: What a rank sends in the step.
        link_s: Time that takes at the link's peak in one direction, seconds: a lower bound; None
            where the link is not known.
    """

    phase: str
    tokens: int
    n_all_reduces: int
    message_bytes: float
    sent_bytes_each: float
    sent_bytes: float
    link_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How traffic grows with the number of tokens.

    Attributes:
        n: Measured runs.
        exponent: Slope of log traffic over log tokens; None if it cannot be computed.
        low: Lower end of its 95 % interval; None with fewer than three runs.
        high: Upper end.
        verdict: ``linear`` (the interval comes within 0.02 of 1 and is narrower than 0.5), ``less
            than linear``, ``more than linear``, or ``unknown``.
        missing: What would decide, where the verdict is unknown.
    """

    n: int
    exponent: float | None
    low: float | None
    high: float | None
    verdict: str
    missing: tuple[Missing, ...]


def all_reduce_bytes(message_bytes: float, ranks: int) -> float:
    """Return what one rank sends for a ring all-reduce, bytes."""
    return 2 * (ranks - 1) / ranks * message_bytes


def step_traffic(
    shape: ModelShape,
    phase: str,
    tokens: int,
    ranks: int,
    *,
    bytes_per_value: float = 2.0,
    n_all_reduces: int | None = None,
    link_bytes_per_s: float | None = None,
) -> StepTraffic:
    """Return what a step of a tensor-parallel model sends from each rank.

    Args:
        shape: The model.
        phase: For the reader.
        tokens: Tokens of the step: batch in decode, batch times prompt in prefill.
        ranks: Tensor-parallel GPUs.
        bytes_per_value: Size of an activation.
        n_all_reduces: All-reduces of a step; two a layer unless given.
        link_bytes_per_s: Peak of the link in one direction; None if it is not known.
    """
    number = 2 * shape.n_layers if n_all_reduces is None else n_all_reduces
    message = tokens * shape.hidden_size * bytes_per_value
    each = all_reduce_bytes(message, ranks)
    return StepTraffic(
        phase=phase,
        tokens=tokens,
        n_all_reduces=number,
        message_bytes=message,
        sent_bytes_each=each,
        sent_bytes=number * each,
        link_s=None if link_bytes_per_s is None else number * each / link_bytes_per_s,
    )


def growth(tokens: Sequence[float], traffic: Sequence[float]) -> Growth:
    """Return how `traffic` grows with `tokens`: least squares on logarithms, with a t interval.

    Args:
        tokens: Tokens of each run (batch, or batch times sequence).
        traffic: Bytes or bytes/s of each run.

    Raises:
        InputError: A value is not positive.
    """
    if any(not (math.isfinite(v) and v > 0) for v in (*tokens, *traffic)):
        message = "tokens and traffic must be positive numbers"
        raise InputError(message)
    n = len(tokens)
    if len(set(tokens)) < 2:
        missing = Missing("exponent", "needs runs with different numbers of tokens")
        return _undecided(n, None, missing)
    x, y = np.log(np.asarray(tokens, float)), np.log(np.asarray(traffic, float))
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ y) / spread
    if n < _FEWEST:
        missing = Missing("exponent's interval", f"needs at least {_FEWEST} runs, there are {n}")
        return _undecided(n, slope, missing)
    residuals = y - y.mean() - slope * centred
    error = math.sqrt(max(0.0, float(residuals @ residuals)) / (n - 2) / spread)
    half = t_quantile(0.975, n - 2) * error
    low, high = slope - half, slope + half
    if low > 1 + _SAME:
        verdict = "more than linear"
    elif high < 1 - _SAME:
        verdict = "less than linear"
    elif high - low <= _WIDEST:
        verdict = "linear"
    else:
        missing = Missing("growth", f"the interval [{low:.3g}, {high:.3g}] is too wide: more runs")
        return Growth(
            n=n, exponent=slope, low=low, high=high, verdict="unknown", missing=(missing,)
        )
    return Growth(n=n, exponent=slope, low=low, high=high, verdict=verdict, missing=())


def _undecided(n: int, slope: float | None, missing: Missing) -> Growth:
    return Growth(n=n, exponent=slope, low=None, high=None, verdict="unknown", missing=(missing,))
