"""Every nanosecond of every step: what ran, or why nothing did."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import KernelKind
from tracekit.numerics.idle import causes, waterfall
from tracekit.trace import Trace, view
from tracekit.views.collectives.matching import matching
from tracekit.views.device.activity import OPAQUE, WORK_KIND, activity
from tracekit.views.idle.gaps import gap_rows
from tracekit.views.idle.parts import idle_parts
from tracekit.views.idle.timelines import Timeline, timelines
from tracekit.views.idle.windows import step_windows

__all__ = ["CLASSES", "Budget", "budget"]

CLASSES = (
    *("gemm", "attention", "dequant", "other", "opaque"),
    *("comm_transfer", "comm_wait", "comm_unsplit", "copy", "memset"),
)
"""What a nanosecond of a step can be spent on; where several run, the first of these counts."""
_TRANSFER, _WAIT, _UNSPLIT = (CLASSES.index(c) for c in CLASSES[5:8])
_GEMM = {KernelKind.GEMM, KernelKind.GEMM_QUANT, KernelKind.MOE_GEMM, KernelKind.GEMM_HELPER}
_CLASS_OF_KIND: dict[str, str] = {
    **{kind.value: "gemm" for kind in _GEMM},
    KernelKind.ATTENTION.value: "attention",
    KernelKind.DEQUANT.value: "dequant",
    KernelKind.COMM.value: "comm_unsplit",
    KernelKind.CUSTOM_COMM.value: "comm_unsplit",
    OPAQUE: "opaque",
    "memset": "memset",
}


def _class_of(kind: str) -> int:
    of = "copy" if kind.startswith("memcpy ") else _CLASS_OF_KIND.get(kind, "other")
    return CLASSES.index(of)


_CLASS_OF = np.array([_class_of(kind) for kind in WORK_KIND.categories], np.uint8)


class Budget(NamedTuple):
    """How windows divide.

    Attributes:
        windows: Frame of `step_windows`.
        own_ns: int64[windows, classes], time of each of `CLASSES`; where several run the first one
            counts. With `idle_ns` a row adds up to the window.
        active_ns: int64[windows, classes], time in which each class ran at all.
        idle_ns: int64[windows, causes], idle time by `causes.CAUSES`.
    """

    windows: pl.DataFrame
    own_ns: NDArray[np.int64]
    active_ns: NDArray[np.int64]
    idle_ns: NDArray[np.int64]


@view
def budget(trace: Trace) -> Budget:
    """Return what every nanosecond of the steps, and of the time between them, was spent on."""
    windows = step_windows(trace)
    shape = windows.height, len(CLASSES)
    own, active = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    idle = np.zeros((windows.height, len(causes.CAUSES)), np.int64)
    lines, gaps, parts = timelines(trace), gap_rows(trace), idle_parts(trace).parts
    waits = _waits(trace)
    for _, rows in windows.with_row_index("at").group_by("timeline", "chain", maintain_order=True):
        at = rows["at"].to_numpy()
        edges = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        number = int(rows["timeline"][0])
        own[at], active[at] = _busy(trace, lines[number], edges, waits)
        idle[at] = _idle(parts, gaps.of(number), edges)
    return Budget(windows, own, active, idle)


def _busy(
    trace: Trace,
    line: Timeline,
    edges: tuple[NDArray[np.int64], NDArray[np.int64]],
    waits: tuple[NDArray[np.uint32], NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    work = activity(trace)
    start, end = (line.of(work[c]).to_numpy() for c in ("start_ns", "end_ns"))
    kind = line.of(work["kind"]).to_physical().to_numpy()
    rows = waterfall.Rows(start, end, kind, _CLASS_OF)
    row, until = waits
    place, found = line.places(row)
    splits = waterfall.Splits(place, until[found], _WAIT, _TRANSFER) if place.size else None
    return waterfall.by_class(rows, edges, len(CLASSES), splits)


def _idle(
    parts: causes.Parts, gaps: slice, edges: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> NDArray[np.int64]:
    low, high = np.searchsorted(parts.gap, [gaps.start, gaps.stop])
    start, end, cause = parts.start[low:high], parts.end[low:high], parts.cause[low:high]
    return waterfall.by_cause(start, end, cause, edges, len(causes.CAUSES))


def _waits(trace: Trace) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Collective kernels of which all ranks are known: their rows, and when the last rank came."""
    found = matching(trace)
    whole = found.communicators.filter(pl.col("status") == "matched")["comm"]
    members = found.members.filter(pl.col("comm").cast(pl.String).is_in(whole.implode()))
    members = members.select("activity", until=pl.col("start_ns") + pl.col("wait_ns"))
    members = members.sort("activity")
    return members["activity"].to_numpy(), members["until"].to_numpy()
