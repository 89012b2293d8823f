"""What counters said while collectives transferred: memory, link and multiprocessors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import intervals
from tracekit.numerics.intervals import Intervals
from tracekit.numerics.threads import each
from tracekit.trace import Trace
from tracekit.views.collectives.instances import instances, matching
from tracekit.views.collectives.overlap import comm_overlap
from tracekit.views.counters import metrics

Int64: TypeAlias = NDArray[np.int64]
_NO_GPU = -1


@dataclass(frozen=True)
class Side:
    """What counters said over the windows of some collectives.

    Attributes:
        dram: Level of each GPU that was sampled.
        link_frac: Share of the link in its busier direction, highest over GPUs.
        sms_frac: Share of multiprocessors, highest over GPUs.
    """

    dram: list[tuple[int, metrics.Level]]
    link_frac: float | None
    sms_frac: float | None


@dataclass(frozen=True)
class _OnGpu:
    """Transfer windows on one GPU.

    Attributes:
        gpu: Which.
        instance: uint32[n], of which collective.
        start: int64[n], ns.
        end: int64[n], ns.
        dram: Counters of its memory.
        link: Counters of both directions of its link.
        sms: Counters of its multiprocessors.
    """

    gpu: int
    instance: NDArray[np.uint32]
    start: Int64
    end: Int64
    dram: tuple[metrics.Counter, ...]
    link: tuple[tuple[metrics.Counter, ...], tuple[metrics.Counter, ...]]
    sms: tuple[metrics.Counter, ...]


_OfGroup: TypeAlias = tuple[int, metrics.Level | None, list[float | None], float | None]
"""A GPU, its level of DRAM, and its means of both directions of the link and of processors."""


def sides(trace: Trace, groups: Sequence[NDArray[np.uint32]]) -> list[Side]:
    """Return the levels over the transfer windows of groups of collectives.

    Args:
        trace: May read ``gpu_metrics`` and ``metric_names``.
        groups: Numbers of the collectives of each group; none is in two.
    """
    group_of = np.full(instances(trace).height, len(groups), np.uint32)
    for number, group in enumerate(groups):
        group_of[group] = number
    found = each(lambda one: _levels_on(one, group_of, len(groups)), _by_gpu(trace))
    return [_side([own[k] for own in found if k in own]) for k in range(len(groups))]


def _side(found: list[_OfGroup]) -> Side:
    dram = [(gpu, level) for gpu, level, _, _ in found if level is not None]
    link = [share for _, _, both, _ in found for share in both]
    return Side(dram, _highest(link), _highest([share for _, _, _, share in found]))


def _by_gpu(trace: Trace) -> list[_OnGpu]:
    """Transfer windows and counters of each GPU with matched collectives."""
    members = matching(trace).members
    if members.is_empty():
        return []
    start = comm_overlap(trace).kernels["window_start_ns"][members["row"]].to_numpy()
    instance, end = (members[c].to_numpy() for c in ("instance", "end_ns"))
    gpu = members["gpu"].fill_null(_NO_GPU).to_numpy()
    found = []
    for one in sorted(members["gpu"].drop_nulls().unique().to_list(), key=str):
        rows = np.flatnonzero(gpu == one)
        sms = metrics.total(trace, one, metrics.SMS_ACTIVE)
        counters = metrics.dram(trace, one), metrics.link(trace, one), sms
        found.append(_OnGpu(one, instance[rows], start[rows], end[rows], *counters))
    return found


def _levels_on(one: _OnGpu, group_of: NDArray[np.uint32], n_groups: int) -> dict[int, _OfGroup]:
    """The levels on one GPU of each group with a window there."""
    group = group_of[one.instance]
    order = np.argsort(group.astype(np.min_scalar_type(n_groups)), kind="stable")
    until = np.cumsum(np.bincount(group, minlength=n_groups + 1))
    parts = {k: rows for k, rows in enumerate(np.split(order, until[:-1])[:-1]) if rows.size}
    unions = [intervals.union(one.start[rows], one.end[rows]) for rows in parts.values()]
    dram = metrics.levels_over(one.dram, unions)
    receiving, sending = (_means(side, unions) for side in one.link)
    links = [list(both) for both in zip(receiving, sending, strict=True)]
    each_group = zip(parts, dram, links, _means(one.sms, unions), strict=True)
    return {k: (one.gpu, level, link, sms) for k, level, link, sms in each_group}


def _means(counters: Sequence[metrics.Counter], unions: list[Intervals]) -> list[float | None]:
    found = metrics.mean_over_each(counters, unions)
    return [None if mean is None else mean[0] for mean in found]


def _highest(shares: list[float | None]) -> float | None:
    return max((share for share in shares if share is not None), default=None)
