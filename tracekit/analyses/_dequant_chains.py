"""Chains of dequantisation kernels and the kernel that waits for each: its consumer.

The consumer is the next kernel of the same stream, or the first one that another stream runs after
waiting for an event recorded directly behind the chain. What neither order tells is not counted.
"""

from __future__ import annotations

import polars as pl

from tracekit.analyses._dequant_tables import PERIODS
from tracekit.model.kernels import KernelKind
from tracekit.model.trace import Trace
from tracekit.numerics import intervals
from tracekit.views.activity import activity, identified
from tracekit.views.attribution import attribution, steps
from tracekit.views.event_waits import event_waits
from tracekit.views.kernels import kernel_names

__all__ = ["CONSUMERS", "DEQUANT", "FUSED", "periods", "stream_work"]

I64 = pl.Int64
DEQUANT = KernelKind.DEQUANT.value
FUSED = KernelKind.GEMM_QUANT.value
CONSUMERS = tuple(
    k.value
    for k in (KernelKind.GEMM, KernelKind.GEMM_QUANT, KernelKind.MOE_GEMM, KernelKind.ATTENTION)
)
_PASSED_OVER = (KernelKind.QUANTIZE.value, "memset")
_STREAM = ["gpu", "report", "pid", "context", "stream"]
_QUEUE = ["report", "pid", "context", "stream"]
_OWN = ("start_ns", "name_key", "stream")
_NEXT = ("event_next_ns", "event_next_key", "event_next_stream")


def stream_work(trace: Trace) -> pl.DataFrame:
    """Return kernels and memsets in stream order, with step, layer and launch_start_ns."""
    work = activity(trace).hstack(attribution(trace).select("step", "layer", "launch_start_ns"))
    on_stream = work.filter(pl.col("source").is_in(["kernel", "memset"]))
    on_stream = identified(trace, on_stream)
    return on_stream.sort([*_STREAM, "start_ns", "end_ns", "row"], nulls_last=True)


def periods(trace: Trace, work: pl.DataFrame, chain_gap_ns: int) -> tuple[pl.DataFrame, int]:
    """Find the chains that have a consumer.

    Args:
        trace: The run.
        work: From `stream_work`.
        chain_gap_ns: Longest gap between two kernels of one chain.

    Returns:
        Frame of `PERIODS`, and the number of dequantisation kernels in no such chain.
    """
    rows = work.filter(~pl.col("kind").is_in(_PASSED_OVER))
    rows = _with_event_consumer(trace, rows)
    rows = _with_exposed(_linked(rows, chain_gap_ns), work)
    by_event = pl.when("by_stream").then(pl.lit("stream order")).otherwise(pl.lit("event"))
    chains = rows.group_by("chain", maintain_order=True).agg(
        pl.col("gpu", "stream", "step", "layer", "name_key").first(),
        pl.col("start_ns").first(),
        pl.col("next_ns").last().alias("end_ns"),
        pl.len().alias("n_kernels"),
        (pl.col("end_ns") - pl.col("from_ns")).clip(0).sum().alias("dequant_ns"),
        pl.col("exposed_ns").sum(),
        (pl.col("next_ns") - pl.col("end_ns")).last().alias("gap_ns"),
        pl.col("next_key", "next_stream").last(),
        by_event.last().alias("via"),
        pl.col("next_ns").last().is_not_null().alias("consumed"),
    )
    n_lost = int(chains.filter(~pl.col("consumed"))["n_kernels"].sum())
    return _named(trace, chains.filter("consumed")), n_lost


def _linked(rows: pl.DataFrame, chain_gap_ns: int) -> pl.DataFrame:
    """Dequantisation kernels with the number of their chain and what comes next."""
    same_stream = pl.all_horizontal(pl.col(c).eq_missing(pl.col(c).shift(1)) for c in _STREAM)
    is_d = pl.col("kind") == DEQUANT
    gap = pl.col("start_ns") - pl.col("end_ns").shift(1)
    joined = same_stream & is_d & (pl.col("kind").shift(1) == DEQUANT) & (gap <= chain_gap_ns)
    # What is recorded behind a kernel and waited for elsewhere ends its chain.
    joined &= pl.col("event_next_ns").shift(1).is_null()
    follows = pl.all_horizontal(pl.col(c).eq_missing(pl.col(c).shift(-1)) for c in _STREAM)
    follows &= pl.col("kind").shift(-1).is_in(CONSUMERS)
    by_stream = follows.fill_null(value=False)
    rows = rows.with_columns((~joined).fill_null(value=True).cum_sum().alias("chain"))
    rows = rows.with_columns(
        by_stream.alias("by_stream"),
        *(
            pl.when(by_stream)
            .then(pl.col(column).shift(-1))
            .otherwise(event)
            .alias(event.removeprefix("event_"))
            for column, event in zip(_OWN, _NEXT, strict=True)
        ),
    ).filter(is_d)
    # Kernels of a CUDA graph may overlap on one stream: no moment of a chain counts twice.
    before = pl.col("end_ns").cum_max().shift(1).over("chain")
    begins = pl.max_horizontal("start_ns", before).clip(upper_bound=pl.col("end_ns"))
    return rows.with_columns(begins.alias("from_ns"))


