"""The non-dominated rows of a table over any axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Front", "dominators", "front"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Which rows are worth a look, over some axes.

    A row dominates another if it is at least as good on every axis and better on one. That says
    which rows to look at; it does not say that an advantage on one axis makes up for another.

    Attributes:
        axes: Name of each axis, and whether more is better.
        front: Names of the rows that no row dominates, in the order given.
        dominated: For every other row, one row of the front that dominates it.
        missing: For every row that was left out, the axes on which it has no value.
    """

    axes: Mapping[str, bool]
    front: tuple[str, ...]
    dominated: Mapping[str, str]
    missing: Mapping[str, tuple[str, ...]]


def dominators(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which rows dominate which.

    Args:
        values: Shape (rows, axes); more is better on every axis; no NaN.

    Returns:
        Shape (rows, rows); ``[i, j]`` is whether row i dominates row j.
    """
    one, other = values[:, None, :], values[None, :, :]
    not_worse = np.all(one >= other, axis=2)
    better = np.any(one > other, axis=2)
    return np.asarray(np.logical_and(not_worse, better), dtype=np.bool_)


def front(
    names: Sequence[str],
    columns: Mapping[str, Sequence[float | None]],
    *,
    maximise: Mapping[str, bool],
) -> Front:
    """Return the rows that no other row dominates.

    Args:
        names: One a row.
        columns: Values of each axis, one a row; None or NaN where a row has none.
        maximise: For each axis, whether more is better.

    Returns:
        The front; equal rows do not dominate each other and are all kept.
    """
    table = np.array(
        [[np.nan if v is None else v for v in columns[axis]] for axis in maximise], dtype=np.float64
    ).T.reshape(len(names), len(maximise))
    unknown = ~np.isfinite(table)
    usable = np.flatnonzero(~unknown.any(axis=1))
    signs = np.array([1.0 if more else -1.0 for more in maximise.values()])
    beats = dominators(table[usable] * signs)
    best = ~beats.any(axis=0)
    axes = tuple(maximise)
    better = {
        int(usable[j]): int(usable[np.flatnonzero(beats[:, j] & best)[0]])
        for j in np.flatnonzero(~best)
    }
    incomplete = [int(i) for i in np.flatnonzero(unknown.any(axis=1))]
    return Front(
        axes=dict(maximise),
        front=tuple(names[int(i)] for i in usable[best]),
        dominated={names[j]: names[i] for j, i in better.items()},
        missing={
            names[i]: tuple(axes[int(a)] for a in np.flatnonzero(unknown[i])) for i in incomplete
        },
    )
