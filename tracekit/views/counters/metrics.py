"""Sampled hardware counters of one GPU, as cells ready for means over windows.

Names are matched exactly, unit in brackets included: ``[Avg]`` rows of the same quantity carry
other scales. Cells are formed on all samples before any is dropped, so an invalid sample leaves a
hole instead of lengthening its neighbour.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracekit.numerics.samples import sampling
from tracekit.numerics.threads import each
from tracekit.trace import Trace, view
from tracekit.views.counters.levels import (
    Counter,
    Level,
    level_over,
    levels_over,
    mean_over,
    mean_over_each,
    means_over,
)

__all__ = [
    "DRAM",
    "GR_ACTIVE",
    "HIT_RATES",
    "LINK_RX",
    "LINK_TX",
    "MAIN_PART",
    "OCCUPANCY",
    "OTHERS",
    "SMS_ACTIVE",
    "TENSOR",
    "Counter",
    "Level",
    "clock_hz",
    "counter",
    "counters",
    "dram",
    "level_over",
    "levels_over",
    "link",
    "mean_over",
    "mean_over_each",
    "means_over",
    "metric_names",
    "sampled",
    "samples_of",
    "total",
]

GR_ACTIVE = "GR Active [Throughput %]"
"""Counter of the share of time with any work."""
DRAM = (
    ("DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]"),
    ("DRAM Bandwidth [Throughput %]",),
)
"""Counters that add up to all DRAM traffic, best first."""
HIT_RATES = (
    "L2 Sector Hit Rate from L1 [Ratio %]",
    "L2 Hit Rate from L1 [Ratio %]",
    "L2 Sector Hit Rate [Ratio %]",
    "L2 Hit Rate [Ratio %]",
)
"""Counters of the share of L2 look-ups that hit, best first."""
OCCUPANCY = ("SM Warps Active [Throughput %]", "Compute Warps in Flight [Throughput %]")
"""Counters of resident warps as a share of the most that fit, best first."""
SMS_ACTIVE = ("SMs Active [Throughput %]",)
"""Counter of the share of multiprocessors with work."""
TENSOR = "Tensor Active [Throughput %]"
"""Counter of the share of time with work in tensor cores."""
OTHERS = (*HIT_RATES, *OCCUPANCY, *SMS_ACTIVE, TENSOR)
"""Counters of no traffic."""
_LINK_PARTS = (
    "Requests Protocol Data",
    "Requests User Data",
    "Responses Protocol Data",
    "Responses User Data",
)
MAIN_PART = _LINK_PARTS.index("Requests User Data")
"""Place among `LINK_RX` and `LINK_TX` of the counter that carries most."""
LINK_RX = tuple(f"NVLink RX {part} [Throughput %]" for part in _LINK_PARTS)
"""Counters that add up to what a GPU receives over NVLink."""
LINK_TX = tuple(f"NVLink TX {part} [Throughput %]" for part in _LINK_PARTS)
"""Counters that add up to what a GPU sends over NVLink."""


Int64: TypeAlias = NDArray[np.int64]
FULL_SCALE = 100
_HZ_FROM = 100_000


def metric_names(trace: Trace, gpu: int) -> frozenset[str]:
    """Return the exact names of the counters sampled on a GPU; empty when none were."""
    found = _names(trace)
    return found.get(gpu, frozenset()) | found.get(None, frozenset())


@view
def _names(trace: Trace) -> dict[int | None, frozenset[str]]:
    """Exact names of the sampled counters, of each GPU or of an unknown one."""
    names: dict[int | None, set[str]] = {}
    for gpu, name in trace.frame("metric_names").select("gpu", "name").iter_rows():
        names.setdefault(gpu, set()).update([] if name is None else [name])
    return {gpu: frozenset(of_gpu) for gpu, of_gpu in names.items()}


@view
def sampled(trace: Trace) -> dict[tuple[int, str], tuple[Int64, Int64]]:
    """Return times and values of the counters that views look at by (gpu, name); one pass."""
    names = {*LINK_RX, *LINK_TX, *(name for parts in DRAM for name in parts), *OTHERS}
    rows = trace.samples(sorted(names))
    rows = rows.slice(rows["gpu"].null_count())  # they come first
    # Sorted by both: the values of a counter are a slice, and stay where they are.
    gpu, name = rows["gpu"].to_numpy(), rows["name"].to_physical().to_numpy()
    begins = np.flatnonzero((gpu[1:] != gpu[:-1]) | (name[1:] != name[:-1])) + 1
    times, values = rows["t_ns"].to_numpy(), rows["value"].to_numpy()
    found: dict[tuple[int, str], tuple[Int64, Int64]] = {}
    of_gpu: dict[int, Int64] = {}
    for low, high in itertools.pairwise([0, *begins.tolist(), rows.height]):
        if low < high:
            index, own = int(gpu[low]), times[low:high]
            # The counters of a GPU are sampled together: they share their times.
            if not np.array_equal(of_gpu.get(index, own[:0]), own):
                of_gpu[index] = own.copy()
            found[index, str(rows["name"][low])] = of_gpu[index], values[low:high]
    return found


@view
def counters(trace: Trace) -> dict[tuple[int, str], Counter | None]:
    """Return the counters of `sampled`, by (gpu, name); None for one that reads 0 throughout."""
    edge = trace.settings.sampling_edge
    found = sampled(trace)
    distinct = {id(times): times for times, _ in found.values()}
    extents = each(lambda times: sampling.extents(times, edge), distinct.values())
    cells = dict(zip(distinct, extents, strict=True))
    made = each(lambda key: _counter(key[1], cells[id(found[key][0])], found[key][1]), found)
    return dict(zip(found, made, strict=True))


def samples_of(trace: Trace, gpu: int, name: str) -> tuple[Int64, Int64]:
    """Return times in ns and values of one counter of a GPU, in time order; int64[n] both.

    Args:
        trace: May read ``gpu_metrics``.
        gpu: Index of the GPU.
        name: Exact name.
    """
    found = sampled(trace).get((gpu, name))
    if found is not None:
        return found
    rows = trace.samples([name])
    rows = rows.filter(rows["gpu"] == gpu)
    return rows["t_ns"].to_numpy(), rows["value"].to_numpy()


def counter(trace: Trace, gpu: int, name: str) -> Counter | None:
    """Return one percentage counter of a GPU.

    Args:
        trace: May read ``gpu_metrics``.
        gpu: Index of the GPU.
        name: Exact name.

    Returns:
        The counter; None when it was not sampled, or read zero throughout: shared counters of a
        partitioned GPU do that.
    """
    known = counters(trace)
    if (gpu, name) in known:
        return known[gpu, name]
    times, values = samples_of(trace, gpu, name)
    return _counter(name, sampling.extents(times, trace.settings.sampling_edge), values)


def _counter(name: str, extents: sampling.Cells, values: Int64) -> Counter | None:
    if not values.any():
        return None
    cells = extents.with_value(values)
    if values.min() >= 0 and values.max() <= FULL_SCALE:
        return Counter(name, cells.with_value(cells.value / FULL_SCALE), values.size, 0, 0)
    negative, over = cells.value < 0, cells.value > FULL_SCALE
    valid = cells.with_value(np.minimum(cells.value, FULL_SCALE) / FULL_SCALE).keep(~negative)
    return Counter(name, valid, values.size, int(negative.sum()), int(over.sum()))


def total(trace: Trace, gpu: int, names: Sequence[str]) -> tuple[Counter, ...]:
    """Return counters that add up to one quantity; empty unless at least one of them is active.

    Args:
        trace: May read ``gpu_metrics`` and ``metric_names``.
        gpu: Index of the GPU.
        names: Exact names; all must have been sampled.
    """
    if not set(names) <= metric_names(trace, gpu):
        return ()
    found = (counter(trace, gpu, name) for name in names)
    return tuple(c for c in found if c is not None)


def dram(trace: Trace, gpu: int) -> tuple[Counter, ...]:
    """Return the counters of DRAM read and write of a GPU; empty when they were not sampled."""
    return next((c for names in DRAM if (c := total(trace, gpu, names))), ())


def link(trace: Trace, gpu: int) -> tuple[tuple[Counter, ...], tuple[Counter, ...]]:
    """Return the NVLink counters of a GPU, (receiving, sending); empty when not sampled.

    Parts that were not sampled are left out, except user data of requests, which carry most.
    """
    names_of_gpu = metric_names(trace, gpu)
    sides = []
    for names in (LINK_RX, LINK_TX):
        present = [name for name in names if name in names_of_gpu]
        sides.append(total(trace, gpu, present) if names[MAIN_PART] in names_of_gpu else ())
    return sides[0], sides[1]


def clock_hz(trace: Trace, gpu: int, name: str = "GPC Clock Frequency [MHz]") -> float | None:
    """Return the median sampled clock of a GPU in Hz; the rows hold Hz despite their name.

    Args:
        trace: May read ``gpu_metrics``.
        gpu: Index of the GPU.
        name: Exact name of the clock counter.
    """
    samples = trace.samples([name])
    values = samples.filter(samples["gpu"] == gpu)["value"].to_numpy()
    values = values[values > 0]
    if values.size == 0:
        return None
    middle = float(np.median(values))
    return middle if middle >= _HZ_FROM else middle * 1e6