def _with_event_consumer(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Add the consumer on another stream of each dequantisation kernel; null where none is told."""
    dequant = rows.filter(pl.col("kind") == DEQUANT)
    waits = event_waits(trace).drop_nulls() if dequant.height else pl.DataFrame()
    known = rows.drop_nulls(["launch_start_ns", *_QUEUE]).sort("launch_start_ns", "start_ns")
    if waits.is_empty() or known.is_empty():
        absent = (pl.lit(None, rows.schema[c]) for c in _OWN)
        return rows.with_columns(e.alias(n) for e, n in zip(absent, _NEXT, strict=True))
    before = known.select(
        *_QUEUE, "launch_start_ns", d_gpu="gpu", d_kind="kind", d_end_ns="end_ns", d_row="row"
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
        & (pl.col("event_next_ns") >= pl.col("d_end_ns"))
        & (pl.col("record_stream") != pl.col("wait_stream"))
    )
    first = pairs.sort("event_next_ns", "event_next_stream").unique("d_row", keep="first")
    first = first.select(pl.col("d_row").alias("row"), *_NEXT)
    return rows.join(first, on="row", how="left", maintain_order="left")


def _beside(waits: pl.DataFrame, end: str, work: pl.DataFrame) -> pl.DataFrame:
    """Join to a record the last work launched before it, to a wait the first one after it."""
    names = {f"{end}_context": "context", f"{end}_stream": "stream"}
    asked = waits.with_columns(pl.col(o).alias(n) for o, n in names.items()).sort(f"{end}_ns")
    return asked.join_asof(
        work,
        left_on=f"{end}_ns",
        right_on="launch_start_ns",
        by=_QUEUE,
        strategy="backward" if end == "record" else "forward",
        check_sortedness=False,
    ).drop("launch_start_ns", "context", "stream", strict=False)


def _with_exposed(rows: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Add ``exposed_ns``: time of each row that no kernel on another stream of its GPU covers.

    Dequantisation on several streams at once covers nothing, and counts once.
    """
    kernels = work.filter(pl.col("source") == "kernel")
    parts: list[pl.DataFrame] = []
    for key, part in rows.group_by(_STREAM, maintain_order=True):
        here = pl.all_horizontal(
            pl.col(c).eq_missing(pl.lit(v, rows.schema[c]))
            for c, v in zip(_STREAM, key, strict=True)
        )
        same_gpu = pl.col("gpu").eq_missing(pl.lit(key[0], pl.Int16))
        other = kernels.filter(same_gpu & ~here & (pl.col("kind") != DEQUANT))
        covers = [other, *(p.filter(same_gpu) for p in parts)]
        ends = pl.concat([c.select("start_ns", "end_ns") for c in covers])
        busy = intervals.union(ends["start_ns"].to_numpy(), ends["end_ns"].to_numpy())
        start, end = part["from_ns"].to_numpy(), part["end_ns"].to_numpy()
        covered = pl.Series(intervals.overlap_ns(start, end, *busy))
        length = (part["end_ns"] - part["from_ns"]).clip(0)
        parts.append(part.with_columns((length - covered).alias("exposed_ns")))
    return pl.concat(parts) if parts else rows.with_columns(pl.lit(0, I64).alias("exposed_ns"))


def _named(trace: Trace, chains: pl.DataFrame) -> pl.DataFrame:
    names = kernel_names(trace).select("name_key", "name")
    groups = steps(trace).select("step", "group")
    chains = chains.join(groups, on="step", how="left", maintain_order="left")
    chains = chains.join(
        names.rename({"name": "kernel"}), on="name_key", how="left", maintain_order="left"
    ).join(
        names.rename({"name_key": "next_key", "name": "consumer"}),
        on="next_key",
        how="left",
        maintain_order="left",
    )
    wait = (pl.col("end_ns") - pl.col("start_ns")).alias("consumer_wait_ns")
    stream = pl.col("next_stream").alias("consumer_stream")
    return PERIODS.conform(chains.with_columns(wait, stream).sort("start_ns", "gpu", "stream"))
