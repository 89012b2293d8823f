"""Sampling cells that the rows of one subject fill: what was sampled there is the subject's own.

A time-weighted mean over short kernels mixes in what ran between them. A cell that a subject covers
almost wholly does not, so means over such *pure* cells say what the subject itself does.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics import intervals
from tracekit.numerics.jit import accelerated, compiled

__all__ = ["PURE_FROM", "pure_cells"]

Int64: TypeAlias = NDArray[np.int64]
Int32: TypeAlias = NDArray[np.int32]
PURE_FROM = 0.9
"""Covered share from which a cell is pure."""
_RO = "ro(int64[::1])"


@compiled(
    f"int64({_RO}, {_RO}, ro(int32[::1]), int64, {_RO}, {_RO}, int64[:, ::1])",
)
def _swept(s: Int64, e: Int64, own: Int32, n_own: int, start: Int64, end: Int64, out: Int64) -> int:
    """Count the pure cells in one pass, and write them where there is room."""
    reached = np.full(n_own, np.iinfo(np.int64).min, np.int64)
    place = np.full(n_own, -1, np.int64)
    covered = np.zeros(n_own, np.int64)
    n, first = 0, 0
    for i in range(s.size):
        k = own[i]
        low = s[i] if k < 0 else max(s[i], reached[k])
        if k < 0 or e[i] <= low:
            continue
        reached[k] = e[i]
        while first < start.size and end[first] <= s[i]:
            first += 1
        at = max(first, place[k])
        while at < start.size and end[at] <= low:
            at += 1
        while at < start.size and start[at] < e[i]:
            if at != place[k]:
                p = place[k]
                if covered[k] > 0 and covered[k] >= PURE_FROM * (end[p] - start[p]):
                    if n < out.shape[1]:
                        out[0, n], out[1, n] = k, p
                    n += 1
                place[k], covered[k] = at, 0
            covered[k] += min(e[i], end[at]) - max(low, start[at])
            at += 1
    for k in range(n_own):
        p = place[k]
        if covered[k] > 0 and covered[k] >= PURE_FROM * (end[p] - start[p]):
            if n < out.shape[1]:
                out[0, n], out[1, n] = k, p
            n += 1
    return n


def _pure_cells_swept(
    s: Int64, e: Int64, subject: Int32, n_subjects: int, cells: tuple[Int64, Int64]
) -> tuple[Int64, Int64]:
    """`pure_cells` in one pass over the rows."""
    start, end = (np.ascontiguousarray(c, np.int64) for c in cells)
    rows = (np.ascontiguousarray(s), np.ascontiguousarray(e), np.ascontiguousarray(subject))
    # Subjects rarely run at the same time, so that there is room for all at the first attempt.
    found = np.empty((2, start.size), np.int64)
    n = _swept(*rows, n_subjects, start, end, found)
    if n > start.size:
        found = np.empty((2, n), np.int64)
        _swept(*rows, n_subjects, start, end, found)
    whose, which = found[:, :n]
    order = np.argsort(whose, kind="stable")
    return whose[order], which[order]


@accelerated(_pure_cells_swept)
def pure_cells(
    s: Int64, e: Int64, subject: Int32, n_subjects: int, cells: tuple[Int64, Int64]
) -> tuple[Int64, Int64]:
    """Find the cells that the union of each subject's rows covers by at least `PURE_FROM`.

    Args:
        s: int64[n], ns, starts of rows, ascending.
        e: int64[n], ns, their ends.
        subject: int32[n], subject of each row; negative for none.
        n_subjects: Number of subjects.
        cells: Starts and ends of disjoint cells, int64[m] each, ns, ascending.

    Returns:
        ``(subject, cell)``, int64[k] each: every pure cell, by subject and then by cell.
    """
    length = cells[1] - cells[0]
    found = []
    for one in range(n_subjects):
        own = subject == one
        covered = intervals.overlap_ns(*cells, *intervals.union(s[own], e[own]))
        found.append(np.flatnonzero((length > 0) & (covered >= PURE_FROM * length)))
    whose = np.repeat(np.arange(n_subjects), [f.size for f in found])
    return whose.astype(np.int64), np.concatenate([np.empty(0, np.int64), *found])
