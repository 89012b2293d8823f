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

from tracekit.model.table import Column, Table
from tracekit.numerics import numbering, stacks
from tracekit.trace import Trace, view
from tracekit.views.collectives.groups import BOUNDARIES, with_groups
from tracekit.views.device.activity import activity, device_ids, identified
from tracekit.views.device.kernels import kernel_names
from tracekit.views.keys import looked_up, row_numbers
from tracekit.views.launches.attribution import attribution
from tracekit.views.nvtx.markers import markers
from tracekit.views.nvtx.payloads import payloads
from tracekit.views.nvtx.ranges import range_stacks, ranges

__all__ = [
    "LAUNCH_FACTS",
    "call_of",
    "comm_kernels",
    "communicator_sizes",
    "group_sizes",
    "host_calls",
    "launch_facts",
    "thread_key",
]

NCCL_DOMAIN = "NCCL"
CALL = ["what", "comm", "handle", "bytes", "dtype", "nranks", "rank", "group"]
"""Columns that state what a call requests, and the group that it lies in."""
_CALL = (
    r"^p?nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AlltoAll|AllToAll"
    r"|Gather|Scatter|Send|Recv)$"
)
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


@view
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
    return with_groups(pl.concat([_in_order(_marker_calls(trace)), _in_order(_nccl_calls(trace))]))


def _in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Sort the calls of one source by thread and start, outer ones first."""
    if calls.is_empty():
        return calls
    thread, _ = row_numbers(calls.select("report", "pid", "tid"))
    keys = calls["start_ns"].to_numpy(), -calls["end_ns"].to_numpy()
    order = numbering.ordered(thread, keys)
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
    marks = markers(trace)["GROUP"].filter(pl.col("event").is_in(list(BOUNDARIES)))
    marks = marks.filter((pl.col("event") == "end") | (pl.col("rc").fill_null(0) == 0))
    marks = marks.with_columns(
        pl.col("event").replace(BOUNDARIES).alias("what"),
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


@view
def group_sizes(trace: Trace) -> pl.DataFrame:
    """Return what the calls of each group request together.

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


@view
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


_NODE_HOPS = 8
_NO_THREAD = -1
LAUNCH_FACTS = Table(
    "launch_facts",
    (
        Column("what", pl.Categorical(), "", "operation, or GroupStart or GroupEnd"),
        Column("comm", pl.UInt64, "", "the library's id of the communicator"),
        Column("handle", pl.Int64, "", "the program's pointer"),
        Column("call_bytes", pl.Int64, "bytes", "size as the call states it"),
        Column("call_dtype", pl.Categorical(), "", "element type as the call states it"),
        Column("nranks", pl.Int64, "", "ranks of it; null when not stated"),
        Column("rank", pl.Int64, "", "rank as the call states it"),
        Column("fused_group", pl.Boolean, "", "whether it carries several calls of one group"),
        Column("stated_by", pl.Categorical(), "", "source of the size: payload, marker or range"),
    ),
    "what the host call of one communication kernel states",
)
_FIELDS = tuple(CALL[:-1])
_NODE = ["report", "pid", "graph_node"]


@view
def comm_kernels(trace: Trace) -> pl.DataFrame:
    """Return the communication kernels with their launch.

    Returns:
        Rows of `activity` plus activity UInt32 (row there), report, pid, context, stream,
        graph_node Int64, launch_start_ns, launch_tid, step, and of `kernel_names` fused Boolean
        and name, op and family as Categorical; in the order of `activity`.
    """
    launches = attribution(trace).select("launch_start_ns", "launch_tid", "step")
    names = kernel_names(trace).filter(pl.col("is_comm"))
    is_comm = activity(trace)["name_key"].is_in(names["name_key"].implode()).fill_null(value=False)
    at = is_comm.arg_true()
    work = pl.DataFrame({"activity": at.cast(pl.UInt32)}).hstack(activity(trace)[at])
    work = identified(trace, work.hstack(launches[at]))
    node = device_ids(trace).graph_node
    own = pl.lit(None, pl.Int64) if node is None else node[at]
    work = work.with_columns(own.alias("graph_node"))
    texts = names.select("name_key", "fused", pl.col("name", "op", "family").cast(pl.Categorical))
    return work.hstack(looked_up(work, texts, ["name_key"]))


@view
def _call_points(trace: Trace) -> pl.DataFrame:
    """Thread and time of the call: the launch, or for a graph kernel the capture of its node.

    Frame of thread Int64 (-1 without a launch) and t_ns Int64, a row a communication kernel.
    """
    rows = comm_kernels(trace)
    captured = _capture_points(trace.frame("graph_nodes"))
    rows = rows.join(captured, on=_NODE, how="left", maintain_order="left")
    launched = rows.with_columns(thread_key("launch_").alias("_launched"))
    in_graph = pl.col("graph_node").is_not_null()
    return launched.select(
        pl.when(in_graph)
        .then("captured_thread")
        .otherwise("_launched")
        .fill_null(_NO_THREAD)
        .alias("thread"),
        pl.when(in_graph)
        .then("captured_ns")
        .otherwise("launch_start_ns")
        .fill_null(0)
        .alias("t_ns"),
    )


