"""What a lower precision gained: fewer bytes, or a memory system kept busier.

Throughput times bytes per request is bandwidth, so a speed-up is the product of two factors:
``s = (u2/u1)·(b1/b2)`` with utilisation u and bytes per request b, where b is proportional to u
over throughput.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracekit.errors import InputError
from tracekit.sizing.unknown import Missing

__all__ = ["Split", "split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A speed-up and what it is made of.

    Attributes:
        speedup: Throughput after over before.
        utilisation_factor: Memory utilisation after over before.
        bytes_ratio: Bytes of a request after over before.
        bytes_factor: Its inverse: the speed-up from fewer bytes.
        bytes_share: Share of the speed-up, on a logarithmic scale, that fewer bytes give; None
            without a speed-up.
        weight_share: Share of the bytes before that were weights, if only weights shrank; None if
            it cannot be computed or would lie outside 0..1.
        missing: What is not known, and what it would take.
    """

    speedup: float
    utilisation_factor: float
    bytes_ratio: float
    bytes_factor: float
    bytes_share: float | None
    weight_share: float | None
    missing: tuple[Missing, ...]


def split(
    before: tuple[float, float],
    after: tuple[float, float],
    *,
    weight_ratio: float | None = None,
) -> Split:
    """Return what the speed-up from one run to another is made of.

    Args:
        before: Throughput (requests/s or tokens/s) and memory utilisation, 0..1.
        after: The same of the other run, on the same device with the same load.
        weight_ratio: Bytes of a weight after over before (0.25 from FP16 to INT4); None if not
            known.

    Raises:
        InputError: A throughput is not positive, or a utilisation not in 0..1.
    """
    for name, (rate, util) in (("before", before), ("after", after)):
        if not (math.isfinite(rate) and rate > 0):
            message = f"{name}: throughput must be positive, not {rate}"
            raise InputError(message)
        if not 0 < util <= 1:
            message = f"{name}: memory utilisation must be in 0..1, not {util}"
            raise InputError(message, hint="divide percent by 100")
    speedup, util_factor = after[0] / before[0], after[1] / before[1]
    ratio = util_factor / speedup
    missing: list[Missing] = []
    return Split(
        speedup=speedup,
        utilisation_factor=util_factor,
        bytes_ratio=ratio,
        bytes_factor=1 / ratio,
        bytes_share=None if speedup == 1 else -math.log(ratio) / math.log(speedup),
        weight_share=_weight_share(ratio, weight_ratio, missing),
        missing=tuple(missing),
    )


def _weight_share(ratio: float, weight_ratio: float | None, missing: list[Missing]) -> float | None:
    """``(1-b2/b1)/(1-s2/s1)``: what shrank, over how much it can shrink."""
    if weight_ratio is None or not 0 < weight_ratio < 1:
        needs = "needs the formats of the weights, the second smaller than the first"
        missing.append(Missing("share of weights in the traffic", needs))
        return None
    share = (1 - ratio) / (1 - weight_ratio)
    if not 0 <= share <= 1:
        why = "more bytes were saved than weights have" if share > 1 else "no bytes were saved"
        needs = f"{why}: the runs differ in more than the weights' format"
        missing.append(Missing("share of weights in the traffic", needs))
        return None
    return share
