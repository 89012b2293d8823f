"""The floor of kernels: which limit of the hardware they run at, and the kernels that take longest.

Sampled counters are looked at only in *pure* cells, those that lie at least 90 % inside kernels of
one class or name: a mean weighted by time over kernels shorter than a sample mixes in what ran
before and after. Where there are too few such cells the verdict is unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tracekit.analyses.kernel_floor.chart import chart
from tracekit.analyses.kernel_floor.limits import ACHIEVABLE_FRAC, Limit, judged
from tracekit.analyses.kernel_floor.sampled import Counters, counters, means
from tracekit.analyses.kernel_floor.tables import CLASSES, GPUS, TOP_KERNELS
from tracekit.analyses.kernel_floor.verdict import verdict
from tracekit.model.inputs import Gpu
from tracekit.model.kernels import KernelKind
from tracekit.trace import Trace
from tracekit.trace.analysis import Analysis, param
from tracekit.views.device.activity import WORK_KIND, activity
from tracekit.views.device.hardware import achievable_frac
from tracekit.views.device.kernel_times import kernel_times
from tracekit.views.overview.totals import overview

__all__ = ["ANALYSIS", "Params"]

_COMM = (KernelKind.COMM.value, KernelKind.CUSTOM_COMM.value)
_NAMED_FROM = 0.02
"""Share of kernel time from which a name is judged for itself."""
_MOST_NAMES = 100
_NO_SAMPLES = {
    "n_pure": 0,
    **dict.fromkeys(
        ("dram_read_frac", "dram_write_frac", "dram_frac", "tensor_frac", "sms_active_frac")
    ),
}


@dataclass(frozen=True)
class Params:
    """Parameters of `kernel_floor`."""

    warn_frac: float = param(
        0.30,
        unit="1",
        help="share of the GPU's span in latency-bound kernels and those of low occupancy: warning",
    )


def compute(trace: Trace, params: Params) -> dict[str, pl.DataFrame]:  # noqa: ARG001
    """Return the frames of `ANALYSIS`."""
    classes, names, gpus = [], [], []
    for gpu in trace.gpus:
        work = activity(trace)
        first, last = (
            work["gpu"].search_sorted(gpu.index, side=side) for side in ("left", "right")
        )
        own = work.slice(first, last - first)
        if not (own["source"] == "kernel").any():
            continue
        found = counters(trace, gpu.index)
        most = _achievable(trace, gpu)
        device_ns = int((own["end_ns"] - own["start_ns"]).sum())
        of_kind = _by_kind(trace, gpu, own, found)
        of_name = _by_name(trace, gpu, own, found)
        classes.append(_with_verdicts(of_kind, device_ns, most, found.period_ns))
        names.append(_with_verdicts(of_name, device_ns, most, found.period_ns))
        gpus.append(_facts(trace, gpu, classes[-1], device_ns, found, most))
    return {
        "classes": _all(CLASSES.empty(), classes),
        "top_kernels": _all(TOP_KERNELS.empty(), names),
        "gpus": GPUS.conform(pl.DataFrame(gpus, schema=GPUS.schema)),
    }


def _all(empty: pl.DataFrame, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    columns = [pl.col(name).cast(dtype) for name, dtype in empty.schema.items()]
    return pl.concat([empty, *(part.select(columns) for part in parts)])


def _achievable(trace: Trace, gpu: Gpu) -> float:
    if trace.settings.hardware_achievable_gbps is None:
        return ACHIEVABLE_FRAC
    return achievable_frac(trace, gpu)


def _by_kind(trace: Trace, gpu: Gpu, work: pl.DataFrame, found: Counters) -> pl.DataFrame:
    """Times of each class with what was sampled in it."""
    times = kernel_times(trace).by_kind
    times = times.filter(pl.col("gpu") == gpu.index)
    subject_of = np.full(len(WORK_KIND.categories) + 1, -1, np.int32)
    places = {kind: i for i, kind in enumerate(WORK_KIND.categories)}
    for at, kind in enumerate(times["kind"]):
        if kind not in _COMM:
            subject_of[places[kind]] = at
    subject = subject_of[work["kind"].to_physical().to_numpy()]
    return times.hstack(means(found, work, subject, times.height))


def _by_name(trace: Trace, gpu: Gpu, work: pl.DataFrame, found: Counters) -> pl.DataFrame:
    """Times of the longest names, with what was sampled in those that matter."""
    every = kernel_times(trace)
    times = every.by_name.filter(pl.col("gpu") == gpu.index)
    least = _NAMED_FROM * int(times["time_ns"].sum())
    times = times.head(_MOST_NAMES).with_row_index("at")
    large = (pl.col("time_ns") >= least) & ~pl.col("kind").cast(pl.String).is_in(_COMM)
    known = every.subjects.join(times.filter(large), on=["kind", "name"], how="left")
    place = known.sort("kind", "name")["at"].cast(pl.Int32).fill_null(-1).to_numpy()
    # The last place stands for work that is no kernel.
    subject_of = np.append(place[every.subject], np.int32(-1))
    keys = work["name_key"].fill_null(every.subject.size).to_numpy()
    subject = subject_of[keys].astype(np.int32)
    return times.drop("at").hstack(means(found, work, subject, times.height))


def _with_verdicts(
    rows: pl.DataFrame, device_ns: int, most: float, period_ns: int | None
) -> pl.DataFrame:
    verdicts: list[tuple[str, str | None, float | None, float | None]] = []
    for row in rows.iter_rows(named=True):
        if row["kind"] in _COMM:
            verdicts.append((Limit.COMMUNICATION.value, None, None, None))
        else:
            found = judged(row, most, period_ns)
            why = found.why or None
            verdicts.append((found.limit.value, why, found.bound_ns, found.speedup_most_frac))
    schema = {c: TOP_KERNELS.schema[c] for c in TOP_KERNELS.schema.names()[-4:]}
    share = (pl.col("time_ns") / max(1, device_ns)).alias("share_frac")
    return rows.with_columns(share).hstack(pl.DataFrame(verdicts, schema=schema, orient="row"))


def _facts(
    trace: Trace, gpu: Gpu, classes: pl.DataFrame, device_ns: int, found: Counters, most: float
) -> dict[str, Any]:
    own = classes.filter(pl.col("verdict") != Limit.COMMUNICATION.value)
    time = next((g for g in overview(trace).gpus if g.gpu == gpu.index), None)
    columns = {column for _, by_column in found.groups for column in by_column}
    return {
        "gpu": gpu.index,
        "span_ns": 0 if time is None else time.span_ns,
        "device_ns": device_ns,
        "kernel_ns": int(own["time_ns"].sum()),
        "judged_ns": int(own.filter(pl.col("verdict") != Limit.UNKNOWN.value)["time_ns"].sum()),
        "sampled": bool(columns - {"sms_active_frac"}),
        "period_ns": found.period_ns,
        "sm_count": gpu.sm_count,
        "achievable_frac": most,
        "opaque_ns": 0 if time is None else time.opaque_ns,
    }


ANALYSIS = Analysis(
    name="kernel_floor",
    question="Which limit of the hardware do the kernels run at, and which take longest?",
    requires=("kernels",),
    params=Params,
    results=(CLASSES, TOP_KERNELS, GPUS),
    compute=compute,
    verdict=verdict,
    chart=chart,
)
