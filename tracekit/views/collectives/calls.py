"""Host calls that ask for a collective, and which of them a launch belongs to.

Two sources say the same: NCCL's own NVTX ranges with their payloads, and ``COLL`` ranges of the
injector. A launch is looked up in both, so a collective that both describe is still one
collective. Inside ``ncclGroupStart`` .. ``ncclGroupEnd`` nothing is launched before the end: the
launches of the end belong to all calls of the group.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.numerics import buckets, stacks
from tracekit.trace import Trace, view
from tracekit.views.keys import row_numbers
from tracekit.views.nvtx.markers import markers
from tracekit.views.nvtx.payloads import payloads
from tracekit.views.nvtx.ranges import range_stacks, ranges

__all__ = ["call_of", "communicator_sizes", "group_sizes", "host_calls", "thread_key"]

NCCL_DOMAIN = "NCCL"
CALL = ["what", "comm", "handle", "bytes", "dtype", "nranks", "rank", "group"]
"""What a call asked for, and the group that it lies in."""
_CALL = (
    r"^p?nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AlltoAll|AllToAll"
    r"|Gather|Scatter|Send|Recv)$"
)
_BOUNDARIES = {"start": "GroupStart", "end": "GroupEnd"}
_OP_NAMES = {"Bcast": "Broadcast", "AllToAll": "AlltoAll"}
DTYPES = {
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "float8e4m3": "f8e4m3",
    "float8e5m2": "f8e5m2",
}
"""Element types of markers in the short form that kernel names use."""


def thread_key(prefix: str = "") -> pl.Expr:
    """Return an Int64 expression that numbers threads over all reports; null without a thread.

    Args:
        prefix: Prefix of the ``tid`` column.
    """
    return (
        pl.col("report").cast(pl.Int64) * (1 << 48)
        + pl.col("pid").cast(pl.Int64) * (1 << 24)
        + pl.col(f"{prefix}tid").cast(pl.Int64)
    )


@view(of=[ranges, range_stacks, payloads, markers])
def host_calls(trace: Trace) -> pl.DataFrame:
    """Return every host-side communication call and group boundary.

    Returns:
        Frame of source Categorical ("nccl" or "marker"), report UInt16, pid UInt32, tid UInt32,
        thread Int64, start_ns Int64, end_ns Int64, what Categorical (op, "GroupStart" or
        "GroupEnd"), comm UInt64 (the library's id, the same on all ranks), handle Int64 (the
        program's pointer, of this process only), bytes Int64 (as the source says), dtype
        Categorical, nranks Int64, rank Int64, group Int64 (number of the enclosing group call,
        null outside groups; for GroupEnd the group that it ends); sorted by source, thread and
        start.
    """
    # In the order of their names.
    return _with_groups(pl.concat([_in_order(_marker_calls(trace)), _in_order(_nccl_calls(trace))]))


def _in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Sort the calls of one source by thread and start, outer ones first."""
    if calls.is_empty():
        return calls
    thread, _ = row_numbers(calls.select("report", "pid", "tid"))
    keys = calls["start_ns"].to_numpy(), -calls["end_ns"].to_numpy()
    order = buckets.ordered(thread, keys)
    return calls if order is None else calls[order]


def _nccl_calls(trace: Trace) -> pl.DataFrame:
    domain = pl.col("domain_name")
    nccl, nameless = domain == NCCL_DOMAIN, domain.str.starts_with("domain#")
    asked = range_stacks(trace).select(nccl | nameless).to_series()
    rows = ranges(trace).select("stack", "start_ns", "end_ns", "text", "nvtx_row")
    found = _with_calls(rows.filter(asked[rows["stack"]]))
    stacks_of = range_stacks(trace).select("report", "pid", "tid", "domain_name")
    found = found.hstack(stacks_of[found["stack"]] if found.height else stacks_of.clear())
    found = found.filter(nccl | pl.col("_prefixed"))
    records = payloads(trace).records.select("nvtx_row", "comm", "bytes", "nranks", "rank")
    return found.hstack(_told(records, found["nvtx_row"])).select(
        pl.lit("nccl", pl.Categorical).alias("source"),
        "report",
        "pid",
        "tid",
        thread_key().alias("thread"),
        "start_ns",
        "end_ns",
        "what",
        "comm",
        pl.lit(None, pl.Int64).alias("handle"),
        pl.when(pl.col("bytes") >= 0).then("bytes").alias("bytes"),
        pl.lit(None, pl.Categorical).alias("dtype"),
        "nranks",
        "rank",
    )


def _told(records: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
    """The record of each NVTX row, nulls without one; there is one a row, in their order."""
    known, sought = records["nvtx_row"].to_numpy(), rows.to_numpy()
    records = records.drop("nvtx_row")
    if not known.size:
        return records.clear(sought.size)
    at = np.minimum(np.searchsorted(known, sought), known.size - 1)
    place = pl.Series(at).set(pl.Series(known[at] != sought), None)
    return records.select(pl.all().gather(place))


def _with_calls(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranges whose text is a call: what it is, and whether it is spelled as one of the API."""
    text = pl.col("text").cast(pl.String)
    op = text.str.extract(_CALL, 1).replace(_OP_NAMES)
    boundary = text.str.extract(r"^p?nccl(GroupStart|GroupEnd)$", 1)
    calls = rows.select(pl.col("text").unique()).with_columns(
        pl.coalesce(op, boundary).cast(pl.Categorical).alias("what"),
        text.str.contains(r"^nccl[A-Z]").alias("_prefixed"),
    )
    return rows.join(calls.drop_nulls("what"), on="text", maintain_order="left")


def _marker_calls(trace: Trace) -> pl.DataFrame:
    """``COLL`` ranges, and group calls put together from their marks.

    The mark of a group call comes right after it, so the call that ends a group lies between the
    event before and that mark.
    """
    calls = markers(trace)["COLL"].drop_nulls("end_ns").rename({"t_ns": "start_ns"})
    calls = calls.with_columns(pl.col("op").replace(_OP_NAMES).fill_null("unknown").alias("what"))
    marks = markers(trace)["GROUP"].filter(pl.col("event").is_in(list(_BOUNDARIES)))
    marks = marks.filter((pl.col("event") == "end") | (pl.col("rc").fill_null(0) == 0))
    marks = marks.with_columns(
        pl.col("event").replace(_BOUNDARIES).alias("what"),
        pl.col("t_ns").alias("start_ns"),
        pl.col("t_ns").alias("end_ns"),
    )
    both = pl.concat([calls, marks], how="diagonal").with_columns(thread_key().alias("thread"))
    both = both.sort("thread", "end_ns", "nvtx_row")
    before = pl.col("end_ns").shift(1).over("thread").fill_null(pl.col("start_ns"))
    both = both.with_columns(
        pl.when(pl.col("what") == "GroupEnd").then(before).otherwise("start_ns").alias("start_ns")
    )
    return both.select(
        pl.lit("marker", pl.Categorical).alias("source"),
        "report",
        "pid",
        "tid",
        "thread",
        "start_ns",
        "end_ns",
        pl.col("what").cast(pl.Categorical),
        pl.lit(None, pl.UInt64).alias("comm"),
        pl.col("comm").alias("handle"),
        "bytes",
        pl.col("dtype").replace(DTYPES).cast(pl.Categorical).alias("dtype"),
        "nranks",
        "rank",
    )


def _with_groups(calls: pl.DataFrame) -> pl.DataFrame:
    """Number the outermost group that each call lies in; nested group calls share it."""
    if not calls["what"].is_in(list(_BOUNDARIES.values())).any():
        return calls.with_columns(pl.lit(None, pl.Int64).alias("group"))
    over = ["source", "thread"]
    step = (
        pl.when(pl.col("what") == "GroupStart")
        .then(1)
        .when(pl.col("what") == "GroupEnd")
        .then(-1)
        .otherwise(0)
    )
    calls = calls.with_columns(step.cast(pl.Int64).alias("_step"))
    calls = calls.with_columns(pl.col("_step").cum_sum().over(over).alias("_after"))
    # A capture that began inside a group has an end without a start: count from the lowest level.
    floor = pl.min_horizontal(pl.col("_after").cum_min().over(over), 0)
    calls = calls.with_columns((pl.col("_after") - floor).alias("_depth"))
    opens = (pl.col("_step") == 1) & (pl.col("_depth") == 1)
    number = opens.cast(pl.Int64).cum_sum()
    closes = (pl.col("_step") == -1) & (pl.col("_depth") == 0)
    grouped = (pl.col("_depth") > 0) | (closes & (pl.col("_after") == floor))
    began = opens.cast(pl.Int64).cum_sum().over(over) > 0
    group = pl.when(grouped & began).then(number).alias("group")
    return calls.with_columns(group).drop("_step", "_after", "_depth")


def call_of(
    calls: pl.DataFrame, source: str, threads: NDArray[np.int64], times: NDArray[np.int64]
) -> pl.DataFrame:
    """Find the innermost call of one source around each launch.

    Args:
        calls: `host_calls`.
        source: "nccl" or "marker".
        threads: int64[m], `thread_key` of the launching threads, -1 for unknown.
        times: int64[m], ns, starts of the launching calls.

    Returns:
        `CALL` columns of `calls`, one row a launch, all-null where no call was open.
    """
    mine = calls.filter(pl.col("source") == source)
    if mine.is_empty():
        return mine.select(CALL).clear(times.size)
    found = stacks.innermost(
        mine["start_ns"].to_numpy(),
        mine["end_ns"].to_numpy(),
        mine["thread"].to_numpy(),
        times,
        threads,
    )
    at = pl.Series(found, dtype=pl.Int64)
    return mine.select(pl.col(CALL).gather(at.set(at < 0, None)))


@view(of=[host_calls])
def group_sizes(trace: Trace) -> pl.DataFrame:
    """Return what each group call asked for in all.

    Returns:
        Frame of group Int64, n_calls UInt32, bytes Int64 (sum; null when any is unknown), and
        comm, handle, dtype, what, nranks, rank (each null unless all calls agree).
    """
    calls = host_calls(trace).filter(
        pl.col("group").is_not_null() & ~pl.col("what").is_in(["GroupStart", "GroupEnd"])
    )
    return calls.group_by("group", maintain_order=True).agg(
        pl.len().alias("n_calls"),
        _agreed("comm"),
        _agreed("handle"),
        _agreed("dtype"),
        pl.when(pl.col("bytes").null_count() == 0).then(pl.col("bytes").sum()).alias("bytes"),
        pl.when(pl.col("what").is_in(["Send", "Recv"]).all())
        .then(pl.lit("SendRecv", pl.Categorical))
        .otherwise(_agreed("what"))
        .alias("what"),
        _agreed("nranks"),
        _agreed("rank"),
    )


def _agreed(column: str) -> pl.Expr:
    return pl.when(pl.col(column).n_unique() == 1).then(pl.col(column).first()).alias(column)


@view("nvtx", of=[payloads, markers])
def communicator_sizes(trace: Trace) -> pl.DataFrame:
    """Return the number of ranks of each communicator as its creation stated it.

    Returns:
        Frame of report UInt16, pid UInt32, comm UInt64 (the library's id, null for markers),
        handle Int64 (pointer, null for payloads), nranks Int64, rank Int64, device Int64.
    """
    nvtx = trace.frame("nvtx").select("pid").with_row_index("nvtx_row")
    inits = payloads(trace).records.drop_nulls(["nranks", "comm"])
    from_payload = inits.join(nvtx, on="nvtx_row", how="left").select(
        "report", "pid", "comm", pl.lit(None, pl.Int64).alias("handle"), "nranks", "rank", "device"
    )
    from_marker = (
        markers(trace)["COMM"]
        .drop_nulls("nranks")
        .select(
            "report",
            "pid",
            pl.lit(None, pl.UInt64).alias("comm"),
            pl.col("comm").alias("handle"),
            "nranks",
            "rank",
            "device",
        )
    )
    frame = pl.concat([from_payload, from_marker]).unique(maintain_order=True)
    return frame.sort("report", "pid", "comm", "handle", "rank", nulls_last=True)
