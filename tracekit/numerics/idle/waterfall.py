"""How disjoint windows divide over classes of work by priority, and over causes of idle time."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.intervals import Intervals
from tracekit.numerics.jit import SMALL, compiled

__all__ = ["Rows", "Splits", "by_cause", "by_class", "outlier_threshold"]

Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]


MIN_STEPS = 5
"""Among fewer steps none is called an outlier."""
_LONG_AGO = -(1 << 62)
_MADS, _NORMAL, _LEAST_FRAC = 3.0, 1.4826, 0.05


class Rows(NamedTuple):
    """Work of one device.

    Attributes:
        start: int64[n], ns, ascending.
        end: int64[n], ns; rows with ``end <= start`` count for nothing.
        kind: uint8[n].
        class_of: uint8[kinds], class of each kind; a lower one goes first.
    """

    start: Int64
    end: Int64
    kind: UInt8
    class_of: UInt8


class Splits(NamedTuple):
    """Rows that change their class on the way.

    Attributes:
        row: int64[k], ascending.
        at: int64[k], ns, until when the row is of class `before`; then it is of class `after`.
        before: Class.
        after: Class.
    """

    row: Int64
    at: Int64
    before: int
    after: int


class _Split(NamedTuple):
    """Rows that change their class, as they begin and as they go on.

    Attributes:
        row: int64[k], ascending.
        at: int64[k], ns, until when each is of the first class.
        later: int64[k], ns, when each begins to be of the second one; ascending.
        until: int64[k], ns, its end.
    """

    row: Int64
    at: Int64
    later: Int64
    until: Int64


def by_class(
    rows: Rows, windows: Intervals, n_classes: int, splits: Splits | None = None
) -> tuple[Int64, Int64]:
    """Give every nanosecond of some windows to the first class that is active in it.

    Args:
        rows: Work of one device.
        windows: Starts and ends, int64[m] each, ns, ascending and disjoint.
        n_classes: Number of classes.
        splits: Rows that change their class on the way; None for none.

    Returns:
        int64[m, n_classes] ns that each class has for itself, which sum up to the time in which
        anything ran, and int64[m, n_classes] ns in which it was active at all.
    """
    starts, ends = (np.ascontiguousarray(w, np.int64) for w in windows)
    row = at = later = until = np.empty(0, np.int64)
    before = after = 0
    if splits is not None:
        row, at = splits.row, np.clip(splits.at, rows.start[splits.row], rows.end[splits.row])
        before, after = splits.before, splits.after
        order = np.argsort(at, kind="stable")
        later, until = at[order], rows.end[row][order]
    start, end = (np.ascontiguousarray(c, np.int64) for c in (rows.start, rows.end))
    kind, class_of = (np.ascontiguousarray(c, np.uint8) for c in (rows.kind, rows.class_of))
    split = _Split(*(np.ascontiguousarray(c, np.int64) for c in (row, at, later, until)))
    reached, active = _swept(
        start, end, kind, class_of, *split, before, after, starts, ends, n_classes
    )
    return np.diff(reached, axis=1, prepend=0), active


def by_cause(start: Int64, end: Int64, cause: UInt8, windows: Intervals, n_causes: int) -> Int64:
    """Return the time of each cause in each window.

    Args:
        start: int64[n], ns, ascending; intervals are disjoint.
        end: int64[n], ns.
        cause: uint8[n], below `n_causes`.
        windows: Starts and ends, int64[m] each, ns, ascending and disjoint.
        n_causes: Number of causes.

    Returns:
        int64[m, n_causes], ns.
    """
    starts, ends = (np.ascontiguousarray(w, np.int64) for w in windows)
    s, e = (np.ascontiguousarray(c, np.int64) for c in (start, end))
    return _by_cause(s, e, np.ascontiguousarray(cause, np.uint8), starts, ends, n_causes)


def outlier_threshold(spans: Int64) -> float | None:
    """Return the length beyond which a step is an outlier among its like.

    Args:
        spans: int64[n], ns.

    Returns:
        ns, the median + max(3 robust standard deviations, 5 % of the median); None for fewer than
        `MIN_STEPS` steps.
    """
    if spans.size < MIN_STEPS:
        return None
    median = float(np.median(spans))
    mad = float(np.median(np.abs(spans - median)))
    return median + max(_MADS * _NORMAL * mad, _LEAST_FRAC * median)


@compiled()
def _spread(total: Int64, column: int, a: int, e: int, first: int, ws: Int64, we: Int64) -> None:
    """Add the time of ``[a, e)`` to a column of the windows from `first` on."""
    j = first
    while j < ws.size and ws[j] < e:
        length = min(e, we[j]) - max(a, ws[j])
        if length > 0:
            total[j, column] += length
        j += 1


@compiled(
    "Tuple((int64[:, ::1], int64[:, ::1]))(ro(int64[::1]), ro(int64[::1]), ro(uint8[::1]),"
    " ro(uint8[::1]), ro(int64[::1]), ro(int64[::1]), ro(int64[::1]), ro(int64[::1]),"
    " int64, int64, ro(int64[::1]), ro(int64[::1]), int64)",
    interpret_below=SMALL,
)
def _swept(
    s: Int64,
    e: Int64,
    kind: UInt8,
    class_of: UInt8,
    split_row: Int64,
    split_at: Int64,
    later: Int64,
    until: Int64,
    before: int,
    after: int,
    ws: Int64,
    we: Int64,
    n_classes: int,
) -> tuple[Int64, Int64]:
    """Time that the union of all classes up to each covers, and that each covers; by window.

    The unions of growing sets of classes contain each other, so that differences of their lengths
    are the times that classes have for themselves.
    """
    upto = np.zeros((ws.size, n_classes), np.int64)
    active = np.zeros((ws.size, n_classes), np.int64)
    reach, ran = np.full(n_classes, _LONG_AGO, np.int64), np.full(n_classes, _LONG_AGO, np.int64)
    w, split, rest, i = 0, 0, 0, 0
    while i < s.size or rest < later.size:
        from_rest = rest < later.size and (i >= s.size or later[rest] < s[i])
        start = later[rest] if from_rest else s[i]
        end = until[rest] if from_rest else e[i]
        if from_rest:
            c = after
            rest += 1
        else:
            c = class_of[kind[i]]
            if split < split_row.size and split_row[split] == i:
                c, end = before, split_at[split]
                split += 1
            i += 1
        while w < ws.size and we[w] <= start:
            w += 1
        if end <= start or w >= ws.size:
            continue
        inside = ws[w] <= start and end <= we[w]
        for k in range(c, n_classes):
            if end > reach[k]:
                since, reach[k] = max(start, reach[k]), end
                if inside:
                    upto[w, k] += end - since
                else:
                    _spread(upto, k, since, end, w, ws, we)
        if end > ran[c]:
            since, ran[c] = max(start, ran[c]), end
            _spread(active, c, since, end, w, ws, we)
    return upto, active


@compiled(
    "int64[:, ::1](ro(int64[::1]), ro(int64[::1]), ro(uint8[::1]), ro(int64[::1]),"
    " ro(int64[::1]), int64)",
    interpret_below=SMALL,
)
def _by_cause(s: Int64, e: Int64, cause: UInt8, ws: Int64, we: Int64, n_causes: int) -> Int64:
    total = np.zeros((ws.size, n_causes), np.int64)
    w = 0
    for i in range(s.size):
        while w < ws.size and we[w] <= s[i]:
            w += 1
        if w < ws.size and ws[w] < e[i]:
            _spread(total, cause[i], s[i], e[i], w, ws, we)
    return total
