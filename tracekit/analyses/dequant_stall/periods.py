"""Chains of dequantisation kernels and the kernel that waits for each: its consumer.

The consumer is the next kernel of the same stream, or the first one that another stream runs after
waiting for an event recorded directly behind the chain. Kernels whose consumer neither order shows
are not counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.analyses.dequant_stall.tables import PERIODS
from tracekit.model.kernels import KernelKind
from tracekit.numerics import intervals
from tracekit.numerics.rows import overlapping, shares
from tracekit.trace import Trace
from tracekit.views.device.activity import WORK_KIND, activity, identified, queues
from tracekit.views.device.kernels import kernel_names
from tracekit.views.launches.attribution import attribution, event_waits, steps

__all__ = ["CONSUMERS", "DEQUANT", "FUSED", "periods", "work_of"]

Int64 = NDArray[np.int64]
DEQUANT = KernelKind.DEQUANT.value
FUSED = KernelKind.GEMM_QUANT.value
CONSUMERS = tuple(
    k.value
    for k in (KernelKind.GEMM, KernelKind.GEMM_QUANT, KernelKind.MOE_GEMM, KernelKind.ATTENTION)
)
_KINDS = WORK_KIND.categories.to_numpy()
_IS_KERNEL = np.isin(_KINDS, [k.value for k in KernelKind])
_IS_DEQUANT, _IS_CONSUMER = _KINDS == DEQUANT, np.isin(_KINDS, CONSUMERS)
_IS_LINK = _IS_KERNEL & (KernelKind.QUANTIZE.value != _KINDS)
"""Kind codes: what stands in a stream before or behind a kernel; the rest is passed over."""
_COVERS = _IS_KERNEL & ~_IS_DEQUANT
_NO_GPU = -1
"""Sorts before every GPU, as `activity` is sorted."""
_WORK = ("gpu", "start_ns", "end_ns", "kind", "name_key")
_QUEUE = ["report", "pid", "context", "stream"]
_OWN = ("start_ns", "name_key", "stream")
_NEXT = ("next_ns", "next_key", "next_stream")


def work_of(trace: Trace, kinds: Sequence[str]) -> pl.DataFrame:
    """Return gpu, start_ns, end_ns, kind and name_key of work of some kinds, as in `activity`."""
    work = activity(trace)
    chosen = np.isin(_KINDS, kinds).take(work["kind"].to_physical().to_numpy())
    return work.select(_WORK)[pl.Series(np.flatnonzero(chosen).astype(np.uint32))]


def periods(trace: Trace, chain_gap_ns: int) -> tuple[pl.DataFrame, int]:
    """Find the chains that have a consumer.

    Args:
        trace: The run.
        chain_gap_ns: Longest gap between two kernels of one chain.

    Returns:
        Frame of `PERIODS`, and the number of dequantisation kernels in no such chain.
    """
    work = activity(trace)
    kind, queue = work["kind"].to_physical().to_numpy(), work["queue"].to_numpy()
    at, then = overlapping.followed(queue, kind, _IS_DEQUANT, _IS_LINK, queues(trace).height)
    if at.size == 0:
        return PERIODS.empty(), 0
    by_stream = (then >= 0) & _IS_CONSUMER[kind[then]]
    by_event = _event_consumers(trace, at)
    start, end = (work[c].to_numpy()[at] for c in ("start_ns", "end_ns"))
    joined = (then[:-1] == at[1:]) & (start[1:] - end[:-1] <= chain_gap_ns)
    # What is recorded behind a kernel and waited for elsewhere ends its chain.
    joined &= by_event["next_ns"].is_null().to_numpy()[:-1]
    first = np.flatnonzero(np.append(True, ~joined))
    last = np.append(first[1:], at.size) - 1
    # Kernels of a CUDA graph may overlap on one stream: no moment of a chain counts twice.
    chain = np.repeat(np.arange(first.size, dtype=np.int32), np.diff(first, append=at.size))
    before = intervals.reached_before(end, chain, first.size)
    begin = np.minimum(np.maximum(start, before), end)
    exposed = end - begin - _covered(work, at, begin, end)
    length, bare = (np.add.reduceat(part, first) for part in (end - begin, exposed))
    turn = _by_time(trace, at[first], start[first])
    first, last = first[turn], last[turn]
    chains = _first_of_chains(trace, at[first]).with_columns(
        *_consumers(trace, then[last], by_stream[last], by_event[last]),
        pl.Series("last_ns", end[last]),
        pl.Series("n_kernels", last - first + 1),
        pl.Series("dequant_ns", length[turn]),
        pl.Series("exposed_ns", bare[turn]),
    )
    is_consumed = chains["next_ns"].is_not_null()
    n_lost = int(chains["n_kernels"].filter(~is_consumed).sum())
    return _named(trace, chains.filter(is_consumed) if n_lost else chains), n_lost


def _consumers(
    trace: Trace, rows: Int64, is_next: NDArray[np.bool_], by_event: pl.DataFrame
) -> pl.DataFrame:
    """Columns `_NEXT` and via of chains: of what comes next in the stream, else by events."""
    own = activity(trace).select("queue", "start_ns", "name_key")[rows]
    behind = identified(trace, own, "stream")
    in_order = pl.lit(pl.Series(is_next))
    return by_event.select(
        *(
            pl.when(in_order).then(behind[c]).otherwise(pl.col(n)).alias(n)
            for c, n in zip(_OWN, _NEXT, strict=True)
        ),
        pl.when(in_order).then(pl.lit("stream order")).otherwise(pl.lit("event")).alias("via"),
    )


def _by_time(trace: Trace, at: Int64, start: Int64) -> Int64:
    """Order of rows of `activity` by start, GPU and stream; sorted before they are many columns."""
    own = queues(trace).select(
        pl.col("gpu").fill_null(_NO_GPU), pl.col("stream").fill_null(np.iinfo(np.int64).min)
    )
    gpu, stream = (own[c].to_numpy()[activity(trace)["queue"].to_numpy()[at]] for c in own.columns)
    return np.lexsort((stream, gpu, start))


def _first_of_chains(trace: Trace, at: Int64) -> pl.DataFrame:
    """What a chain has of its first kernel."""
    rows = pl.Series(at.astype(np.uint32))
    own = identified(trace, activity(trace).select("gpu", "start_ns", "name_key", "queue")[rows])
    return own.hstack(attribution(trace).select("step", "layer")[rows])


def _event_consumers(trace: Trace, at: Int64) -> pl.DataFrame:
    """Start, name key and stream of the consumer on another stream of each dequantisation kernel.

    Args:
        trace: The run.
        at: int64[n], rows of `activity`.

    Returns:
        Frame of `_NEXT`, n rows, null where none is known.
    """
    dequant = pl.DataFrame({"at": at.astype(np.uint32)})
    waits = event_waits(trace).drop_nulls()
    known = _kernels_of_waits(trace, waits) if waits.height else waits
    if known.is_empty():
        dtypes = zip(_NEXT, (pl.Int64, pl.UInt32, pl.Int64), strict=True)
        nothing = (pl.repeat(None, at.size, dtype=t, eager=True).alias(n) for n, t in dtypes)
        return pl.DataFrame(nothing)
    before = known.select(
        *_QUEUE, "launch_start_ns", d_gpu="gpu", d_kind="kind", d_end_ns="end_ns", at="at"
    )
    after = known.select(
        *_QUEUE,
        "launch_start_ns",
        "gpu",
        "kind",
        *(pl.col(c).alias(n) for c, n in zip(_OWN, _NEXT, strict=True)),
    )
    pairs = _beside(_beside(waits, "record", before), "wait", after).filter(
        (pl.col("d_kind") == DEQUANT)
        & pl.col("kind").is_in(CONSUMERS)
        & (pl.col("gpu") == pl.col("d_gpu"))
        & (pl.col("next_ns") >= pl.col("d_end_ns"))
        & (pl.col("record_stream") != pl.col("wait_stream"))
    )
    first = pairs.sort("next_ns", "next_stream").unique("at", keep="first").select("at", *_NEXT)
    return dequant.join(first, on="at", how="left", maintain_order="left").select(_NEXT)


def _kernels_of_waits(trace: Trace, waits: pl.DataFrame) -> pl.DataFrame:
    """Kernels of the streams that record or wait, by launch; `at` is the row of `activity`."""
    streams = [
        waits.select("report", "pid", context=f"{end}_context", stream=f"{end}_stream")
        for end in ("record", "wait")
    ]
    numbered = queues(trace).with_row_index("queue")
    own = numbered.join(pl.concat(streams), on=_QUEUE, how="semi")["queue"]
    work = activity(trace)
    wanted = np.isin(np.arange(numbered.height), own.to_numpy())[work["queue"].to_numpy()]
    wanted &= _IS_LINK[work["kind"].to_physical().to_numpy()]
    at = pl.Series("at", np.flatnonzero(wanted).astype(np.uint32))
    rows = work[at].hstack([at, attribution(trace)["launch_start_ns"][at]])
    return identified(trace, rows.drop_nulls("launch_start_ns")).sort("launch_start_ns", "start_ns")


def _beside(waits: pl.DataFrame, end: str, work: pl.DataFrame) -> pl.DataFrame:
    """Join to a record the last work launched before it, to a wait the first one after it."""
    names = {f"{end}_context": "context", f"{end}_stream": "stream"}
    records = waits.with_columns(pl.col(o).alias(n) for o, n in names.items()).sort(f"{end}_ns")
    return records.join_asof(
        work,
        left_on=f"{end}_ns",
        right_on="launch_start_ns",
        by=_QUEUE,
        strategy="backward" if end == "record" else "forward",
        check_sortedness=False,
    ).drop("launch_start_ns", "context", "stream", strict=False)


def _covered(work: pl.DataFrame, at: Int64, begin: Int64, end: Int64) -> Int64:
    """Time of each dequantisation kernel that a kernel on another stream of its GPU covers.

    Dequantisation on several streams at once covers nothing, and counts once.

    Args:
        work: Frame of `activity`.
        at: int64[n], rows of `work`, stream by stream.
        begin: int64[n], ns, from when on each counts.
        end: int64[n], ns.
    """
    kind, queue = work["kind"].to_physical().to_numpy(), work["queue"].to_numpy()
    gpu = work["gpu"].fill_null(_NO_GPU).to_numpy()
    starts, ends = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    covered = np.zeros(at.size, np.int64)
    edges = [0, *(np.flatnonzero(np.diff(queue[at])) + 1).tolist(), at.size]
    covers = np.tile(_COVERS, (int(queue.max()) + 1, 1))
    for low, high in itertools.pairwise(edges):
        here, own = gpu[at[low]], queue[at[low]]
        # Sorted by GPU: the work of one is a slice.
        of_gpu = slice(*np.searchsorted(gpu, np.array([here, here + 1], gpu.dtype)))
        covers[own] = False
        times = starts[of_gpu], ends[of_gpu]
        busy = shares.union_of(*times, queue[of_gpu], kind[of_gpu], covers)
        covered[low:high] = intervals.overlap_ns(begin[low:high], end[low:high], *busy)
        covers[own] = _COVERS | _IS_DEQUANT
    return covered


def _named(trace: Trace, chains: pl.DataFrame) -> pl.DataFrame:
    names, groups = kernel_names(trace)["name"], steps(trace)["group"]
    group = groups[chains["step"]] if len(groups) else pl.lit(None, pl.String)
    return PERIODS.conform(
        chains.with_columns(
            group.alias("group"),
            pl.col("next_ns").alias("end_ns"),
            (pl.col("next_ns") - pl.col("last_ns")).alias("gap_ns"),
            (pl.col("next_ns") - pl.col("start_ns")).alias("consumer_wait_ns"),
            pl.col("next_stream").alias("consumer_stream"),
            names[chains["name_key"]].alias("kernel"),
            names[chains["next_key"]].alias("consumer"),
        )
    )