def _capture_points(nodes: pl.DataFrame) -> pl.DataFrame:
    """Where each executed graph node, through clones of clones, was captured."""
    born = nodes.sort("start_ns").unique(_NODE, keep="first", maintain_order=True)
    born = born.with_columns(thread_key().alias("captured_thread"))
    clones = nodes.drop_nulls("original_node").unique(_NODE, keep="first", maintain_order=True)
    clones = clones.select("report", "pid", pl.col("graph_node").alias("_root"), "original_node")
    roots = born.select(*_NODE, pl.col("graph_node").alias("_root"))
    for _ in range(_NODE_HOPS):
        up = roots.join(clones, on=["report", "pid", "_root"], how="left", maintain_order="left")
        if up["original_node"].null_count() == up.height:
            break
        further = pl.coalesce("original_node", "_root").alias("_root")
        roots = up.select(*_NODE, further)
    place = born.select(
        "report",
        "pid",
        pl.col("graph_node").alias("_root"),
        "captured_thread",
        pl.col("start_ns").alias("captured_ns"),
    )
    return roots.join(place, on=["report", "pid", "_root"], how="left").select(
        *_NODE, "captured_thread", "captured_ns"
    )


@view
def launch_facts(trace: Trace) -> pl.DataFrame:
    """Return what the host call behind each communication kernel requests.

    NCCL's own range is asked first, a marker of the injector fills what it does not say. A marker
    is also believed when NCCL's ranges are absent.

    Returns:
        Frame of `LAUNCH_FACTS`, one row a row of `comm_kernels`; all null where no call is known.
        ``stated_by`` is "payload" when NCCL stated the size, "marker" when the injector did,
        "range" when only the operation is known.
    """
    at = _call_points(trace)
    threads, times = at["thread"].to_numpy(), at["t_ns"].to_numpy()
    calls = host_calls(trace)
    nccl = _grouped(trace, call_of(calls, "nccl", threads, times))
    marker = _grouped(trace, call_of(calls, "marker", threads, times))
    both = nccl.hstack(marker.select(pl.all().name.prefix("m_")))
    sized = pl.col("bytes").is_not_null()
    fused = pl.col("fused_group") | (pl.col("what").is_null() & pl.col("m_fused_group"))
    found = both.select(
        pl.coalesce("what", "m_what").alias("what"),
        "comm",
        pl.col("m_handle").alias("handle"),
        pl.coalesce("bytes", "m_bytes").alias("call_bytes"),
        pl.col("m_dtype").alias("call_dtype"),
        pl.coalesce("m_nranks", "nranks").alias("nranks"),
        pl.coalesce("m_rank", "rank").alias("rank"),
        fused.alias("fused_group"),
        pl.when(sized)
        .then(pl.lit("payload", pl.Categorical))
        .when(pl.col("m_what").is_not_null())
        .then(pl.lit("marker", pl.Categorical))
        .when(pl.col("what").is_not_null())
        .then(pl.lit("range", pl.Categorical))
        .alias("stated_by"),
    )
    return LAUNCH_FACTS.select(found)


def _grouped(trace: Trace, found: pl.DataFrame) -> pl.DataFrame:
    """Give the launches of a group's end to the calls of the group.

    As many launches as calls: one each, in order. One launch of several calls is fused: sizes are
    summed. Any other count leaves the sizes unknown.
    """
    calls = host_calls(trace)
    if found["group"].null_count() == found.height:
        return found.select(*map(_unless_boundary, _FIELDS), fused_group=pl.lit(value=False))
    ending = pl.col("what") == "GroupEnd"
    rows = found.with_row_index("_row").with_columns(
        pl.when(ending).then("group").alias("_group"),
    )
    rows = rows.with_columns(
        pl.int_range(pl.len()).over("_group").alias("_nth"), pl.len().over("_group").alias("_n")
    )
    sizes = group_sizes(trace).select("group", "n_calls", *_prefixed("g_"))
    members = calls.filter(
        pl.col("group").is_not_null() & ~pl.col("what").is_in(["GroupStart", "GroupEnd"])
    ).with_columns(pl.int_range(pl.len()).over("group").alias("_nth"))
    members = members.select(pl.col("group").alias("_group"), "_nth", *_prefixed("c_"))
    rows = rows.join(
        sizes.rename({"group": "_group"}), on="_group", how="left", maintain_order="left"
    )
    rows = rows.join(members, on=["_group", "_nth"], how="left", maintain_order="left")
    one_each = pl.col("_n") == pl.col("n_calls")
    fused = pl.col("_group").is_not_null() & (pl.col("n_calls") > 1) & ~one_each
    shared = pl.when((pl.col("_n") == 1) | one_each)
    return rows.select(
        *(
            pl.when(pl.col("_group").is_null())
            .then(_unless_boundary(name))
            .when(one_each)
            .then(f"c_{name}")
            .otherwise(shared.then(f"g_{name}") if name == "bytes" else pl.col(f"g_{name}"))
            .alias(name)
            for name in _FIELDS
        ),
        fused.fill_null(value=False).alias("fused_group"),
    )


def _unless_boundary(name: str) -> pl.Expr:
    """A field of a call; null where the call is the boundary of a group whose calls are unknown."""
    boundary = pl.col("what").is_in(list(BOUNDARIES.values())).fill_null(value=False)
    return pl.when(~boundary).then(name).alias(name)


def _prefixed(prefix: str) -> list[pl.Expr]:
    return [pl.col(c).alias(f"{prefix}{c}") for c in _FIELDS]
