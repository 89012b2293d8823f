"""How often and how long kernels run, by class and by name, and how many fill the GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.model.kernels import kernel_key
from tracekit.trace import Trace, view
from tracekit.views.device.kernels import KIND, kernel_names, kernels

__all__ = ["KernelTimes", "kernel_times"]

_GRID = ("grid_x", "grid_y", "grid_z")
_SCHEMA = pl.Schema(
    {
        "gpu": pl.Int16(),
        "kind": KIND,
        "name": pl.String(),
        "n": pl.UInt32(),
        "time_ns": pl.Int64(),
        "median_ns": pl.Float64(),
        "few_blocks_frac": pl.Float64(),
    }
)


class KernelTimes(NamedTuple):
    """Sums over kernels.

    Attributes:
        by_name: Frame of gpu Int16, kind Enum, name String (one of its spellings), n UInt32,
            time_ns Int64 (summed durations), median_ns Float64, few_blocks_frac Float64 (share of
            launches with fewer blocks than the GPU has multiprocessors; null when either is
            unknown); longest first within a GPU.
        by_kind: The same over all names of a class; name is null.
        subject: uint32[name keys], row among the distinct pairs of class and spelling.
        subjects: Frame of kind and name, those pairs; sorted by both.
    """

    by_name: pl.DataFrame
    by_kind: pl.DataFrame
    subject: NDArray[np.uint32]
    subjects: pl.DataFrame


@view
def kernel_times(trace: Trace) -> KernelTimes:
    """Return the times of all kernels by class and by name, on each GPU."""
    rows, keys = trace.frame("kernels"), kernels(trace)["name_key"]
    names = kernel_names(trace).select("kind", "name")
    key = pl.Series("key", [kernel_key(n) for n in names["name"]], pl.String)
    # Shown is the first of the spellings that stand for one kernel.
    first = pl.col("name").min().over("kind", "key")
    spelled = names.with_columns(key).select("kind", first)
    # A class holds a run of subjects, so that rows in order of subject are in order of class too.
    subjects = spelled.unique().sort("kind", "name")
    numbered = subjects.with_row_index("at")
    subject = spelled.join(numbered, on=["kind", "name"], how="left", maintain_order="left")["at"]
    number = subject.cast(pl.UInt32).to_numpy()
    sms = {g.index: g.sm_count for g in trace.gpus}
    by_name: list[dict[str, Any]] = []
    by_kind: list[dict[str, Any]] = []
    for (gpu,), own in _by_gpu(rows):
        code = number[keys[own].to_numpy()] if len(keys) else np.empty(0, np.uint32)
        part = rows[own] if len(own) < rows.height else rows
        found = _sums(part, code, subjects, sms.get(gpu))
        for target, sums in zip((by_name, by_kind), found, strict=True):
            target.extend({"gpu": gpu, **row} for row in sums)
    order = ["gpu", "time_ns", "kind", "name"]
    frames = [
        pl.DataFrame(sums, schema=_SCHEMA).sort(order, descending=[False, True, False, False])
        for sums in (by_name, by_kind)
    ]
    return KernelTimes(frames[0], frames[1], number, subjects)


def _by_gpu(rows: pl.DataFrame) -> list[tuple[tuple[int], pl.Series]]:
    """Rows of each known GPU."""
    gpu = rows["gpu"]
    return [((int(g),), (gpu == g).arg_true()) for g in gpu.drop_nulls().unique().sort()]


def _sums(
    rows: pl.DataFrame, code: NDArray[np.uint32], subjects: pl.DataFrame, sm_count: int | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Sums of the kernels of one GPU, by subject and by class."""
    small = code.astype(np.min_scalar_type(subjects.height))
    count = np.bincount(code, minlength=subjects.height)
    length = rows["end_ns"].to_numpy() - rows["start_ns"].to_numpy()
    if length.size and length.max() <= np.iinfo(np.int32).max:
        length = length.astype(np.int32)  # moves in half of the time
    sorted_ns = length[np.argsort(small, kind="stable")]
    few = _few(rows, code, subjects.height, sm_count)
    until = np.cumsum(count)
    by_name = [
        {"kind": kind, "name": name, **_of(sorted_ns, few, [i], until, count)}
        for i, (kind, name) in enumerate(subjects.iter_rows())
        if count[i]
    ]
    by_kind = []
    for (kind,), part in subjects.with_row_index("at").group_by("kind", maintain_order=True):
        own = part["at"].to_list()
        if count[own].sum():
            by_kind.append({"kind": kind, "name": None, **_of(sorted_ns, few, own, until, count)})
    return by_name, by_kind


def _of(
    sorted_ns: NDArray[np.int32] | NDArray[np.int64],
    few: NDArray[np.int64] | None,
    own: list[int],
    until: NDArray[np.int64],
    count: NDArray[np.int64],
) -> dict[str, Any]:
    """Sums over a run of subjects."""
    n = int(count[own].sum())
    lengths = sorted_ns[until[own[-1]] - n : until[own[-1]]]
    return {
        "n": n,
        "time_ns": int(lengths.sum(dtype=np.int64)),
        "median_ns": float(np.median(lengths)),
        "few_blocks_frac": None if few is None else int(few[own].sum()) / n,
    }


def _few(
    rows: pl.DataFrame, code: NDArray[np.uint32], n_subjects: int, sm_count: int | None
) -> NDArray[np.int64] | None:
    """Launches of each subject with fewer blocks than multiprocessors; None when not known."""
    grid = [rows[axis] for axis in _GRID]
    if not sm_count or any(axis.null_count() for axis in grid):
        return None
    # Only where one axis alone is short can all three together be.
    short = np.flatnonzero((grid[0] < sm_count).to_numpy())
    blocks = np.ones(short.size, np.int64)
    for axis in grid:
        blocks *= axis.to_numpy()[short]
    few = code[short[blocks < sm_count]]
    return np.bincount(few, minlength=n_subjects).astype(np.int64)
